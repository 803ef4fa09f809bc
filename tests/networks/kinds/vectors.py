"""Steps on vectors [n, f]."""

from __future__ import annotations

from tests.networks.network import Choices, Line, Shape, divisors, kind, need

WIDTHS = (4, 1, 3, 8, 5, 12, 16, 17, 33)


@kind(2, weight=9)
def linear(choose: Choices, x: Shape) -> Line:
    width, bias = choose.of(WIDTHS), not choose.of((False, False, True))
    return Line("{layer}({0})", f"nn.Linear({x[1]}, {width}, {bias})")


@kind(2, weight=2)
def norm_of_features(choose: Choices, x: Shape) -> Line:
    need(x[1] > 3)
    which = choose.of(("LayerNorm", "RMSNorm"))
    return Line("{layer}({0})", f"nn.{which}({x[1]}, 1e-5)")


@kind(2, weight=2)
def norm_of_batch(choose: Choices, x: Shape) -> Line:
    need(x[0] > 3)
    return Line("{layer}({0})", f"nn.BatchNorm1d({x[1]})")


@kind(2)
def glu(choose: Choices, x: Shape) -> Line:
    need(x[1] % 2 == 0)
    return Line("lib.glu({0}, 1)")


@kind(2, weight=1)
def unit_length(choose: Choices, x: Shape) -> Line:
    return Line("lib.normalize({0} + 0.1, 2.0, 1)")


@kind(2, 2, weight=1)
def bilinear(choose: Choices, x: Shape, y: Shape) -> Line:
    need(x[1] <= 9 and y[1] <= 9)
    return Line("{layer}({0}, {1})", f"nn.Bilinear({x[1]}, {y[1]}, {choose.of((3, 1, 5))})")


@kind(2)
def some_features(choose: Choices, x: Shape) -> Line:
    need(x[1] > 1)
    cut = choose.of(("1:", ":-1", "::2", f":{(x[1] + 1) // 2}", f"{x[1] // 2}:"))
    return Line(f"{{0}}[:, {cut}]")


@kind(2, weight=1)
def swapped_halves(choose: Choices, x: Shape) -> Line:
    half = x[1] // 2
    need(half > 0)
    return Line(f"lib.concat([{{0}}[:, {half}:], {{0}}[:, :{half}]], 1)")


@kind(2, weight=3)
def to_image(choose: Choices, x: Shape) -> Line:
    h = choose.of([d for d in divisors(x[1]) if d <= 8])
    w = choose.of([d for d in divisors(x[1] // h) if d <= 8])
    return Line(f"{{0}}.reshape({x[0]}, {x[1] // h // w}, {h}, {w})")


@kind(2)
def to_sequence_of_parts(choose: Choices, x: Shape) -> Line:
    t = choose.of([d for d in divisors(x[1]) if d <= 16][::-1])
    return Line(f"{{0}}.reshape({x[0]}, {t}, {x[1] // t})")


@kind(2, 2)
def outer(choose: Choices, x: Shape, y: Shape) -> Line:
    need(x[1] * y[1] <= 200)
    return Line("{0}[:, :, None] * {1}[:, None, :]")


@kind(2, weight=1)
def likeness(choose: Choices, x: Shape) -> Line:
    """Of every sample to every other: the batch is an axis that is contracted with."""
    return Line("lib.softmax(lib.matmul({0}, lib.swapaxes({0}, 0, 1)) * 0.1, -1)")


@kind(2, weight=1)
def across_the_batch(choose: Choices, x: Shape) -> Line:
    return Line(choose.of(("{0} - {0}.mean(0)", "lib.flip({0}, (0,))", "{0} * 0.5 + {0}[:1]",
                           "lib.softmax({0}, 0)")))  # fmt: skip
