"""HTML for notebooks: foldable text, and tables; everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def details(title: str, text: str, opened: bool = False) -> str:
    """Return `text` in a monospaced font under a title that unfolds it."""
    state = " open" if opened else ""
    return (
        f"<details{state}><summary>{escape(title)}</summary>"
        f'<pre style="white-space: pre; overflow-x: auto">{escape(text)}</pre></details>'
    )


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a header; numbers are aligned to the right."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><tr>{names}</tr>{body}</table>"


def _cell(value: object) -> str:
    if not isinstance(value, int | float):
        return f'<td style="text-align: left">{escape(str(value))}</td>'
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return f'<td style="text-align: right">{shown}</td>'
