"""Print a joined launch's loop whose blocks keep their rows in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.kernels.program.joined import StagedLine, StagedPlace, StagedRows, StagingTime


def line_text(line: StagedLine) -> str:
    """The C++ initializer of a line."""
    apart = 0 if line.replicated else line.nbytes
    numbers = f"p{line.argument}, {line.step}, {line.nbytes}, {apart}, {line.slot}"
    return f"{{Moves::{line.moves.value}, {numbers}}}"


def staged_text(place: StagedPlace, t: str) -> str:
    """The C++ expression of a block's share in iteration `t`."""
    if place.replicated:
        return f"near.whole({place.slot}, {place.nbytes})"
    return f"near.line({place.slot}, {place.nbytes}, {t}{' + 1' * place.previous})"


def loop_text(
    staged: StagedRows, count: int, t: str, shared: int, calls: Sequence[Sequence[str]]
) -> list[str]:
    """The loop over `t` around `calls`, the statements of each part. `shared` bytes of shared
    memory belong to the parts; the lines follow."""
    ahead, behind = (
        staged.vector_count(moves) for moves in (StagingTime.AHEAD, StagingTime.BEHIND)
    )
    lines = [f"    {line_text(line)}," for line in staged.lines]
    body: list[str] = []
    for call in calls:
        body += [*(["__syncthreads();"] if body else []), *call]
    return [
        f"play<256, {shared}, {staged.blocks}, 1>(0, dynamic_shared, [&](const auto& own) {{",
        "  const Line lines[] = {",
        *lines,
        "  };",
        f"  Near<{ahead}, {behind}> near(dynamic_shared + {shared}, lines, own.x(), {count});",
        "  #pragma unroll 1",
        f"  for (int {t} = 0; {t} < {count}; {t}++) {{",
        f"    near.begin({t});",
        *(f"    {x}" for x in body),
        "  }",
        "  near.end(lines);",
        "});",
    ]
