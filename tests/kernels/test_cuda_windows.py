"""Pooling whose channels run fastest, in runs of 16 bytes: where, and rightly; and gradients of
windows that overlap, which a kernel with a batch norm's gradient computes once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import Type, Value
from graphc.ir.types import Layout
from graphc.kernels.cuda.pointwise import pointwise
from graphc.kernels.cuda.reduce import reduce, reduction_kernel
from graphc.kernels.lower import lower
from graphc.ops.base import Op
from graphc.ops.pooling import AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad
from graphc.runtime.sim.native import BACKWARD, FORWARD
from tests.kernels.cuda_harness import TARGET, assert_close, build_device, fused, single
from tests.sim.playing import Played, simulator
from tests.tools import first_quick, need_command

SIZE = (9, 10)
WINDOWS = (((3, 3), (2, 2), (1, 1)), ((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 1), (1, 0)))


def node_of(op: Op, channels: int, *sizes: tuple[Any, str]) -> Any:
    """The fused node of `op` with inputs of (pixels, dtype), all with their channels last."""
    last = Layout(1, channels)
    types = [Type((2, channels, *pixels), dtype, last) for pixels, dtype in sizes]
    inputs = [Value(f"x{i}", t) for i, t in enumerate(types)]
    settings = "_".join(str(n) for pair in (op.kernel_size, op.stride) for n in pair)  # type: ignore[attr-defined]
    node = single(op, inputs, f"{op.name}_{channels}_{settings}_{sizes[0][1]}")
    body = node.op.body  # type: ignore[attr-defined]
    outputs = tuple(Value(v.name, v.type.with_layout(last)) for v in body.outputs)
    (inner,) = body.nodes
    nodes = (type(inner)(inner.op, inner.inputs, outputs),)
    return fused(type(body)(body.name, body.inputs, (), nodes, outputs))


def nodes_of(channels: int) -> list[Any]:
    nodes = []
    for window in WINDOWS:
        pool, mean = MaxPool2d(*window), AvgPool2d(*window, count_include_pad=False)
        size = pool.pixels(SIZE)
        nodes += [
            node_of(pool, channels, (SIZE, "f32")),
            node_of(mean, channels, (SIZE, "f32")),
            node_of(MaxPool2dGrad(*window, SIZE), channels, (size, "f32"), (size, "u8")),
            node_of(AvgPool2dGrad(*window, False, SIZE), channels, (size, "f32")),
        ]
    return nodes


EIGHTS, FOURS, ODD = nodes_of(16), nodes_of(12), nodes_of(6)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch is large, and no block keeps columns."""
    monkeypatch.setattr(pointwise, "BLOCKS", 0)
    monkeypatch.setattr(reduce, "ALONE_BYTES", 0)


def arrays_for(node: Any) -> list[Any]:
    """Among images are equal numbers and NaN."""
    random, arrays = np.random.default_rng(3), []
    for value in node.inputs:
        shape = value.type.shape
        if value.type.dtype == "u8":
            arrays.append(random.integers(0, 9, shape).astype(np.uint8))
            continue
        array = random.integers(-4, 5, shape).astype(np.float32)
        if "max_pool2d_1" in node.op.kernel:
            array[random.random(shape) < 0.05] = np.nan
        arrays.append(array)
    return arrays


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_runs_of_windows_are_those_of_numpy(large: None):
    need_command("g++", "clang++")
    nodes = [*EIGHTS, *FOURS, *ODD]
    played = Played(simulator(check=True), nodes)
    for node in nodes:
        arrays = arrays_for(node)
        for order in (FORWARD, BACKWARD):
            got = played.run(node, arrays, order)
            for mine, want in zip(got, node.op.reference(*arrays), strict=True):
                assert_close(mine, want, 9)


@pytest.mark.parametrize(
    ("nodes", "lengths"), [(EIGHTS, {4, 8}), (FOURS, {4}), (ODD, {1})], ids=str
)
def test_channels_that_are_whole_runs_are_read_in_them(large: None, nodes: Any, lengths: set[int]):
    for node in nodes:
        name, source = node.op.body.nodes[0].op.name, lower(node, TARGET).source
        assert any(f"{name}<{n}, " in source for n in lengths), source


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_nvcc_takes_runs_of_windows_and_spills_nothing(large: None, arch: str, tmp_path: Any):
    kernels = [lower(n, TARGET) for n in (*EIGHTS, *FOURS)]
    usage = build_device(kernels, tmp_path, need_command("nvcc"), arch)
    assert len(usage) == len(kernels)
    assert {symbol for symbol, u in usage.items() if u.spilled} == set()


class Stem(nn.Module):
    def __init__(self, pool: nn.Module) -> None:
        self.conv, self.norm = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.pool, self.last = pool, nn.Conv2d(8, 12, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.pool(graphc.relu(self.norm(self.conv(x)))))


def trained(device: str, pool: nn.Module, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The program, and the state after two steps."""
    graphc.seed(0)

    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x = np.random.default_rng(3).normal(1, 1, (4, 4, 33, 32)).astype(np.float32)
    spec, rule = graphc.spec(x.shape), optim.SGD(lr=0.1)
    program = graphc.compile(loss, Stem(pool), spec, update=rule, device=device, **options)
    for _ in range(2):
        program(x)
    return program, dict(program.state_dict())


def calls(program: Any, name: str) -> list[int]:
    """How often each kernel with a batch norm's gradient calls a function."""
    texts = [k.source for k in program.plan.kernels.values() if f"{name}<" in k.source]
    return [text.count(f" = {name}<") for text in texts if "store_partial" in text]


@pytest.mark.parametrize(
    ("pool", "name", "times"),
    [
        (nn.MaxPool2d(3, 2, 1), "max_pool2d_grad", 1),
        (nn.AvgPool2d(3, 2, 1), "avg_pool2d_grad", 1),
        (nn.MaxPool2d(2), "max_pool2d_grad", 2),
    ],
    ids=["overlapping", "mean", "tiling"],
)
def test_gradients_of_overlapping_windows_are_computed_once(
    large: None, pool: Any, name: str, times: int, clean_environment: pytest.MonkeyPatch
):
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    here, got = trained("sim", pool, precision="tf32", streams=1)
    assert calls(here, name) == [times]
    _, want = trained("reference", pool, precision="tf32")
    _, streams = trained("sim", pool, precision="tf32", streams=4)
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=2e-2 * scale, err_msg=key)
        assert array.tobytes() == streams[key].tobytes()
    clean_environment.setattr(reduction_kernel, "DEAR", np.inf)
    again, twice = trained("sim", pool, precision="tf32", streams=1)
    assert calls(again, name) == [2]
    assert all(array.tobytes() == twice[key].tobytes() for key, array in got.items())


def test_what_an_output_holds_before_is_not_stored_over_an_image_that_is_read_again(
    large: None, monkeypatch: pytest.MonkeyPatch
):
    def pairs() -> Any:
        program, _ = trained("sim", nn.MaxPool2d(3, 2, 1), precision="tf32", streams=1)
        texts = program.plan.kernels.values()
        (kernel,) = [k for k in texts if "max_pool2d_grad<" in k.source]
        return kernel.inplace

    assert pairs() == ()
    monkeypatch.setattr(reduction_kernel, "DEAR", np.inf)
    assert len(pairs()) == 1  # the gradient may lie over the image
