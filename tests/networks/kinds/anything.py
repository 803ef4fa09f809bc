"""Steps on values of any number of axes: 0 in `kind` says so."""

from __future__ import annotations

from tests.networks.network import Choices, Line, Shape, kind, need

SMOOTH = ("tanh", "sigmoid", "silu", "gelu", "softplus", "elu", "mish", "selu", "softsign")
KINKED = ("relu", "leaky_relu", "abs", "hardtanh", "relu6", "hardswish", "celu")


@kind(0, weight=12)
def activation(choose: Choices, x: Shape) -> Line:
    return Line(f"lib.{choose.of(('relu', 'relu', *SMOOTH, *KINKED))}({{0}})")


@kind(0, weight=2)
def softmax(choose: Choices, x: Shape) -> Line:
    which = choose.of(("softmax", "log_softmax"))
    return Line(f"lib.{which}({{0}}, {choose.of(range(1, len(x)))})")


@kind(0, weight=2)
def scaled(choose: Choices, x: Shape) -> Line:
    return Line(choose.of(("{0} * 0.5 + 1.0", "1.0 - {0}", "{0} / 3.0", "lib.square({0}) * 0.3",
                           "lib.exp({0} * -0.1)", "lib.clip({0}, -1.0, 0.7)",
                           "lib.where({0} > 0, {0}, lib.exp(lib.clip({0}, -9.0, 0.0)))"
                           )))  # fmt: skip


@kind(0, weight=2)
def parameters(choose: Choices, x: Shape) -> Line:
    """A scale and a shift of the user's own."""
    shape = choose.of((x[1:], (*x[1:2], *(1 for _ in x[2:])), x[-1:]))
    return Line("{layer}({0})", f"nn.Scale({shape})")


@kind(0, weight=1)
def standardised(choose: Choices, x: Shape) -> Line:
    axes = choose.of((tuple(range(1, len(x))), (1,), (-1,)))
    count = 1
    for axis in axes:
        count *= x[axis]
    need(count > 3)
    return Line(
        f"({{0}} - {{0}}.mean({axes}, keepdims=True))"
        f" / lib.sqrt(lib.mean(lib.square({{0}}), {axes}, keepdims=True) + 0.1)"
    )


@kind(0, weight=1)
def stopped(choose: Choices, x: Shape) -> Line:
    return Line("{0} * lib.stop_gradient(lib.sigmoid({0}))")


@kind(0, weight=1)
def prelu(choose: Choices, x: Shape) -> Line:
    return Line("{layer}({0})", f"nn.PReLU({choose.of((1, x[1]))})")


@kind(0, weight=1)
def through_one_sample(choose: Choices, x: Shape) -> Line:
    """Samples cut and joined along the batch."""
    need(x[0] > 1)
    return Line(choose.of(("lib.concat([{0}[1:], {0}[:1]], 0)", "{0} + {0}[-1:]",
                           "lib.concat([{0}[::2], {0}[1::2]], 0)")))  # fmt: skip
