"""What ops mean where random samples do not look: NaN, ties, borders, known answers."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import ops
from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ops.random import philox

NAN, INF = np.float32(np.nan), np.float32(np.inf)
ONES = ((1, 1), (0, 0))


def f32(*elements: float) -> np.ndarray:
    return np.array(elements, np.float32)


def only(op: ops.Op, *inputs: np.ndarray) -> np.ndarray:
    (result,) = op.reference(*inputs)
    return result


@pytest.mark.parametrize("op", [ops.Maximum(), ops.Minimum()])
def test_maximum_and_minimum_propagate_nan_from_either_side(op: ops.Op) -> None:
    assert np.isnan(only(op, f32(NAN, 1, NAN), f32(1, NAN, NAN))).all()


def test_relu_keeps_nan_and_its_gradient_passes_there() -> None:
    y = only(ops.Relu(), f32(-1, 0, 2, NAN, INF, -INF))
    np.testing.assert_array_equal(y, f32(0, 0, 2, NAN, INF, 0))
    d = only(ops.ReluGrad(), f32(1, 2, 3, 4, 5, 6), y)
    np.testing.assert_array_equal(d, f32(0, 0, 3, 4, 5, 0))


def test_sigmoid_and_tanh_do_not_overflow() -> None:
    x = f32(-1000, -90, 0, 90, 1000, NAN)
    np.testing.assert_allclose(only(ops.Sigmoid(), x), f32(0, 0, 0.5, 1, 1, NAN), atol=1e-38)
    np.testing.assert_allclose(only(ops.Tanh(), x), f32(-1, -1, 0, 1, 1, NAN))


def test_integer_division_by_zero_gives_zero() -> None:
    a, b = np.array([5, -5, 0], np.int32), np.zeros(3, np.int32)
    np.testing.assert_array_equal(only(ops.FloorDivide(), a, b), [0, 0, 0])
    np.testing.assert_array_equal(only(ops.Remainder(), a, b), [0, 0, 0])


def test_floor_division_and_remainder_follow_the_divisors_sign() -> None:
    a, b = f32(7, -7, 7, -7), f32(2, 2, -2, -2)
    np.testing.assert_array_equal(only(ops.FloorDivide(), a, b), f32(3, -4, -4, 3))
    np.testing.assert_array_equal(only(ops.Remainder(), a, b), f32(1, 1, -1, -1))


def test_a_cast_to_integer_cuts_towards_zero() -> None:
    np.testing.assert_array_equal(only(ops.Cast("i32"), f32(-1.9, -0.5, 1.9)), [-1, 0, 1])


def test_reductions_over_nothing_give_zero_and_extremes_propagate_nan() -> None:
    assert only(ops.Sum((0,), False), np.zeros((0,), np.float32)) == 0
    assert np.isnan(only(ops.Max((0,), False), f32(1, NAN, 3)))
    assert np.isnan(only(ops.Min((0,), False), f32(1, NAN, 3)))


def test_max_pooling_takes_the_first_of_equal_elements_and_propagates_nan() -> None:
    x = np.array([[3, 3, 1, NAN], [2, 3, NAN, 5]], np.float32).reshape(1, 1, 2, 4)
    y, index = ops.MaxPool2d((2, 2), (2, 2), (0, 0)).reference(x)
    np.testing.assert_array_equal(y.ravel(), f32(3, NAN))
    np.testing.assert_array_equal(index.ravel(), [0, 1])
    assert index.dtype == np.uint8


def test_max_pooling_never_chooses_padding() -> None:
    x = np.full((1, 1, 2, 2), -np.inf, np.float32)
    y, index = ops.MaxPool2d((2, 2), (2, 2), (1, 1)).reference(x)
    assert np.isneginf(y).all()
    np.testing.assert_array_equal(index.ravel(), [3, 2, 1, 0])


def test_a_large_pooling_window_numbers_its_places_in_32_bits() -> None:
    op = ops.MaxPool2d((17, 16), (1, 1), (0, 0))
    assert [str(t) for t in op.infer(Type((1, 1, 17, 16)))] == ["f32[1,1,1,1]", "i32[1,1,1,1]"]
    x = np.zeros((1, 1, 17, 16), np.float32)
    x[0, 0, 16, 15] = 1
    assert op.reference(x)[1].item() == 17 * 16 - 1


def test_taking_out_of_range_gives_zero_and_its_gradient_drops_it() -> None:
    table, places = f32(1, 2, 3), np.array([2, -1, 3, 0], np.int32)
    np.testing.assert_array_equal(only(ops.Take(0), table, places), f32(3, 0, 0, 1))
    d = only(ops.TakeGrad(0, 3), places, f32(1, 10, 100, 1000))
    np.testing.assert_array_equal(d, f32(1000, 0, 1))


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (0x00000000, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (0xFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_philox_gives_its_authors_known_answers(word: int, answer: tuple[int, ...]) -> None:
    counter = (np.full(1, word, np.uint32),) * 4
    assert tuple(int(w[0]) for w in philox(counter, (word, word))) == answer


def test_philox_depends_on_seed_number_and_step_but_not_on_the_shape() -> None:
    def draw(seed: int, number: int, step: int, shape: tuple[int, ...] = (64,)) -> np.ndarray:
        return only(ops.PhiloxUniform(seed, number, shape), np.int32(step).reshape(()))

    first = draw(1, 2, 3)
    assert first.dtype == np.float32 and first.min() >= 0 and first.max() < 1
    np.testing.assert_array_equal(draw(1, 2, 3, (4, 16)).ravel(), first)
    parts = [only(ops.PhiloxUniform(1, 2, (64,), n), np.int32(3).reshape(())) for n in (1, 2, 3)]
    for other in (draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4), draw(1, 2, -3), *parts):
        assert (other != first).sum() > 60
    assert (parts[0] != parts[1]).sum() > 60 < (parts[1] != parts[2]).sum()


def test_philox_is_uniform() -> None:
    u = only(ops.PhiloxUniform(0, 0, (100_000,)), np.int32(0).reshape(()))
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    # Chi-squared with 19 degrees of freedom is above 43.8 once in a thousand seeds.
    assert np.sum((counts - 5000) ** 2 / 5000) < 43.8


def test_constants_are_equal_by_contents_dtype_and_shape() -> None:
    a = ops.Constant.of(f32(1, 2))
    assert a == ops.Constant.of(f32(1, 2)) and hash(a) == hash(ops.Constant.of(f32(1, 2)))
    assert a != ops.Constant.of(f32(1, 3))
    assert a != ops.Constant.of(np.array([1, 2], np.float64))
    assert a != ops.Constant.of(f32(1, 2).reshape(2, 1))
    assert ops.Constant.of(NAN) == ops.Constant.of(NAN)
    assert ops.Constant.of(np.float32(0.0)) != ops.Constant.of(np.float32(-0.0))


def test_a_constant_keeps_its_own_read_only_copy() -> None:
    source = f32(1, 2)
    op = ops.Constant.of(source)
    source[0] = 9
    np.testing.assert_array_equal(op.array, f32(1, 2))
    with pytest.raises(ValueError, match="read-only"):
        op.array[0] = 5


def test_a_constant_known_by_digest_alone_says_so() -> None:
    op = ops.Constant(ops.Elements("f32", (3,), "abcd"))
    assert op.infer() == (Type((3,)),)
    with pytest.raises(GraphError) as error:
        _ = op.array
    assert str(error.value) == "constant: the elements of f32[3] abcd are not known"


CONV = ((1, 1), (0, 0), (1, 1))


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        (
            ops.Add(),
            (Type((2, 3)), Type((2,))),
            "add: shapes do not broadcast: f32[2,3] and f32[2]",
        ),
        (
            ops.Add(),
            (Type((2,)), Type((2,), "i32")),
            "add: expected one dtype, got f32[2] and i32[2]",
        ),
        (ops.Exp(), (Type((2,), "i32"),), "exp: expected floats, got i32[2]"),
        (
            ops.Multiply(),
            (Type((2,), "bool"),) * 2,
            "multiply: expected numbers, got bool[2] and bool[2]",
        ),
        (ops.LogicalNot(), (Type((2,)),), "logical_not: expected booleans, got f32[2]"),
        (
            ops.Select(),
            (Type((2,)),) * 3,
            "where: expected a condition of dtype bool, got f32[2]",
        ),
        (ops.Sum((0,)), (Type((2,), "bool"),), "sum: expected numbers, got bool[2]"),
        (ops.Max((1,)), (Type((2, 0)),), "max: no elements along axes (1,) of f32[2,0]"),
        (
            ops.Reshape((4,)),
            (Type((2, 3)),),
            "reshape: f32[2,3] has 6 elements, shape [4] has 4",
        ),
        (
            ops.BroadcastTo((2, 3)),
            (Type((2,)),),
            "broadcast_to: f32[2] does not broadcast to [2, 3]",
        ),
        (
            ops.BroadcastTo((3,)),
            (Type((1, 3)),),
            "broadcast_to: f32[1,3] does not broadcast to [3]",
        ),
        (
            ops.Concat(1),
            (Type((2, 3)), Type((3, 3))),
            "concat: f32[2,3] and f32[3,3] differ in more than axis 1",
        ),
        (
            ops.Matmul(),
            (Type((2, 3)), Type((4, 5))),
            "matmul: f32[2,3] and f32[4,5] have no common inner extent",
        ),
        (
            ops.Matmul(),
            (Type((2, 3, 4)), Type((5, 4, 5))),
            "matmul: leading axes of f32[2,3,4] and f32[5,4,5] do not broadcast",
        ),
        (
            ops.Conv2d(*CONV, 1),
            (Type((64, 1, 28, 28)), Type((20, 3, 5, 5))),
            "conv2d: x f32[64,1,28,28] has 1 channels, weight f32[20,3,5,5] expects 3",
        ),
        (
            ops.Conv2d(*CONV, 2),
            (Type((1, 4, 8, 8)), Type((6, 4, 3, 3))),
            "conv2d: x f32[1,4,8,8] has 4 channels, weight f32[6,4,3,3] expects 8 in 2 groups",
        ),
        (
            ops.Conv2d(*CONV, 2),
            (Type((1, 4, 8, 8)), Type((5, 2, 3, 3))),
            "conv2d: weight f32[5,2,3,3] has 5 output channels, which 2 groups do not divide",
        ),
        (
            ops.Conv2d(*CONV, 1),
            (Type((4, 8, 8)), Type((5, 4, 3, 3))),
            "conv2d: x f32[4,8,8] and weight f32[5,4,3,3] must have 4 axes each",
        ),
        (
            ops.Conv2d(*CONV, 1),
            (Type((1, 2, 4, 4)), Type((5, 2, 5, 3))),
            "conv2d: x f32[1,2,4,4] with padding (0, 0) is smaller than weight f32[5,2,5,3]",
        ),
        (
            ops.MaxPool2d((2, 2), *ONES),
            (Type((3, 4, 4)),),
            "max_pool2d: expected x of 4 axes [n, c, h, w], got f32[3,4,4]",
        ),
        (
            ops.MaxPool2d((2, 2), (1, 1), (2, 0)),
            (Type((1, 1, 4, 4)),),
            "max_pool2d: padding (2, 0) is more than half of kernel_size (2, 2)",
        ),
        (
            ops.AvgPool2d((5, 2), *ONES, True),
            (Type((1, 1, 4, 4)),),
            "avg_pool2d: x f32[1,1,4,4] with padding (0, 0) is smaller than kernel_size (5, 2)",
        ),
        (
            ops.Take(0),
            (Type((4,)), Type((2,), "u8")),
            "take: expected i32 or i64, got f32[4] and u8[2]",
        ),
        (
            ops.PhiloxUniform(0, 0, (2,)),
            (Type((), "i64"),),
            "philox_uniform: expected a counter i32[], got i64[]",
        ),
        (
            ops.PhiloxUniform(0, 0, (2,), 4),
            (Type((), "i32"),),
            "philox_uniform: part expected 0 to 3, got 4",
        ),
    ],
)
def test_wrong_inputs_are_named(op: ops.Op, inputs: tuple[Type, ...], message: str) -> None:
    with pytest.raises(GraphError) as error:
        op.infer(*inputs)
    assert str(error.value) == message


def test_an_op_without_a_gradient_says_so() -> None:
    with pytest.raises(GraphError) as error:
        ops.Iota((3,), 0).grad(None, (), (), ())
    assert str(error.value) == "iota has no gradient"
