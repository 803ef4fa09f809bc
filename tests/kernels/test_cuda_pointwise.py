"""Pointwise bodies as CUDA: parts of one launch, functors that they share, what may be in place."""

from __future__ import annotations

from typing import Any

import graphc
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import Fused
from tests.kernels.cuda_harness import TARGET, traced
from tests.sim.playing import assert_right_in_any_order


def momentum(rate: Any, *groups: Any) -> list[Any]:
    """The update of (weight, gradient, momentum) groups by one rate."""
    results = []
    for weight, gradient, speed in zip(groups[0::3], groups[1::3], groups[2::3], strict=True):
        now = 0.9 * speed + gradient
        results += [weight - rate * now, now]
    return results


def spec(*shape: int, dtype: str = "float32") -> Any:
    return graphc.spec(shape, dtype)


SHAPES = ((7, 9), (500,), (7, 9), (1,), (3, 2, 400))

NODES = [
    traced("update", momentum, spec(), *(spec(*s) for s in SHAPES for _ in range(3))),
    traced("counter", lambda n: n + 1, spec(dtype="int32")),
    traced("scaled", lambda x, s: graphc.exp(x * graphc.sqrt(s * s + 1.0)), spec(40, 7), spec()),
    traced("turned", lambda x: graphc.permute_dims(x, (2, 0, 1)) + 1.0, spec(5, 3, 70)),
    traced("rows", lambda x, y: x + graphc.reshape(y, (-1, 1)), spec(9, 40), spec(9)),
    traced("two_shapes", lambda x, y: (x * 2.0, graphc.tanh(y)), spec(9, 40), spec(6)),
    traced("large", lambda x, y: graphc.where(x < y, x * 2.0, y), spec(640, 512), spec(640, 512)),
    traced("large_odd", lambda x, y: graphc.where(x < y, x * 2.0, y), *[spec(641, 513)] * 2),
    traced("large_sum", lambda x, y: x + graphc.reshape(y, (-1, 1)), spec(641, 512), spec(641)),
    traced(
        "large_parts",
        lambda x, y, z: (x * 2.0, y * 2.0, graphc.exp(z) * z),
        spec(600, 600),
        spec(1025),
        spec(3, 1, 341),
    ),
    traced("large_constant", lambda: graphc.zeros((600, 600)) + 2.0),
    traced("nothing", lambda x: x * 2.0, spec(0, 4)),
]
BY_NAME = {n.op.kernel: n for n in NODES if isinstance(n.op, Fused)}


def kernel_of(name: str) -> Kernel:
    return lower(BY_NAME[name], TARGET)


def test_what_has_no_elements_is_no_part():
    both = traced("both", lambda x, y: (x + 1.0, y * 2.0), spec(3), spec(0, 2))
    kernel = lower(both, TARGET)
    assert "struct" not in kernel.source and [x.grid for x in kernel.launches] == [(1, 1, 1)]
    empty = traced("empty", lambda x, y: (x + 1.0, y * 2.0), spec(0), spec(0, 2))
    assert lower(empty, TARGET).launches == ()


def test_each_part_is_right_in_any_order_of_threads():
    assert_right_in_any_order(NODES, 1)


def test_parts_that_do_the_same_share_a_functor():
    kernel = kernel_of("update")
    assert len(kernel.launches) == 1
    # One for arrays and one for a single element, whose access has no index.
    assert kernel.source.count("struct Part") == 2
    assert kernel.source.count("part = {") == len(SHAPES)
    assert kernel.launches[0].grid == (1 + 2 + 1 + 1 + 10, 1, 1)


def test_weights_and_momenta_are_updated_in_place():
    kernel = kernel_of("update")
    for group in range(len(SHAPES)):
        weight, speed = 1 + 3 * group, 3 + 3 * group
        assert {(weight, 2 * group), (speed, 2 * group + 1)} <= set(kernel.inplace)
    assert not any(i == 0 for i, _ in kernel.inplace)


def test_what_is_the_same_for_all_elements_is_computed_once_per_thread():
    before, _, inside = kernel_of("scaled").source.partition("each(")
    assert "sqrt(" in before
    assert "sqrt(" not in inside


def test_a_single_element_in_place_is_read_by_the_thread_that_stores_it():
    before, _, inside = kernel_of("counter").source.partition("each(")
    assert kernel_of("counter").inplace == ((0, 0),)
    assert "load<" not in before
    assert "load<" in inside


def test_a_permuted_read_is_not_in_place_and_unit_strides_merge():
    assert kernel_of("turned").inplace == ()
    text = kernel_of("turned").source
    assert "const int i0 = i / 15;" in text
    assert "const int i1 = i % 15;" in text


def test_large_launches_load_four_elements_before_they_store_one():
    text = kernel_of("large_odd").source
    assert "each<4>(" in text
    loading, _, storing = text.partition("return Loads{")
    assert loading.count("load<") == 2
    assert "load<" not in storing


def test_an_empty_output_launches_nothing():
    assert kernel_of("nothing").launches == ()
