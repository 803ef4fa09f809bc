"""Steps that join values: skips, concats, gates, states."""

from __future__ import annotations

from tests.networks.network import Choices, Line, Shape, kind, need

PAIRS = ("{0} + {1}", "{0} * {1}", "{0} - {1}", "lib.maximum({0}, {1})", "{0} + 0.3 * {1}",
         "lib.where({0} > {1}, {0}, 0.5 * {1})", "{0} * lib.sigmoid({1})")  # fmt: skip


@kind(0, 0, weight=12)
def pair(choose: Choices, x: Shape, y: Shape) -> Line:
    need(x == y)
    return Line(choose.of(PAIRS))


@kind(0, 0, weight=8)
def concat(choose: Choices, x: Shape, y: Shape) -> Line:
    need(len(x) == len(y))
    different = [axis for axis, (a, b) in enumerate(zip(x, y, strict=True)) if a != b]
    need(len(different) < 2 and 0 not in different)
    axis = different[0] if different else choose.of(range(1, len(x)))
    return Line(f"lib.concat([{{0}}, {{1}}], {axis})")


@kind(4, 2, weight=3)
def channel_scale(choose: Choices, x: Shape, v: Shape) -> Line:
    how = choose.of(("{0} * lib.sigmoid({layer}({1}))", "{0} + {layer}({1})"))
    return Line(how + "[:, :, None, None]", f"nn.Linear({v[1]}, {x[1]})")


@kind(3, 2, weight=3)
def shift_of_all_times(choose: Choices, x: Shape, v: Shape) -> Line:
    return Line("{0} + {layer}({1})[:, None]", f"nn.Linear({v[1]}, {x[2]})")


@kind(3, 2, weight=2)
def from_state(choose: Choices, x: Shape, v: Shape) -> Line:
    """A recurrent layer whose first state is another value."""
    need(x[1] <= 20 and v[1] <= 17)
    which = choose.of(("GRU", "RNN"))
    return Line("{layer}({0}, {1}[None])[0]", f"nn.{which}({x[2]}, {v[1]}, batch_first=True)")


@kind(3, 3, weight=3)
def attend(choose: Choices, q: Shape, k: Shape) -> Line:
    need(q[2] == k[2] and q[1] * k[1] <= 400)
    causal = choose.flag() and q[1] == k[1]
    return Line(f"lib.scaled_dot_product_attention({{0}}, {{1}}, {{1}}, is_causal={causal})")


@kind(3, 3, weight=1)
def product(choose: Choices, x: Shape, y: Shape) -> Line:
    need(x[1] * y[1] <= 400)
    if x[2] == y[2]:
        return Line("lib.matmul({0}, lib.swapaxes({1}, 1, 2)) * 0.3")
    need(x[2] == y[1])
    return Line("lib.matmul({0}, {1}) * 0.3")


@kind(4, 4, weight=2)
def meet(choose: Choices, x: Shape, y: Shape) -> Line:
    """A skip between images of two sizes, brought to the smaller."""
    h, w = min(x[2], y[2]), min(x[3], y[3])
    need(x != y)
    return Line(f"lib.concat([{{0}}[:, :, :{h}, :{w}], {{1}}[:, :, :{h}, :{w}]], 1)")


@kind(2, 2, 2, weight=1)
def stacked(choose: Choices, x: Shape, y: Shape, z: Shape) -> Line:
    need(x == y == z)
    return Line(f"lib.stack([{{0}}, {{1}}, {{2}}], {choose.of((1, 2))})")
