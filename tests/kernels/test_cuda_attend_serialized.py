"""The gradients of attention by five products, whose blocks add in turns: what they compute, in
every order; what the simulator finds where the protocol is broken; what compilers make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc.ir import Node
from graphc.kernels.cuda.attention import attend_serialized
from graphc.kernels.lower import lower
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.sim.errors import LaunchError
from graphc.runtime.sim.native import FORWARD, ORDERS
from tests.kernels.cuda_harness import TARGET, mistaken, usage_of
from tests.sim.playing import Played, simulator
from tests.support import cuda_attend_tensor as attend
from tests.support.cuda_attend_tensor import arrays_of, assert_near, node_of
from tests.tools import first_quick, need_command

TURNS = replace(TARGET, draws_tickets=True)
CASES = {
    "causal": ((1, 2, 2, 200, 200, 64, 64), {"causal": True}),
    "three turns": ((1, 2, 2, 130, 260, 16, 16), {}),
    "more keys": ((2, 3, 3, 130, 300, 64, 64), {}),
    "more queries": ((1, 2, 1, 333, 150, 64, 48), {"causal": True}),
    "keys that none sees": ((1, 1, 1, 70, 300, 64, 64), {"causal": True}),
    "heads of 80": ((1, 2, 2, 77, 140, 80, 32), {"causal": True}),
    "heads of 128": ((1, 2, 1, 97, 140, 128, 128), {"causal": True}),
    "dropped": ((1, 2, 1, 70, 150, 32, 64), {"dropout": 0.3}),
    **{name: attend.CASES[name] for name in ("aligned", "grouped", "odd", "added")},
}
LARGE = {
    "d64": attend.MODELS["d64"],
    "d64, all keys": ((8, 12, 12, 1024, 1024, 64, 64), {}),
    "d64, dropped": ((8, 12, 12, 1024, 1024, 64, 64), {"causal": True, "dropout": 0.1}),
    "d128": ((4, 12, 12, 2048, 2048, 128, 128), {"causal": True}),
    "d128, dropped": attend.MODELS["d128"],
    "one block of keys": ((64, 12, 12, 128, 128, 64, 64), {"causal": True}),
}
FIRST = [("causal", "bf16"), ("more keys", "tf32"), ("heads of 128", "f16"), ("odd", "bf16")]
WIDE = [("heads of 80", "tf32"), ("heads of 128", "tf32")]
"""They do not fit shared memory."""
ALL = FIRST + [(n, d) for n in CASES for d in attend.UNIT if (n, d) not in FIRST + WIDE]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Turns wherever they can be taken, and cases of this file, whose heads are in groups."""
    monkeypatch.setattr(attend_serialized, "FEWEST", 1)
    monkeypatch.setattr(attend_serialized, "MOST_BEHIND", 99)
    monkeypatch.setattr(attend_serialized, "MOST_BYTES", 200_000)
    monkeypatch.setattr(attend, "CASES", {**attend.CASES, **CASES, **LARGE})
    return monkeypatch


def taken(node: Node) -> Kernel:
    kernel = lower(node, TURNS)
    assert "attend_serialized.cuh" in kernel.source
    return kernel


@pytest.mark.parametrize("case", first_quick(4, ALL), ids="-".join)
def test_blocks_compute_what_the_op_means(case: tuple[str, str], small: pytest.MonkeyPatch) -> None:
    """Checked for races, with threads and blocks in every order, to the same bits; and again, as
    a launch leaves its counters as it found them."""
    need_command("g++", "clang++")
    name, dtype = case
    node = node_of(name, dtype, gradient=True)
    played, arrays = Played(simulator(check=True), [node], make=taken), arrays_of(node)
    first = played.run(node, arrays, ORDERS[0])
    assert_near(node, arrays, first, dtype)
    for order in ORDERS:
        for got, want in zip(played.run(node, arrays, order), first, strict=True):
            np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def test_keys_of_one_block_take_no_turns(small: pytest.MonkeyPatch) -> None:
    kernel = taken(node_of("grouped", "bf16", gradient=True))
    assert not kernel.draws_tickets
    assert not kernel.workspace
    assert "by blocks of 128 keys: five products in place of seven" in kernel.choice


def test_the_choice_says_so_where_blocks_take_turns() -> None:
    node = node_of("d64", "bf16", gradient=True)
    kernel = taken(node)
    assert kernel.draws_tickets
    assert kernel.flops * 7 == lower(node, TARGET).flops * 5
    assert kernel.workspace == 8 * 12 * 1024 * 64 * 4
    assert kernel.note.endswith("by blocks of 128 keys that add to those of queries in turns")


@pytest.mark.parametrize("name", ["few", "d80"])
def test_few_blocks_and_heads_that_do_not_fit_take_seven_products(name: str) -> None:
    kernel = lower(node_of(name, "tf32", gradient=True), TURNS)
    assert "attend_tensor_gradient.cuh" in kernel.source
    assert "seven" not in kernel.choice


def test_the_body_of_a_loop_takes_seven_products() -> None:
    """Its iterations would share the counters."""
    node = node_of("d64", "bf16", gradient=True)
    assert not lower(node, TURNS, in_loop=True).draws_tickets


TURNS_HEADER = "attend_serialized"
FENCE, EARLY = "      device_fence();\n", "waits() || has_word(counters + index(), "
BROKEN = {
    "no fence": (FENCE, ""),
    "no wait late": (
        "if (!known) await_word(counters + index(), static_cast<unsigned>(at.block));",
        "",
    ),
    "no wait": (EARLY, "waits() || true || has_word(counters + index(), "),
    "a turn is passed too soon": (
        "Step(i - 1).pass_turn(counters);",
        "Step(i).pass_turn(counters);",
    ),
    "no barrier behind the wait": (
        "      __syncthreads();  // the gradients of scores are there",
        "      part_barrier<32>();  //",
    ),
    "no barrier before the last turn": (
        "    __syncthreads();\n    if (count > 0)",
        "    if (count)",
    ),
    "a counter is not set back": ("if (waits() && at.block == last)", "if (false)"),
    "terms are not added to": ("if (blocks > 1 && step.at.block > 0)", "if (false)"),
    "from the last block on": (
        "block = static_cast<int>(within / Together)",
        "block = blocks - 1 - static_cast<int>(within / Together)",
    ),
}


MUTANTS = [(name, order) for name in BROKEN for order in ORDERS]
MUTANTS.remove(("no wait late", FORWARD))
"""There all turns have come when they are asked for."""


@pytest.mark.parametrize(("name", "order"), MUTANTS)
def test_a_broken_protocol_is_found(name: str, order: int, small: pytest.MonkeyPatch) -> None:
    """By a finding, or, where each turn is ordered but wrong, by other gradients of queries."""
    need_command("g++", "clang++")
    node = node_of("three turns", "bf16", gradient=True)
    arrays, edit = arrays_of(node), mistaken(TURNS_HEADER, BROKEN[name])
    played = Played(simulator(check=True), [node], edit, taken)
    if name == "terms are not added to":
        with pytest.raises(AssertionError):
            assert_near(node, arrays, played.run(node, arrays, order), "bf16")
        return
    with pytest.raises(LaunchError):
        played.run(node, arrays, order)


def test_the_header_as_it_is_breaks_nothing(small: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    need_command("g++", "clang++")
    node = node_of("three turns", "bf16", gradient=True)
    Played(simulator(check=True), [node], mistaken(TURNS_HEADER), taken).run(node, arrays_of(node))


def test_a_step_has_the_same_bits_on_every_number_of_streams(
    small: pytest.MonkeyPatch, clean_environment: pytest.MonkeyPatch
) -> None:
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    random = np.random.default_rng(5)
    arrays = [random.standard_normal((1, 2, 150, 16)).astype(np.float32) for _ in range(3)]

    def loss(q: graphc.Tensor, k: graphc.Tensor, v: graphc.Tensor) -> graphc.Tensor:
        y = graphc.scaled_dot_product_attention(q, k, v, is_causal=True)
        z = graphc.scaled_dot_product_attention(k, q, y, is_causal=True)
        return graphc.sum(y * z)

    found = []
    for streams in (1, 3):
        step = graphc.compile(
            graphc.grad(loss, argnums=(0, 1, 2)),
            *arrays,
            device="sim",
            streams=streams,
            precision="tf32",
        )
        assert "in turns" in str(step.plan)
        found += [[np.asarray(x) for x in step(*arrays)] for _ in range(2)]
    for each in found[1:]:
        for got, want in zip(each, found[0], strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    ("name", "nvrtc"), [*((name, True) for name in LARGE), ("d64", False), ("d128", False)]
)
def test_heads_of_real_models_spill_nothing(
    name: str, nvrtc: bool, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attend, "CASES", {**attend.CASES, **LARGE})
    kernel = taken(node_of(name, "bf16", gradient=True))
    usage = usage_of(kernel, nvrtc, arch, tmp_path)
    assert {symbol for symbol, used in usage.items() if used.spilled} == set()
