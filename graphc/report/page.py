"""A report's file: the page with its style, scripts, library and data inside, and nothing else."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from graphc.base.errors import GraphError
from graphc.report.model import ProgramData
from graphc.report.summary import strip

SCRIPTS = ("base", "inspector", "lists", "charts", "tree", "graph", "main")
"""In the order in which they need each other."""


def write(path: Path, programs: Sequence[ProgramData]) -> None:
    """Write the report of one program, or of two side by side.

    It raises GraphError if the file cannot be written.
    """
    try:
        path.write_text(page(programs), encoding="utf-8")
    except OSError as error:
        raise GraphError(f"cannot write the report to {path}: {error.strerror}") from error


def page(programs: Sequence[ProgramData]) -> str:
    """The whole file."""
    summaries = [program.summary for program in programs]
    named = [
        f'<p class="which">{escape(s.name)}</p>' if len(programs) > 1 else "" for s in summaries
    ]
    if len({s.name for s in summaries}) < len(programs):
        named = [
            f'<p class="which">{escape(s.name)} {"AB"[i]}</p>' for i, s in enumerate(summaries)
        ]
    return Template(_part("page.html")).substitute(
        title=f"{escape(summaries[0].name)}: graphc report",
        names=_names(programs),
        strips="".join(name + strip(s) for name, s in zip(named, summaries, strict=True)),
        style=_part("style.css"),
        library=_library(),
        script="\n".join(_part(f"{name}.js") for name in SCRIPTS),
        data=base64.b64encode(zlib.compress(_json(programs), 9)).decode(),
    )


def _names(programs: Sequence[ProgramData]) -> str:
    first, *others = (program.summary for program in programs)
    state = "proved" if first.verified.startswith("verified") else "not valid"
    chip = "good" if state == "proved" else "bad"
    verified = f'<span class="chip {chip}">plan {state}</span>' if first.verified else ""
    against = "".join(
        f'<span class="against">beside {escape(other.name)} on {escape(other.device)}</span>'
        for other in others
    )
    return (
        f'<h1>{escape(first.name)}</h1><span class="chip">{escape(first.device)}</span>'
        f"{verified}{against}"
    )


def _json(programs: Sequence[ProgramData]) -> bytes:
    data = {"programs": [asdict(program) for program in programs]}
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _library() -> str:
    """The layout library with its licence, without the mention of a file that is not there."""
    text, _, _ = _part("dagre/dagre.min.js").partition("//# sourceMappingURL")
    return f"/*\n{_part('dagre/LICENSE')}*/\n{text}"


def _part(name: str) -> str:
    return files("graphc.report").joinpath("page", *name.split("/")).read_text(encoding="utf-8")
