"""The GPUs that the simulated one may stand for: a T4 gives the bits of an H100."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.run import compiled
from benchmarks.workloads import WORKLOADS
from graphc.base import config
from graphc.base.errors import GraphError
from graphc.kernels.lower import lower
from graphc.program import loading
from graphc.program.loading import target_of
from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.compile import OPTIONS, compile_cuda, parse_usage
from graphc.runtime.sim.cards import CARDS
from graphc.runtime.sim.errors import LogicError
from tests.kernels.cuda_harness import TARGET, joined
from tests.kernels.test_cuda_ops import NODES
from tests.small_models import MODELS
from tests.support.cuda_contract import NODES as CONTRACTIONS
from tests.support.executable import batch, trainer
from tests.tools import first_quick, need_command, need_nvrtc

T4 = replace(TARGET, arch="sm_75", tensor_cores=False)
ARCHS = ["sm_75", "sm_100", "sm_89", "sm_80"]
PER_FILE = 100
EVERY = 12
"""Of the ops' samples, those that the quick tests compile."""


@pytest.fixture
def t4(monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++", "clang++")
    monkeypatch.setenv("GRAPHC_SIM_GPU", "t4")


def trained(name: str, streams: int) -> dict[str, Any]:
    """The state of a small model after two steps on the simulated GPU."""
    train = trainer(name, "sim", streams=streams)
    for _ in range(2):
        train(*batch(name))
    return {key: np.array(value) for key, value in train.state_dict().items()}


def test_every_card_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(config.SIMULATED) == set(CARDS)
    monkeypatch.setenv("GRAPHC_SIM_GPU", "voodoo")
    with pytest.raises(GraphError, match=r"GRAPHC_SIM_GPU: expected one of h100, t4, .*'voodoo'"):
        target_of("sim")


@pytest.mark.parametrize("name", MODELS)
def test_a_t4_leaves_the_bits_of_an_h100(
    name: str, monkeypatch: pytest.MonkeyPatch, t4: None
) -> None:
    found = trained(name, 2)
    assert find_device("sim").driver.arch == "sm_75"
    monkeypatch.setenv("GRAPHC_SIM_GPU", "h100")
    expected = trained(name, 1)
    assert find_device("sim").driver.arch == "sm_90a"
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array, err_msg=key)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_registers_multiply_where_tensor_cores_lack_a_type(precision: str, t4: None) -> None:
    random = np.random.default_rng(0)
    arrays = [random.integers(-4, 5, s).astype(np.float32) for s in ((200, 264), (264, 136))]
    specs = [graphc.spec(a.shape) for a in arrays]
    program = graphc.compile(graphc.matmul, *specs, device="sim", precision=precision, streams=1)
    assert program.target.arch == "sm_75" and not program.target.tensor_cores
    texts = [kernel.source for kernel in program.plan.kernels.values()]
    assert not any("tensor.cuh" in text for text in texts)
    np.testing.assert_array_equal(program(*arrays), arrays[0] @ arrays[1])


def test_a_t4_gives_a_block_no_more_than_it_has(t4: None) -> None:
    place = find_device("sim")
    text = 'extern "C" __global__ void nothing(int* x) { *x = 1; }'
    with place.entered():
        module = place.driver.module_from_buffer(place.driver.compile(text, "nothing"))
        function = module.get_function("nothing")
        function.set_attribute(8, 64 << 10)
        with pytest.raises(LogicError, match=r"65537 bytes of dynamic shared memory.*65536"):
            function.set_attribute(8, (64 << 10) + 1)
    assert not place.driver.begins_early


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_kernels_of_a_t4_fit_its_shared_memory(precision: str) -> None:
    workload = WORKLOADS["mnist-cnn-b100"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "target_of", lambda device: T4)
        options = {"device": "cuda", "streams": 1, "precision": precision}
        plan = compiled(workload, workload.data(), "train", options).plan
    kernels = [*plan.kernels.values(), *(each.kernel for each in plan.joined)]
    sizes = [launch.shared_bytes for kernel in kernels for launch in kernel.launches]
    assert sizes and max(sizes) <= CARDS["t4"].shared


@pytest.mark.parametrize("every", first_quick(1, [EVERY, 1]))
@pytest.mark.parametrize("arch", ARCHS)
def test_the_texts_of_ops_compile_for_other_gpus(arch: str, every: int, tmp_path: Any) -> None:
    compiler = need_nvrtc()
    target = T4 if arch == "sm_75" else replace(TARGET, arch=arch)
    kernels = [lower(node, target) for node in (*NODES[::every], *CONTRACTIONS[::every])]
    usage = {}
    for first in range(0, len(kernels), PER_FILE):
        text = tmp_path / f"kernels_{first}.cu"
        text.write_text(joined(kernels[first : first + PER_FILE]))
        _, log = compiler.compile(text, (*OPTIONS, f"-arch={arch}", *compiler.options))
        usage.update(parse_usage(log))
    assert set(usage) == {launch.symbol for k in kernels for launch in k.launches}
    limit = next(card.shared for card in CARDS.values() if card.arch.rstrip("a") == arch)
    assert all(
        usage[launch.symbol].shared + launch.shared_bytes <= limit
        for kernel in kernels
        for launch in kernel.launches
    )


@pytest.mark.parametrize("name", first_quick(1, ["mlp-4x256-b16", "mnist-cnn-b100", "gpt4-b8"]))
@pytest.mark.parametrize("arch", first_quick(1, ARCHS))
def test_the_texts_of_steps_compile_for_other_gpus(
    arch: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_nvrtc()
    target = T4 if arch == "sm_75" else replace(TARGET, arch=arch)
    monkeypatch.setattr(loading, "target_of", lambda device: replace(target, draws_tickets=True))
    workload = WORKLOADS[name]
    options = {"device": "cuda", "streams": 1, "precision": "tf32"}
    plan = compiled(workload, workload.data(), "train", options).plan
    for kernel in (*plan.kernels.values(), *(each.kernel for each in plan.joined)):
        usage = compile_cuda(kernel.source, kernel.name, arch).usage
        assert set(usage) == {launch.symbol for launch in kernel.launches}
