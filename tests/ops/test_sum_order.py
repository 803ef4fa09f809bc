"""Orders of sums: their text, and what the reference computes by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphc
from graphc.ir.sum_order import SumOrder
from graphc.ops.convolution import Conv2d, Conv2dDgrad, Conv2dWgrad
from graphc.ops.matmul import Matmul
from graphc.ops.reduction import Prod, Sum

GENERATOR = np.random.default_rng(0)
CONVOLUTION = ((2, 1), (1, 1), (1, 2), 2)


def floats(*shape: int) -> np.ndarray:
    return GENERATOR.standard_normal(shape).astype(np.float32)


IMAGES, FILTERS = floats(19, 4, 7, 8), floats(6, 2, 3, 3)
(PIXELS,) = Conv2d(*CONVOLUTION).reference(IMAGES, FILTERS)


@pytest.mark.parametrize(
    "text", ["k", "c/16,r,c,s", "3*n/16,p,q,n%16", "5*0.1/64,0.1%64", "n/16,p%4,n%16"]
)
def test_text_is_parsed_back(text):
    assert str(SumOrder.parse(text)) == text


@pytest.mark.parametrize("text", ["", "%16", "k/", "k/0x", "3*", "k,,c"])
def test_text_that_is_no_order(text):
    with pytest.raises(graphc.GraphError) as error:
        SumOrder.parse(text)
    assert str(error.value) == f"expected the order of a sum, such as 'c/16,r,c,s', got {text!r}"


def test_terms_of_blocks_and_lanes():
    order = SumOrder.parse("2*n/4,p,n%4")
    extents = {"n": 6, "p": 2}
    first, second = (
        [(lane, i["n"], i["p"]) for lane, i in order.terms(extents, p)] for p in (0, 1)
    )
    assert first == [(n, n, p) for p in (0, 1) for n in range(4)]
    assert second == [(n % 4, n, p) for p in (0, 1) for n in (4, 5)]


def test_terms_of_two_loops_with_lanes():
    order = SumOrder.parse("n/2,p%4,n%2")
    terms = [(lane, i["n"], i["p"]) for lane, i in order.terms({"n": 3, "p": 5})]
    assert order.lanes == 8
    first = [(p % 4 * 2 + n, n, p) for p in range(5) for n in range(2)]
    assert terms == first + [(p % 4 * 2, 2, p) for p in range(5)]


@pytest.mark.parametrize("order", ["k", "k/16,k", "k%16", "3*k/4,k%4"])
def test_matmul_in_order(order):
    a, b = floats(2, 3, 37), floats(37, 5)
    (y,), (plain,) = Matmul(order=order).evaluate(a, b), Matmul().evaluate(a, b)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, plain, rtol=1e-5, atol=1e-5)


def test_matmul_in_sequence_is_a_chain_of_multiply_adds():
    a, b = np.float32([[1, 3e-8, 1]]), np.float32([[1], [1], [-1]])
    assert Matmul(order="k").evaluate(a, b)[0].item() == 0.0  # 1 + 3e-8 is 1
    assert Matmul(order="k%4").evaluate(a, b)[0].item() == np.float32(3e-8)  # (1 - 1) + 3e-8


@pytest.mark.parametrize(
    ("op", "operands", "orders"),
    [
        (Conv2d(*CONVOLUTION), (IMAGES, FILTERS), ("c/16,r,c,s", "r,c,s", "c.r,s%8")),
        (Conv2dDgrad(*CONVOLUTION, (7, 8)), (PIXELS, FILTERS), ("k/16,r,k,s", "2*k,r,s")),
        (Conv2dWgrad(*CONVOLUTION, (3, 3)), (IMAGES, PIXELS), ("n,p,q", "2*n/16,p,q,n%16")),
    ],
    ids=["conv2d", "dgrad", "wgrad"],
)
def test_convolutions_in_order(op, operands, orders):
    (plain,) = op.evaluate(*operands)
    for order in orders:
        (y,) = replace(op, order=order).evaluate(*operands)
        assert y.shape == plain.shape and y.dtype == plain.dtype
        np.testing.assert_allclose(y, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [Sum, Prod])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_in_order(kind, keepdims):
    x = 1 + 0.1 * floats(3, 5, 7, 9)
    (plain,) = kind((0, 2, 3), keepdims).evaluate(x)
    (y,) = kind((0, 2, 3), keepdims, order="3*0,2.3%16").evaluate(x)
    assert y.shape == plain.shape and y.dtype == plain.dtype
    np.testing.assert_allclose(y, plain, rtol=1e-5)


def test_narrow_floats_are_added_in_float32():
    a, b = (floats(3, 40).astype(np.float16), floats(40, 2).astype(np.float16))
    (y,) = Matmul(order="k").evaluate(a, b)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, a.astype(np.float32) @ b, rtol=2e-3, atol=2e-3)
