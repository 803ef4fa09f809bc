"""Steps on images [n, c, h, w]."""

from __future__ import annotations

from tests.networks.network import Choices, Line, Shape, divisors, kind, need

CHANNELS = (4, 1, 3, 5, 8, 7, 16, 17)


def _span(extent: int, size: int, stride: int, padding: int, dilation: int = 1) -> int:
    """How many places a window has along an axis."""
    return (extent + 2 * padding - dilation * (size - 1) - 1) // stride + 1


@kind(4, weight=9)
def conv(choose: Choices, x: Shape) -> Line:
    _, c, h, w = x
    k = choose.of(CHANNELS)
    r, s = choose.of(((3, 3), (1, 1), (2, 2), (3, 1), (1, 4), (5, 5), (2, 3)))
    padding = choose.of((1, 0, (1, 0), 2))
    stride = choose.of((1, 1, 2, (1, 2), 3))
    dilation = choose.of((1, 1, 1, 2))
    groups = choose.of([g for g in divisors(c) if k % g == 0])
    bias = not choose.of((False, False, True))
    mode = choose.of(("zeros",) * 8 + ("reflect", "circular", "replicate"))
    pads = padding if isinstance(padding, tuple) else (padding, padding)
    steps = stride if isinstance(stride, tuple) else (stride, stride)
    need(
        min(_span(h, r, steps[0], pads[0], dilation), _span(w, s, steps[1], pads[1], dilation)) > 0
    )
    need(mode == "zeros" or max(pads) < min(h, w))
    text = f"{c}, {k}, {(r, s)}, {stride}, {padding}, {dilation}, {groups}, {bias}, {mode!r}"
    return Line("{layer}({0})", f"nn.Conv2d({text})")


@kind(4, weight=3)
def depthwise(choose: Choices, x: Shape) -> Line:
    _, c, h, w = x
    size, padding = choose.of(((3, 1), (3, 0), (2, 0), (5, 2)))
    stride, times = choose.of((1, 2)), choose.of((1, 1, 2))
    need(min(_span(e, size, stride, padding) for e in (h, w)) > 0)
    return Line(
        "{layer}({0})", f"nn.Conv2d({c}, {c * times}, {size}, {stride}, {padding}, groups={c})"
    )


@kind(4, weight=3)
def conv_transpose(choose: Choices, x: Shape) -> Line:
    _, c, h, w = x
    k, size = choose.of(CHANNELS), choose.of((2, 3, 4, 1))
    stride, padding = choose.of((2, 1, 3)), choose.of((0, 1))
    extra = choose.of(range(stride))
    groups = choose.of([g for g in divisors(c) if k % g == 0])
    need(max(h, w) <= 9 and min(h, w) * stride + size - 2 * padding - stride > 0)
    text = f"{c}, {k}, {size}, {stride}, {padding}, {extra}, {groups}"
    return Line("{layer}({0})", f"nn.ConvTranspose2d({text})")


@kind(4, weight=4)
def batch_norm(choose: Choices, x: Shape) -> Line:
    need(x[0] * x[2] * x[3] > 3)
    affine = not choose.of((False, False, False, True))
    return Line("{layer}({0})", f"nn.BatchNorm2d({x[1]}, affine={affine})")


@kind(4)
def group_norm(choose: Choices, x: Shape) -> Line:
    groups = choose.of(divisors(x[1]))
    need(x[1] // groups * x[2] * x[3] > 3)
    return Line("{layer}({0})", f"nn.GroupNorm({groups}, {x[1]})")


@kind(4, weight=1)
def instance_norm(choose: Choices, x: Shape) -> Line:
    need(x[2] * x[3] > 3)
    return Line("{layer}({0})", f"nn.InstanceNorm2d({x[1]}, affine={choose.flag()})")


@kind(4, weight=1)
def channel_norm(choose: Choices, x: Shape) -> Line:
    need(x[1] > 2)
    normed = "{layer}(lib.permute_dims({0}, (0, 2, 3, 1)))"
    return Line(f"lib.permute_dims({normed}, (0, 3, 1, 2))", f"nn.LayerNorm({x[1]})")


@kind(4, weight=5)
def pool(choose: Choices, x: Shape) -> Line:
    _, _, h, w = x
    which = choose.of(("MaxPool2d", "AvgPool2d"))
    size, stride = choose.of(((2, 2), (3, 2), (2, 1), (3, 3), ((2, 1), (2, 1)), (3, 1)))
    padding = choose.of((0, 0, 1))
    ceil = choose.of((False, False, False, True))
    r, s = size if isinstance(size, tuple) else (size, size)
    need(min(h + 2 * padding - r, w + 2 * padding - s) >= 0 and 2 * padding <= min(r, s))
    return Line(f"nn.{which}({size}, {stride}, {padding}, ceil_mode={ceil})({{0}})")


@kind(4)
def adaptive_pool(choose: Choices, x: Shape) -> Line:
    _, _, h, w = x
    which = choose.of(("avg", "max"))
    p, q = choose.of(divisors(h)), choose.of(divisors(w))
    if choose.of((False, False, True)):
        p = q = min(3, h, w)
    return Line(f"lib.adaptive_{which}_pool2d({{0}}, {(p, q)})")


@kind(4, weight=1)
def upsample(choose: Choices, x: Shape) -> Line:
    need(max(x[2:]) <= 8)
    how = choose.of(("mode='nearest'", "mode='bilinear'", "mode='bilinear', align_corners=True"))
    size = choose.of(("scale_factor=2", f"size={(x[2] + 3, x[3] + 1)}"))
    return Line(f"nn.Upsample({size}, {how})({{0}})")


@kind(4, weight=1)
def shuffle_pixels(choose: Choices, x: Shape) -> Line:
    if choose.flag():
        need(x[2] % 2 == 0 and x[3] % 2 == 0)
        return Line("lib.pixel_unshuffle({0}, 2)")
    need(x[1] % 4 == 0)
    return Line("lib.pixel_shuffle({0}, 2)")


@kind(4)
def crop(choose: Choices, x: Shape) -> Line:
    need(min(x[2:]) > 2)
    cut = choose.of(("1:, 1:", ":-1, 1:-1", "::2, ::2", "1::2, :", ":, :3", "1:, ::3"))
    return Line(f"{{0}}[:, :, {cut}]")


@kind(4)
def some_channels(choose: Choices, x: Shape) -> Line:
    need(x[1] > 1)
    return Line(f"{{0}}[:, {choose.of(('1:', ':-1', '::2', ':1', '1::2'))}]")


@kind(4, weight=1)
def pad(choose: Choices, x: Shape) -> Line:
    need(min(x[2:]) > 2)
    which = choose.of(("ZeroPad2d(1)", "ConstantPad2d((1, 0, 2, 1), 0.5)", "ReflectionPad2d(1)",
                       "ReplicationPad2d((0, 2, 1, 0))"))  # fmt: skip
    return Line(f"nn.{which}({{0}})")


@kind(4)
def squeeze_and_excite(choose: Choices, x: Shape) -> Line:
    gate = choose.of(("sigmoid", "tanh"))
    return Line(
        f"{{0}} * lib.{gate}({{layer}}({{0}}.mean((2, 3))))[:, :, None, None]",
        f"nn.Linear({x[1]}, {x[1]})",
    )


@kind(4, weight=1)
def gate_of_places(choose: Choices, x: Shape) -> Line:
    return Line("{0} * lib.sigmoid({layer}({0}))", f"nn.Conv2d({x[1]}, 1, 1)")


@kind(4, weight=1)
def turn(choose: Choices, x: Shape) -> Line:
    how = ("lib.permute_dims({0}, (0, 1, 3, 2))", "lib.flip({0}, (3,))", "lib.roll({0}, 1, 2)",
           "lib.permute_dims({0}, (0, 2, 1, 3))")  # fmt: skip
    return Line(choose.of(how))


@kind(4, weight=5)
def to_vector(choose: Choices, x: Shape) -> Line:
    how = ("lib.flatten({0}, 1)", "{0}.mean((2, 3))", "{0}.sum(3).mean(1)",
           "lib.flatten(lib.permute_dims({0}, (0, 2, 3, 1)), 1)")  # fmt: skip
    return Line(choose.of(how))


@kind(4, weight=3)
def to_sequence(choose: Choices, x: Shape) -> Line:
    how = ("lib.swapaxes(lib.flatten({0}, 2), 1, 2)", "lib.flatten({0}, 2)", "{0}.mean(2)",
           "lib.flatten(lib.permute_dims({0}, (0, 2, 1, 3)), 2)")  # fmt: skip
    return Line(choose.of(how))
