"""Sums that passes write in other ways are one term."""

from __future__ import annotations

import pytest

from graphc.base.target import Target
from graphc.ir import Graph, Node, Type, Value
from graphc.meaning.check import check
from graphc.meaning.index import quotient, remainder
from graphc.meaning.terms import Terms
from graphc.ops.convolution import Conv2dDgrad
from graphc.passes.layout.split_strides import split_strides

STRIDED = [
    ((stride, 2), padding, taps, size)
    for stride in (1, 2)
    for padding, taps in ((0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (2, 3), (2, 5))
    for size in ((5, 5), (8, 8), (9, 6))
]


@pytest.mark.parametrize(("stride", "padding", "taps", "size"), STRIDED)
def test_dense_parts_of_a_strided_gradient_are_proved(
    stride: tuple[int, int], padding: int, taps: int, size: tuple[int, int]
) -> None:
    extents = [(n + 2 * padding - taps) // step + 1 for n, step in zip(size, stride, strict=True)]
    op = Conv2dDgrad(
        size=size, stride=stride, padding=(padding, padding), dilation=(1, 1), groups=1
    )
    dy, weight = Value("dy", Type((3, 4, *extents))), Value("w", Type((4, 2, taps, taps)))
    dx = Value("dx", op.infer(dy.type, weight.type)[0])
    whole = Graph("whole", (dy, weight), (), (Node(op, (dy, weight), (dx,)),), (dx,))
    parts = split_strides(whole, Target("cpu", lanes=16))
    assert parts != whole
    assert check({"whole": whole, "split_strides": parts}).proved


def test_a_variable_read_by_its_digits_is_those_digits_whatever_is_made_of_them() -> None:
    terms = Terms()
    source = terms.term("input", "x", (3, 2), "f32")
    one, high, low = terms.fresh(9), terms.fresh(3), terms.fresh(3)
    digits = [quotient(one, 3), quotient(remainder(one, 3), 2)]
    whole = terms.fold("sum", [one], terms.at(source, digits), "f32")
    parts = terms.fold("sum", [high, low], terms.at(source, [high, quotient(low, 2)]), "f32")
    assert whole == parts


def test_a_condition_on_what_is_summed_over_is_its_extent() -> None:
    terms = Terms()
    source, zero = terms.term("input", "x", (5,), "f32"), terms.number(0, "f32")
    long, short = terms.fresh(9), terms.fresh(3)
    guarded = terms.guard([(long, 2, 5, 1)], terms.at(source, [long]), zero)
    moved = terms.at(source, [(2, short[1])])
    assert terms.fold("sum", [long], guarded, "f32") == terms.fold("sum", [short], moved, "f32")


def test_a_sum_that_nothing_reaches_is_zero_there() -> None:
    """As of the pixels behind the last window."""
    terms = Terms()
    source, zero = terms.term("input", "x", (1, 2), "f32"), terms.number(0, "f32")
    place, tap, near = terms.fresh(5), terms.fresh(2), terms.fresh(3)
    met = (0, tuple(sorted((*place[1], *((a, -1) for a, _ in tap[1])))))
    body = terms.guard([(met, 0, 1, 1)], terms.at(source, [met, tap]), zero)
    assert terms.is_number(
        terms.moved(terms.fold("sum", [tap], body, "f32"), (place,), ((2, near[1]),)), 0
    )
