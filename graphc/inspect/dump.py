"""A program as text files: each stage of the graph, the plan, the kernels."""

from __future__ import annotations

from pathlib import Path

from graphc.base.errors import GraphError
from graphc.inspect.formats import graph_dot, graph_json, plan_json, stage_diffs
from graphc.inspect.subject import Subject
from graphc.text import graph_text


def dump(program: Subject, folder: Path) -> None:
    """Write the stages, kernels and plan of a program as text files into a folder.

    `00-trace.txt`, `01-....txt` are the graph after each pass, in order, and `01-....diff` what
    that pass changed, if anything; `graph.dot` and `graph.json` are the last graph; `plan.txt` and
    `plan.json` have no measured values; `kernels/NAME.cpp` or `.cu` are the sources. Equal programs
    give equal files. The folder is made if needed.

    Raises:
        GraphError: The folder cannot be written.
    """
    try:
        _dump(program, folder)
    except OSError as error:
        raise GraphError(f"cannot write the dump to {folder}: {error.strerror}") from error


def _dump(program: Subject, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (stage, graph) in enumerate(program.stages.items()):
        _write(folder / f"{number:02}-{stage}.txt", graph_text(graph))
    for number, (stage, diff) in enumerate(stage_diffs(program.stages).items(), 1):
        if diff:
            _write(folder / f"{number:02}-{stage}.diff", diff)
    graph = list(program.stages.values())[-1]
    _write(folder / "graph.dot", graph_dot(graph))
    _write(folder / "graph.json", graph_json(graph))
    if program.plan is None:
        return
    _write(folder / "plan.json", plan_json(program.plan))
    _write(folder / "plan.txt", program.plan.text(measured=False))
    suffix = "cpp" if program.target.device == "cpu" else "cu"
    (folder / "kernels").mkdir(exist_ok=True)
    for name, source in program.kernels.items():
        _write(folder / "kernels" / f"{name}.{suffix}", source)


def _write(path: Path, text: str) -> None:
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
