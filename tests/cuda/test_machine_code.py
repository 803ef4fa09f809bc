"""What NVRTC makes of kernels: tensor cores where they are said to be, and wide accesses."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import graphc
from benchmarks.families.gpt import GPT
from benchmarks.families.stack import FLUX, Stack
from benchmarks.run import Model
from benchmarks.run import loss_fn as loss_of
from benchmarks.workload import Workload
from graphc import nn, optim
from graphc.runtime.cuda.compile import compile_cuda
from graphc.runtime.plan.plan import Launch, Plan, all_steps
from tests.cuda.machine_code import executed, moved
from tests.tools import first_quick, need_nvdisasm, need_nvrtc
from tools.gpu_model.sass import Block, disassembled

OPTIONS: dict[str, Any] = {"device": "cuda", "streams": 1}
Codes = dict[str, dict[str, list[Block]]]
"""Blocks of code by kernel and symbol."""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Codes]:
    """`code(plan, arch, templates)`: that of the plan's kernels of these templates."""
    nvrtc, nvdisasm = need_nvrtc(), need_nvdisasm()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))

    def made(plan: Plan, arch: str, templates: Collection[str]) -> Codes:
        kernels = {name: k for name, k in plan.kernels.items() if k.template in templates}

        def of(name: str) -> dict[str, list[Block]]:
            cubin = compile_cuda(kernels[name].source, name, arch, compiler=nvrtc)
            return disassembled(cubin.image, nvdisasm)

        with ThreadPoolExecutor(2) as pool:
            return dict(zip(kernels, pool.map(of, kernels), strict=True))

    return made


def gradients(x: Any, w: Any, images: Any, filters: Any, q: Any, k: Any, v: Any) -> Any:
    """A product, a convolution and attention, and their gradients."""

    def loss(x: Any, w: Any, images: Any, filters: Any, q: Any, k: Any, v: Any) -> Any:
        convolved = graphc.conv2d(images, filters, None, 1, 1)
        results = x @ w, convolved, graphc.scaled_dot_product_attention(q, k, v)
        return sum(graphc.sum(graphc.square(y)) for y in results)

    return graphc.grad(loss, tuple(range(7)))(x, w, images, filters, q, k, v)


SHAPES = ((512, 256), (256, 512), (8, 64, 14, 14), (64, 64, 3, 3), *((2, 4, 128, 64),) * 3)
PRODUCTS = ("contract", "attend")
TENSOR_CORES = {
    "tf32": ("float32", "tf32", "HMMA.1688.F32.TF32"),
    "bfloat16": ("float32", "bfloat16", "HMMA.16816.F32.BF16"),
    "float16": ("float16", "float32", "HMMA.16816.F32"),
}
"""A dtype, a precision and the instruction of their products."""


def multiplied(codes: Codes) -> dict[str, set[str]]:
    """The instructions of tensor cores in each kernel."""
    return {
        kernel: {
            i.opcode
            for blocks in symbols.values()
            for i, _ in executed(blocks)
            if i.name in ("HMMA", "HGMMA", "UTMALDG")
        }
        for kernel, symbols in codes.items()
    }


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
@pytest.mark.parametrize("kind", first_quick(1, TENSOR_CORES))
def test_products_and_their_gradients_are_of_tensor_cores(code, kind: str, arch: str):
    dtype, precision, instruction = TENSOR_CORES[kind]
    specs = [graphc.spec(shape, dtype) for shape in SHAPES]
    options = {**OPTIONS, "precision": precision, "disable": "fuse_products"}
    found = multiplied(code(graphc.compile(gradients, *specs, **options).plan, arch, PRODUCTS))
    assert len(found) == 8
    assert found == {kernel: {instruction} for kernel in found}


@pytest.mark.parametrize("arch", first_quick(1, ["sm_80", "sm_90a"]))
def test_products_of_float32_are_of_registers(code, arch: str):
    plan = graphc.compile(gradients, *map(graphc.spec, SHAPES), **OPTIONS).plan
    codes = code(plan, arch, (*PRODUCTS, "group"))
    assert not any(multiplied(codes).values())
    names = [
        {i.name for x in symbols.values() for i, _ in executed(x)} for symbols in codes.values()
    ]
    assert len(names) > 3 and all(found & {"FFMA", "FFMA2"} for found in names)


@pytest.mark.parametrize("asked", [("GRAPHC_WGMMA",), ("GRAPHC_WGMMA", "GRAPHC_TMA")])
def test_warp_groups_multiply_and_tma_copies_where_they_are_asked_for(code, monkeypatch, asked):
    for name in asked:
        monkeypatch.setenv(name, "1")
    specs = [graphc.spec(shape, "bfloat16") for shape in ((2048, 512), (512, 2048))]
    (found,) = multiplied(
        code(graphc.compile(graphc.matmul, *specs, **OPTIONS).plan, "sm_90a", PRODUCTS)
    ).values()
    names = {opcode.partition(".")[0] for opcode in found}
    assert names == ({"HGMMA", "UTMALDG"} if len(asked) == 2 else {"HGMMA"})


class Block(nn.Module):
    """One of ResNet-18's."""

    def __init__(self) -> None:
        self.conv1, self.conv2 = (nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(64), nn.BatchNorm2d(64)

    def forward(self, x: Any) -> Any:
        y = graphc.relu(self.norm1(self.conv1(x)))
        return graphc.relu(self.norm2(self.conv2(y)) + x)


def block() -> Plan:
    image, rule = graphc.spec((8, 64, 56, 56)), optim.SGD(lr=0.1, momentum=0.9)
    options = {**OPTIONS, "precision": "tf32", "update": rule}
    plan = graphc.compile(lambda m, x, dy: graphc.sum(m(x) * dy), Block(), image, image, **options)
    return plan.plan


def step(workload: Workload) -> Plan:
    data, rule = workload.data(), optim.Adam(lr=0.1)
    specs = [graphc.spec(a.shape, a.dtype) for a in (data.x, data.y)]
    options = {**OPTIONS, "precision": "tf32", "update": rule}
    return graphc.compile(loss_of, Model(workload, data), *specs, **options).plan


MOVING = ("contract", "group", "attend")
WIDE: dict[str, tuple[Callable[[], Plan], tuple[str, ...]]] = {
    "ResNet-18's block": (block, (*MOVING, "pointwise")),
    "GPT's layer": (
        lambda: step(GPT("gpt1-b8", 8, layers=1)),
        (*MOVING, "pointwise"),
    ),
    "convolutions": (lambda: step(Stack("flux-conv-b100", 100, model=FLUX)), MOVING),
}
"""Without the last one's pooling: rows of 14 and 7 pixels have no runs of 16 bytes."""


@pytest.mark.parametrize("name", first_quick(1, WIDE))
def test_nearly_all_bytes_move_sixteen_at_a_time(code, name: str):
    """Of training steps, each kernel by the bytes that the plan says it reads and writes."""
    make, templates = WIDE[name]
    plan = make()
    wide = total = 0.0
    for kernel, symbols in code(plan, "sm_90a", templates).items():
        places = [p for x in launches(plan, kernel) for p in (*x.reads, *x.writes)]
        nbytes = sum(place.stop - place.start for place in places)
        counts = [moved(blocks) for blocks in symbols.values()]
        total += nbytes
        wide += nbytes * sum(w for _, w in counts) / sum(n for n, _ in counts)
    assert total > 1e6 and wide / total >= 0.95, f"{wide / total:.3f} of {total / 1e6:.1f} MB"


def launches(plan: Plan, kernel: str) -> list[Launch]:
    return [s for s in all_steps(plan.steps) if isinstance(s, Launch) and s.kernel == kernel]
