"""Epilogues of columns that are no whole runs: their bias is loaded once for all rows of a thread,
and their last run leaves whole where there is a place for it. In the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.kernels.cuda.convolution import halo
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import kernels_in
from graphc.runtime.sim.errors import LaunchError
from tests.kernels.cuda_harness import TARGET, arrays_of, mistaken
from tests.sim.playing import Played, simulator
from tests.tools import need_command

BATCH, SIZE, CHANNELS = 2, 8, 16


def biased(x: Any, filters: Any, bias: Any) -> Any:
    return graphc.conv2d(x, filters, padding=1) + graphc.reshape(bias, (bias.shape[0], 1, 1))


def plain(x: Any, first: Any, bias: Any, second: Any) -> Any:
    return graphc.conv2d(graphc.relu(biased(x, first, bias)), second)


def residual(x: Any, first: Any, bias: Any, second: Any) -> Any:
    y = graphc.relu(biased(x, first, bias))
    z = graphc.relu(biased(y, second, bias) + y)
    return graphc.conv2d(z, second)


def beside(x: Any, first: Any, bias: Any, second: Any) -> Any:
    """Two images that lie side by side, as channels of one."""
    y = graphc.concat([biased(x, first, bias), biased(x, first * 2.0, bias)], 1)
    return graphc.conv2d(graphc.relu(y), graphc.concat([second, second], 1))


def arrays_for(channels: int) -> list[Any]:
    random = np.random.default_rng(channels)
    shapes = (BATCH, CHANNELS, SIZE, SIZE), (channels, CHANNELS, 3, 3), (channels,)
    all_shapes = (*shapes, (channels, channels, 3, 3))
    return [(random.normal(size=s) * 0.2).astype(np.float32) for s in all_shapes]


def compiled(function: Any, channels: int, device: str, precision: str) -> Any:
    specs = [graphc.spec(a.shape) for a in arrays_for(channels)]
    return graphc.compile(function, *specs, device=device, precision=precision)


CASES = [(c, p, True) for c in (50, 6, 10) for p in ("float32", "tf32", "bfloat16")]
"""Channels, a precision, and whether there are patches where there can be."""


@pytest.mark.parametrize("function", [plain, residual, beside])
@pytest.mark.parametrize(
    ("channels", "precision", "patches"), [*CASES, (6, "tf32", False), (10, "tf32", False)]
)
def test_sums_are_those_of_the_reference(
    channels: int,
    precision: str,
    patches: bool,
    function: Any,
    clean_environment: pytest.MonkeyPatch,
) -> None:
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    if patches:
        clean_environment.setattr(halo.HaloProductTile, "cycles", lambda *_: -1.0)
    arrays = arrays_for(channels)
    program = compiled(function, channels, "sim", precision)
    wanted = compiled(function, channels, "reference", precision)(*arrays)
    digits = {"float32": 18, "tf32": 9, "bfloat16": 6}[precision]
    scale = float(np.abs(wanted).max())
    np.testing.assert_allclose(program(*arrays), wanted, rtol=0, atol=2.0**-digits * scale)


def kernel_of(function: Any, number: int = 0) -> Any:
    """The node of a convolution with a bias of ten channels."""
    nodes = kernels_in(compiled(function, 10, "cuda", "tf32").graph)
    return [n for n in nodes if any(x.op.name == "conv2d" for x in n.body.nodes)][number]


def test_the_last_run_is_whole_where_nothing_else_lies_or_is_read() -> None:
    assert "pads = true" in lower(kernel_of(plain), TARGET).source
    assert "pads = false" in lower(kernel_of(residual, 1), TARGET).source


def test_a_bias_of_other_columns_shows() -> None:
    need_command("g++")
    node = kernel_of(plain)
    arrays = arrays_of(node)

    def lowered(node: Any) -> Kernel:
        return lower(node, TARGET)

    right, wrong = (
        Played(simulator(check=True), [node], mistaken("memory", (text, changed)), lowered)
        for text in ("epilogue.columns(n)",)
        for changed in (text, "epilogue.columns(n - n % 8)")
    )
    (want,) = right.run(node, arrays)
    try:
        (got,) = wrong.run(node, arrays)
    except LaunchError:
        return
    assert not np.array_equal(got, want)
