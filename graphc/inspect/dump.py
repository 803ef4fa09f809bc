"""A program as text files: each stage of the graph, the plan, the kernels."""

from __future__ import annotations

from pathlib import Path

from graphc.errors import GraphError
from graphc.inspect.subject import Subject
from graphc.text import graph_text


def dump(program: Subject, folder: Path) -> None:
    """Write into `folder`, which is made if needed:

    `00-trace.txt`, `01-....txt`: the graph after each pass, in order; `plan.txt`, without measured
    values; `kernels/NAME.cpp` or `.cu`. Equal programs give equal files. GraphError if the folder
    cannot be written.
    """
    try:
        _dump(program, folder)
    except OSError as error:
        raise GraphError(f"cannot write the dump to {folder}: {error.strerror}") from error


def _dump(program: Subject, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (stage, graph) in enumerate(program.stages.items()):
        _write(folder / f"{number:02}-{stage}.txt", graph_text(graph))
    if program.plan is None:
        return
    _write(folder / "plan.txt", program.plan.text(measured=False))
    suffix = "cpp" if program.target.device == "cpu" else "cu"
    (folder / "kernels").mkdir(exist_ok=True)
    for name, source in program.kernels.items():
        _write(folder / "kernels" / f"{name}.{suffix}", source)


def _write(path: Path, text: str) -> None:
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
