"""One matrix shared by threads: phases of panels, which one thread computes, and of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphc.kernels.program.factor import Factor

LEAST_ROWS = 160
"""Smaller matrices take less time than threads need to hand over panels."""
PANEL = 32
"""Rows or columns of a panel, as in kernels/factorizations.h."""
PARTS = 8
"""Chunks of a phase that has no panels."""
COLUMNS = 32
"""Columns of a chunk of the rest of an LU factorization."""


def is_shared(factor: Factor) -> bool:
    """Whether threads share the only matrix."""
    rows = factor.inner.inputs[0].type.shape[-1]
    return factor.count == 1 and factor.inner.op.name in PHASES and rows >= LEAST_ROWS


def shared_phases(factor: Factor) -> tuple[list[str], tuple[int, ...]]:
    """Return the statements of a chunk, of `phase` and `chunk`, and the chunks of each phase.

    Phase 0 loads, odd ones compute a panel, even ones what is behind it, and the last one stores.
    """
    n = factor.inner.inputs[0].type.shape[-1]
    panels = -(-n // PANEL)
    loads, panel, rest, stores, chunks = PHASES[factor.inner.op.name](factor)
    lines = [
        f"const long first = (phase - 1) / 2 * {PANEL}, last = least_of(first + {PANEL}, {n});",
        f"const long begin = chunk * {n}L / {PARTS}, end = (chunk + 1) * {n}L / {PARTS};",
        "if (phase == 0) {",
        *loads,
        f"}} else if (phase == {2 * panels + 1}) {{",
        *stores,
        "} else if (phase % 2) {",
        *panel,
        "} else {",
        *rest,
        "}",
    ]
    return lines, (PARTS, *(1, chunks) * panels, PARTS)


Phases = tuple[list[str], list[str], list[str], list[str], int]
"""Statements that load rows, compute a panel and the rest, and store rows; chunks of the rest."""


def _cholesky(factor: Factor) -> Phases:
    n, pitch = factor.inner.inputs[0].type.shape[-1], factor.pitch
    rows = f"load_transposed(team, end - begin, {n}, {pitch}, work + begin * {pitch}, {pitch}, "
    return (
        [f"{rows}[&](long i, long k) {{ return a(k, begin + i); }});"],
        [f"cholesky_panel(team, {n}, work, {pitch}, first, last);"],
        [f"cholesky_rest(team, {n}, work, {pitch}, first, last, chunk, {PARTS});"],
        [f"cholesky_end(team, {n}, work, {pitch}, y, begin, end);"],
        PARTS,
    )


def _lu(factor: Factor) -> Phases:
    n, pitch = factor.inner.inputs[0].type.shape[-1], factor.pitch
    rows = f"load(team, end - begin, {n}, {{end}}, {{to}} + begin * {{pitch}}, {{pitch}}, "
    rest = f"lu_rest(team, {n}, work, {pitch}, first, last, pivots, "
    return (
        [
            rows.format(end=pitch, to="work", pitch=pitch)
            + "[&](long i, long k) { return a(begin + i, k); });"
        ],
        [f"lu_panel(team, {n}, work, {pitch}, first, last, pivots, columns);"],
        [
            f"const long left = chunk * {COLUMNS}, right = least_of(left + {COLUMNS}, {pitch});",
            f"if (left < first) {rest}left, least_of(right, first));",
            f"if (right > last) {rest}left < last ? last : left, right);",
        ],
        [
            rows.format(end=n, to="packed", pitch=n)
            + f"[&](long i, long k) {{ return work[(begin + i) * {pitch} + k]; }});",
            f"if (chunk == 0) lu_end(team, {n}, pivots, rows, sign);",
        ],
        -(-pitch // COLUMNS),
    )


PHASES: Mapping[str, Callable[[Factor], Phases]] = {"cholesky": _cholesky, "lu": _lu}
"""What prints the phases of each op that threads share."""
