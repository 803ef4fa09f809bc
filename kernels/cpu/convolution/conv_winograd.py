"""Lower 3 x 3 convolutions and their data gradients by Winograd's algorithm, where it is permitted
(`precision="winograd"`) and estimated to beat the direct sum.

It needs fewer products per output, but transforms of weight, input and output, and has a larger
error: the transforms scale magnitudes up before they cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.kernels.cpu.contract.epilogue import tile_epilogue
from graphc.kernels.cpu.contract.index_text import integers, longs
from graphc.kernels.cpu.contract.kernel_text import functor, setup, sum_parameters
from graphc.kernels.cpu.contract.tile_cost import chunk_target
from graphc.kernels.cpu.convolution.conv_channels import C, K, N, P, Q, R, S
from graphc.kernels.cpu.shared.kernel_source import array_text, balanced, entry, make_kernel, share
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest
from graphc.ops.convolution import Conv2d, Conv2dDgrad
from graphc.ops.fused import KernelNode

AMPLIFICATION = {2: 64, 4: 564}
"""By output tile size m: the factor by which the transforms of F(m x m, 3 x 3) can amplify the
largest product of an input and a tap, the square of the largest row of |A^T| (|G| 1 * |B^T| 1)."""

ROUNDINGS = 26
"""The most roundings of an element in the transforms."""

VECTORS = 2
"""Registers of output channels in a register tile."""

FEWEST_UNITS = 12
"""Units of work that small numbers of workers share evenly."""

STREAM = 16.0
"""Bytes per cycle from beyond the second-level cache."""


@dataclass(frozen=True)
class Winograd:
    """A choice of F(m x m, 3 x 3) for a nest, with its estimated cycles."""

    m: int
    """Side of an output tile."""
    group: int
    """Tiles whose transformed inputs a unit of work holds."""
    rows: int
    """Tiles in a register tile."""
    parts: int
    """Parts of the output channels; each transforms its inputs again."""
    units: int
    """Units of work."""
    cycles: float
    """Estimated cycles of the kernel."""


def winograd(nest: Nest, target: Target) -> Winograd | None:
    """The faster of F(2 x 2) and F(4 x 4) by estimate, for a nest with channels in the lanes.

    None unless it is a 3 x 3 convolution of stride 1 over whole registers.
    """
    op, x = nest.node.op, nest.a
    if not isinstance(op, Conv2d | Conv2dDgrad) or x.lanes != C or x.rounded:
        return None
    if {x.type.dtype, nest.b.type.dtype} != {"f32"} or x.type != nest.node.inputs[0].type:
        return None
    if op.stride != (1, 1) or op.dilation != (1, 1) or op.groups != 1:
        return None
    if (nest.axes[R].extent, nest.axes[S].extent) != (3, 3):
        return None
    _, channels, height, width = x.type.shape
    lanes, pixels = target.lanes, height * width
    steps = (x.strides[N], x.strides[P], x.strides[Q], x.block)
    if steps != (channels * pixels, width * lanes, lanes, pixels * lanes):
        return None
    return min(choices(nest, target), key=lambda choice: choice.cycles)


def choices(nest: Nest, target: Target) -> Iterator[Winograd]:
    """F(2 x 2) and F(4 x 4) for such a nest, with their estimates."""
    n, k, p, q, c, _, _ = (axis.extent for axis in nest.axes)
    registers = k // target.lanes
    vectors = min(VECTORS, registers)
    most = (target.registers - vectors - 1) // vectors
    for m in AMPLIFICATION:
        side = (m + 2) ** 2
        tiles = n * -(-p // m) * -(-q // m)
        fitting = target.caches.second // (2 * 4 * side * c)
        groups = -(-tiles // max(1, min(fitting, 4 * most)))
        group = -(-tiles // groups)
        groups = -(-tiles // group)
        rows = -(-group // -(-group // most))
        parts = max(1, min(-(-FEWEST_UNITS // groups), registers // (2 * vectors)))
        step = max(rows * vectors / 2, (rows + vectors) / 2, 4.0) + 1.0
        products = side * c * -(-registers // vectors) * -(-group // rows) * step
        streamed = 4 * side * c * k
        far = streamed / STREAM if streamed > target.caches.far else streamed / 64
        inputs = parts * group * c / target.lanes * 10 * side
        outputs = group * registers * 6 * (side + m * m)
        filters = registers * c * _filter_cycles(m + 2)
        cycles = filters + groups * (max(products, far) + inputs + outputs)
        yield Winograd(m, group, rows, parts, groups * parts, cycles)


def error_bound(nest: Nest, m: int) -> str:
    """The largest error of an element, as the plan's notes state it."""
    c = nest.axes[C].extent
    return f"{AMPLIFICATION[m]} * {c} * {c + ROUNDINGS} * 2^-24 * max|x| * max|w|"


def lower_conv_winograd(node: KernelNode, nest: Nest, chosen: Winograd, target: Target) -> Kernel:
    """The kernel: the weight's transform, then the convolution with its epilogue."""
    epilogue = tile_epilogue(node.body, nest, K, target.lanes)
    side = chosen.m + 2
    extents = [axis.extent for axis in nest.axes]
    registers = extents[K] // target.lanes
    filters = registers * extents[C]
    workspace = 4 * registers * side**2 * (extents[C] + 1) * target.lanes
    first = balanced(max(1, min(filters, chunk_target(_filter_cycles(side) * filters))), filters)
    second = balanced(max(1, min(chosen.units, chunk_target(chosen.cycles))), chosen.units)
    lines = [
        "",
        *_shape(nest, chosen),
        *functor("Epilogue", epilogue, sum_parameters(epilogue, False), ()),
    ]
    u = f"(float*)arguments[{len(node.inputs) + len(node.outputs)}]"
    x, w = (f"(const float*)arguments[{read.input}]" for read in (nest.a, nest.b))
    call = [
        f"float* const u = {u};",
        "using Kernel = winograd::Convolution<Shape>;",
        "if (phase == 0)",
        f"  Kernel::transform_weight({w}, u, {share(filters, first)});",
        "else",
        f"  Kernel::run({x}, u, {share(chosen.units, second)}, "
        f"{setup(node, 'Epilogue', epilogue, 0)});",
    ]
    kernel = make_kernel(
        node,
        [
            array_text(epilogue.program.arrays),
            "\n".join([*lines, ""]),
            entry(node, call, "phase"),
        ],
        (first, second),
        workspace,
        nest.flops,
        epilogue.inplace,
        header="convolution/conv_winograd",
    )
    m = chosen.m
    said = f"Winograd's F({m} x {m}, 3 x 3), error at most {error_bound(nest, m)}"
    return replace(kernel, note=said)


def _filter_cycles(side: int) -> float:
    """Estimated cycles to transform one channel's taps for a register of output channels."""
    return 60 + side**2 * 6.0


def _shape(nest: Nest, chosen: Winograd) -> list[str]:
    """The C++ `struct Shape` of conv_winograd.h. A data gradient is a convolution with reversed
    taps."""
    n, k, p, q, c, _, _ = (axis.extent for axis in nest.axes)
    op, w = nest.node.op, nest.b
    assert isinstance(op, Conv2d | Conv2dDgrad)
    back = op.called == "dgrad"
    height, width = nest.a.type.shape[2:]
    top, left = ((pad - 2 if back else -pad) for pad in op.padding)
    r, s = w.strides[R], w.strides[S]
    start = w.offset + (2 * r + 2 * s if back else 0)
    steps = {"W_0": start, "W_K": w.block, "W_C": w.strides[C]}
    steps |= {"W_R": -r, "W_S": -s} if back else {"W_R": r, "W_S": s}
    vectors = min(VECTORS, k // w.width)
    return [
        "struct Shape {",
        integers(N=n, K=k, P=p, Q=q, C=c, H=height, WIDTH=width, TOP=top, LEFT=left),
        integers(M=chosen.m, GROUP=chosen.group, MR=chosen.rows, NV=vectors, PARTS=chosen.parts),
        longs(steps),
        "};",
    ]
