"""Contractions whose blocks are those of one launch, and reductions beside them: gradients of
parameters in training steps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ops.cost import node_bytes
from graphc.ops.fused import KernelNode, kernels_in
from graphc.passes.fuse import grouped_gemm
from graphc.passes.fuse.grouped_gemm import groups_in
from tests.tools import need_command

SHAPE = (8, 1, 20, 20)


class Images(nn.Module):
    """Gradients of filters have long sums, of which some are cut, those of matrices short ones."""

    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5)
        self.up, self.down = nn.Linear(16 * 4 * 4, 192), nn.Linear(192, 24)

    def forward(self, x: Any) -> Any:
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.relu(self.conv2(x)).reshape((8, -1))
        return self.down(graphc.relu(self.up(x)))


def compiled(device: str, precision: str = "tf32", **options: Any) -> Any:
    graphc.seed(0)

    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x, rule = graphc.spec(SHAPE), optim.SGD(lr=0.1)
    options = {"update": rule, "device": device, "precision": precision, **options}
    return graphc.compile(loss, Images(), x, **options)


def groups(program: Any) -> list[KernelNode]:
    return groups_in(program.graph)


def steps(program: Any, count: int = 2) -> dict[str, Any]:
    """The state after so many steps."""
    x = np.random.default_rng(3).normal(1, 1, SHAPE).astype(np.float32)
    for _ in range(count):
        program(x)
    return dict(program.state_dict())


@pytest.fixture(autouse=True)
def checked(clean_environment: pytest.MonkeyPatch) -> None:
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 1e-5), ("bfloat16", 1e-2)])
def test_a_step_is_as_by_the_reference(precision: str, tolerance: float) -> None:
    program = compiled("sim", precision)
    (node,) = groups(program)
    kernel = program.plan.kernels[node.op.kernel]
    names = [m.op.kernel for m in kernels_in(node.body)]
    assert [name for name in names if "grad" in name] == [
        "conv1_wgrad",
        "conv2_wgrad",
        "up_wgrad",
        "down_wgrad",
    ]
    assert [name for name in names if "grad" not in name] == ["up_d_sum", "down_d_sum", "mean"]
    launched = [launch.symbol.removeprefix(node.op.kernel) for launch in kernel.launches]
    assert launched == ["_kernel", "_kernel_wide", "_finish"]  # reductions have more threads
    expected = steps(compiled("reference", precision))
    for name, value in steps(program).items():
        np.testing.assert_allclose(value, expected[name], rtol=tolerance, atol=tolerance)


def test_results_depend_on_no_stream_count() -> None:
    one, *others = (steps(compiled("sim", streams=n), 1) for n in (1, 2, 4))
    for other in others:
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])


def test_blocks_of_fewer_threads_than_the_launch_play_too() -> None:
    (node,) = groups(compiled("cuda"))
    kernel = compiled("cuda").plan.kernels[node.op.kernel]
    played = re.findall(r"play_one<(\d+), ", kernel.source)
    assert min(map(int, played[:4])) < max(map(int, played[:4])) == kernel.launches[0].block[0]


def test_what_reads_another_member_is_none(clean_environment: pytest.MonkeyPatch) -> None:
    """The norm of all gradients is a reduction of what the group makes."""
    rule = optim.SGD(lr=0.1, clip_grad_norm=1.0)
    program = compiled("sim", update=rule)
    (node,) = groups(program)
    made = set(node.outputs)
    later = [n for n in kernels_in(program.graph) if n.op.template == "reduce"]
    assert any(made & set(n.inputs) for n in later)
    expected = steps(compiled("reference", update=rule), 1)
    for name, value in steps(program, 1).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)


def test_groups_are_tiled_as_for_a_share_of_the_device() -> None:
    """So k is cut in fewer parts than if each contraction filled it alone."""
    program = compiled("cuda")
    alone = compiled("cuda", disable="fuse_products").plan.kernels
    (node,) = groups(program)
    kernel = program.plan.kernels[node.op.kernel]
    first = [alone[n.op.kernel].launches[0].grid for n in kernels_in(node.body)]
    assert kernel.launches[0].grid[0] < sum(x * y for x, y, _ in first)
    assert kernel.workspace < sum(alone[n.op.kernel].workspace for n in kernels_in(node.body))


def test_what_is_not_grouped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not groups(compiled("cuda", disable="fuse_products"))
    assert not groups(compiled("cuda", precision="float32"))
    assert not groups(compiled("cpu"))
    for asked in ("GRAPHC_CLUSTERS", "GRAPHC_WGMMA"):
        with monkeypatch.context() as context:
            context.setenv(asked, "1")
            assert not groups(compiled("cuda"))
    grouped = {m.op.kernel for n in groups(compiled("cuda")) for m in kernels_in(n.body)}
    assert not any("dgrad" in name or "relu" in name for name in grouped)  # which others wait for
    monkeypatch.setattr(grouped_gemm, "SMALL_FLOPS", 10**3)
    monkeypatch.setattr(grouped_gemm, "MOST_FLOPS", 10**3)
    assert not groups(compiled("cuda"))


def test_larger_contractions_are_beside_those_that_are_alike(
    clean_environment: pytest.MonkeyPatch,
) -> None:
    """Three filters alike of four, which have one tile of fewer parts than each has alone."""

    class Alike(nn.Module):
        def __init__(self) -> None:
            self.first = nn.Conv2d(4, 16, 3, padding=1)
            self.convs = nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3)))

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for conv in self.convs:
                x = conv(graphc.tanh(x))
            return x

    def program(device: str, size: int = 12, **options: Any) -> Any:
        graphc.seed(0)
        x, rule = graphc.spec((4, 4, size, size)), optim.SGD(lr=0.1)
        options = {"update": rule, "device": device, "precision": "tf32", **options}
        return graphc.compile(lambda m, x: graphc.mean(m(x) ** 2), Alike(), x, **options)

    def trained(program: Any) -> dict[str, Any]:
        x = np.random.default_rng(3).normal(0, 1, (4, 4, 12, 12)).astype(np.float32)
        program(x)
        return dict(program.state_dict())

    clean_environment.setattr(grouped_gemm, "SMALL_FLOPS", 10**3)
    clean_environment.setattr(grouped_gemm, "MOST_SUMMED", 0)
    made = program("cuda", 56)
    (node,) = groups(made)
    members = [n.op.kernel for n in kernels_in(node.body)]
    assert sorted(members) == ["convs_0_wgrad", "convs_1_wgrad", "convs_2_wgrad"]
    alone = program("cuda", 56, disable="fuse_products").plan.kernels
    workspaces = [alone[name].workspace for name in members]
    assert made.plan.kernels[node.op.kernel].workspace < sum(workspaces)
    got, want = trained(program("sim")), trained(program("reference"))
    for key, array in got.items():
        np.testing.assert_allclose(array, want[key], rtol=1e-2, atol=1e-3, err_msg=key)
    four = trained(program("sim", streams=4))
    assert all(np.array_equal(array, four[key]) for key, array in got.items())


def test_a_group_keeps_so_many_bytes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = groups(compiled("cuda"))
    monkeypatch.setattr(grouped_gemm, "MOST_BYTES", 3 * node_bytes(whole) // 4)
    found = groups(compiled("cuda"))
    assert len(found) == 2
    for node in found:
        assert sum(map(node_bytes, kernels_in(node.body))) <= 3 * node_bytes(whole) // 4


def test_what_several_members_read_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = groups(compiled("sim"))
    assert sum(map(node_bytes, kernels_in(whole.body))) > node_bytes(whole)
    for most, together in ((node_bytes(whole), True), (node_bytes(whole) - 1, False)):
        monkeypatch.setattr(grouped_gemm, "MOST_BYTES", most)
        first = groups(compiled("sim"))[0]
        assert (len(first.body.nodes) == len(whole.body.nodes)) == together


def test_groups_and_what_they_hold_are_explained() -> None:
    program = compiled("cuda")
    (node,) = groups(program)
    said = str(program.explain(node.op.kernel))
    assert "group, the blocks of several contractions in one launch: " in said
    assert "no contraction waits for it, so one launch has its blocks and others'" in said
    member = kernels_in(node.body)[0].body.nodes[0]
    assert node.op.kernel in str(program.explain(member.output.name))


def test_a_limit_of_memory_takes_groups_apart_with_the_same_bits() -> None:
    """What the members read is held for a group, and a plan may not have the room."""
    whole = compiled("sim")
    (group,) = groups(whole)
    limit = 3 * whole.plan.peak_bytes // 4
    apart = compiled("sim", memory=limit)
    assert apart.plan.peak_bytes <= limit and not groups(apart)
    assert {n.op.kernel for n in kernels_in(group.body)} <= set(apart.plan.kernels)
    assert any(f"memory: {group.op.kernel} apart" in note for note in apart.plan.notes)
    expected = steps(whole)
    for name, value in steps(apart).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_groups_stay_where_memory_suffices_or_time_does_not() -> None:
    """`"lean"` buys memory for a quarter more time, which so many launches exceed here."""
    whole = compiled("cuda")
    for memory in (whole.plan.peak_bytes, "lean"):
        assert groups(compiled("cuda", memory=memory))


def test_members_of_one_form_share_their_functions() -> None:
    """Gradients of layers that are equal but for names, each with arrays of its own."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            self.layers = [nn.Linear(24, 24) for _ in range(4)]

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = graphc.tanh(layer(x))
            return x

    def trained(device: str) -> Any:
        graphc.seed(0)
        return graphc.compile(
            lambda model, x: graphc.mean(model(x) * model(x)),
            Deep(),
            graphc.spec((16, 24)),
            update=optim.SGD(lr=0.5),
            device=device,
            precision="tf32",
        )

    program, reference = trained("sim"), trained("reference")
    (node,) = groups(program)
    assert len(kernels_in(node.body)) >= 4
    assert program.kernels[node.op.kernel].count("_part {") < len(kernels_in(node.body))
    x = np.random.default_rng(5).normal(size=(16, 24)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(program(x), reference(x), rtol=1e-3)
    state = reference.state_dict()
    for name, value in program.state_dict().items():
        np.testing.assert_allclose(value, state[name], rtol=1e-3, atol=1e-4, err_msg=name)
