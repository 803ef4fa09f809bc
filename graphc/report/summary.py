"""The summary strip of a program as HTML: what it was, what it is, what it needs and takes."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from graphc.report.model import Summary

Figure = tuple[str, str, str, str]
"""(name, what it was, what it is, a note)."""


def strip(summary: Summary) -> str:
    """A definition list of figures; a page's or a notebook's style makes it a strip."""
    cards = (_card(*figure) for figure in figures(summary))
    return f'<dl class="strip">{"".join(cards)}</dl>'


def notebook_strip(summary: Summary) -> str:
    """The same as a table of one row, for pages whose style is not ours."""
    cells = (
        f"<td><div>{escape(name)}</div><div><b>{escape(f'{before} → ' if before else '')}"
        f"{escape(after)}</b></div><div><small>{escape(note)}</small></div></td>"
        for name, before, after, note in figures(summary)
    )
    return f'<table style="text-align: left"><tr>{"".join(cells)}</tr></table>'


def figures(summary: Summary) -> Iterator[Figure]:
    """What stands in the strip, in its order."""
    s = summary
    yield (
        "Kernels",
        f"{s.ops:,}",
        f"{s.kernels:,}",
        f"{s.ops / max(s.kernels, 1):.1f} ops in each",
    )
    yield (
        "Launches a call",
        _changed(s.op_launches, s.launches),
        f"{s.launches:,}",
        "op by op before",
    )
    yield (
        "Bytes moved a call",
        _changed(byte_text(s.op_bytes), byte_text(s.bytes)),
        byte_text(s.bytes),
        f"{s.op_bytes / max(s.bytes, 1):.1f}× fewer than op by op",
    )
    if s.streams:
        ratio = f"{s.peak / s.bound:.3f}× the lower bound" if s.bound else "no work memory"
        yield "Peak of work memory", "", byte_text(s.peak), ratio
        yield "Streams", "", f"{s.streams}", f"{s.events:,} events"
        predicted = f"{time_text(s.predicted)} predicted"
        if s.measured is None:
            yield "Time a call", "", time_text(s.predicted), "predicted by round rates"
        else:
            yield "Time a call", "", time_text(s.measured), f"measured; {predicted}"


def byte_text(nbytes: float) -> str:
    """Such as `3.45 MB` (1 MB = 10^6 bytes)."""
    return _scaled(nbytes, ("B", "kB", "MB", "GB", "TB"))


def time_text(microseconds: float) -> str:
    """Such as `3.45 ms`."""
    return _scaled(microseconds, ("µs", "ms", "s"))


def _scaled(value: float, units: tuple[str, ...]) -> str:
    place = 0
    while value >= 999.5 and place < len(units) - 1:
        value, place = value / 1000, place + 1
    digits = 0 if value >= 99.95 or (place == 0 and value == int(value)) else 2 - (value >= 9.995)
    return f"{value:.{digits}f} {units[place]}"


def _changed(before: object, after: object) -> str:
    before, after = (f"{x:,}" if isinstance(x, int) else str(x) for x in (before, after))
    return "" if before == after else before


def _card(name: str, before: str, after: str, note: str) -> str:
    was = f'<span class="from">{escape(before)} → </span>' if before else ""
    return (
        f"<div><dt>{escape(name)}</dt>"
        f'<dd class="figure">{was}{escape(after)}</dd><dd class="note">{escape(note)}</dd></div>'
    )
