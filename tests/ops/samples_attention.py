"""Samples of attention and of its gradient: masks of all kinds, shared heads, dropout, extents that
leave rests of registers, rows and tiles."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir import Type
from graphc.ops import Attention, AttentionGrad
from tests.ops.sample import Sample, f32, of


@dataclass(frozen=True)
class _Case:
    """Extents n, h, g, t, u, e, d of an attention, and what else there is to it."""

    extents: tuple[int, ...]
    causal: bool = False
    mask: Type | None = None
    dropout: bool = False

    def samples(self) -> list[Sample]:
        n, h, g, t, u, e, d = self.extents
        settings = (self.causal, 0.37, *((0.3, 7, 2) if self.dropout else ()))
        q, k, v = f32(n, h, t, e), f32(n, g, u, e), f32(n, g, u, d)
        y, logs = Attention(self.causal, 0.37).infer(q, k, v)
        more = [] if self.mask is None else [self.mask]
        ranges = [(-2.0, 2.0)] * (3 + len(more))
        if self.dropout:
            more, ranges = [*more, of("i32")], [*ranges, (0.0, 9.0)]
        gradient = (q, k, v, y, logs, logs, *more)
        return [
            Sample(Attention(*settings), (q, k, v, *more), tuple(ranges)),
            Sample(AttentionGrad(*settings), gradient, ((-2.0, 2.0),) * 3 + tuple(ranges)),
        ]


_CASES = (
    _Case((2, 3, 3, 5, 7, 4, 6)),
    _Case((1, 1, 1, 1, 1, 1, 1)),
    _Case((1, 4, 2, 33, 33, 17, 5), causal=True),
    _Case((2, 2, 1, 9, 70, 8, 16), mask=f32(2, 1, 1, 70)),
    _Case((1, 2, 2, 67, 40, 3, 18), mask=of("bool", 1, 2, 67, 40)),
    _Case((2, 2, 2, 6, 13, 5, 5), mask=of("bool", 2, 1, 1, 13), dropout=True),
    _Case((1, 4, 1, 20, 20, 16, 16), causal=True, dropout=True),
)
ATTENTIONS: list[Sample] = [sample for case in _CASES for sample in case.samples()]
