"""Reductions of a contraction's columns in its epilogue: which, and that they mean the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.kernels.cuda.contract import column_sums, contract_kernel
from graphc.kernels.cuda.convolution.halo import HaloProductTile
from graphc.kernels.cuda.reduce import reduce, stage_text
from graphc.ops.fused import kernels_in
from tests.support.cuda_column_sums import Normed, compiled, images, joined, steps
from tests.tools import need_command


class Wide(Normed):
    """Whose runs of columns are no divisor of a block's threads."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(4, 24, 3, padding=1), nn.BatchNorm2d(24)
        self.conv2 = nn.Conv2d(24, 12, 3, padding=1)


class Deep(Normed):
    """Of whose channels blocks may have parts."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2, self.norm2 = nn.Conv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32)


class Beside(Normed):
    """Two normalised images that one kernel adds."""

    def forward(self, x: Any) -> Any:
        y = graphc.relu(self.norm1(self.conv1(x)))
        return graphc.relu(self.norm2(self.conv2(y)) + self.norm2(self.conv2(y * 2)))


class Twice(Normed):
    """Two norms of what one data gradient makes: its epilogue stores images that are read again."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1, bias=False)
        self.norm3, self.conv3 = nn.BatchNorm2d(8), nn.Conv2d(8, 12, 3, padding=1)

    def forward(self, x: Any) -> Any:
        x = graphc.tanh(self.conv1(x))
        x = x + self.norm1(x) + self.norm3(x * x)
        return self.norm2(self.conv2(x)) + self.conv3(x)


def cut(*arguments: Any) -> Any:
    """Every schedule with k in two parts."""
    return [replace(each, splits=2) for each in SCHEDULES(*arguments) if each.tile.k <= 32]


SCHEDULES = contract_kernel.schedules


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block keeps columns, as if the images were large."""
    monkeypatch.setattr(reduce, "ALONE_BYTES", 0)


@pytest.mark.parametrize(
    ("precision", "splits", "gathers"),
    [("float32", 1, False), ("float32", 2, True), ("tf32", 1, True), ("tf32", 2, False)],
)
def test_training_is_as_by_the_reference(
    precision: str, splits: int, gathers: bool, clean_environment: pytest.MonkeyPatch
):
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setenv("GRAPHC_TICKETS", "0")
    if gathers:
        clean_environment.setattr(stage_text, "GATHERED_BYTES", 0)
    if splits > 1:
        clean_environment.setattr(contract_kernel, "schedules", cut)
    here = compiled("sim", precision=precision, streams=1)
    kernels = [here.plan.kernels[name] for name in joined(here)]
    assert [len(kernel.launches) for kernel in kernels] == [
        splits + gathers + 1,  # and of the gradient another stage, the sum for the bias
        splits + gathers + 2,
    ]
    assert all("Results& results" in kernel.source for kernel in kernels)
    four = (splits > 1) * "__launch_bounds__(128, 4)"  # blocks, of which there are no more
    assert all(four in kernel.source for kernel in kernels)
    got, want = steps(here), steps(compiled("reference", precision=precision))
    tolerance = 1e-4 if precision == "float32" else 2e-2
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=tolerance * scale, err_msg=key)


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches are taken wherever they can be, those of parts, and of few columns and
    lines, first."""

    def cycles(tile: HaloProductTile, *_: Any) -> float:
        return tile.n + tile.lines / 100 - 100 * tile.splits

    monkeypatch.setattr(HaloProductTile, "cycles", cycles)


@pytest.mark.parametrize(
    ("model", "tickets"),
    [(Normed, False), (Normed, True), (Wide, False), (Twice, True), (Deep, True)],
)
def test_patches_add_up_columns(
    patches: None, model: type[Normed], tickets: bool, clean_environment: pytest.MonkeyPatch
):
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_CHECK", "race")
    clean_environment.setenv("GRAPHC_TICKETS", str(int(tickets)))
    clean_environment.setattr(stage_text, "GATHERED_BYTES", 0)
    clean_environment.setattr(column_sums, "JOINED", 3)
    here = compiled("sim", model, precision="tf32", streams=1)
    kernels = [here.plan.kernels[name] for name in joined(here)]
    assert len(kernels) >= 2
    for kernel in kernels:
        assert "HaloProduct" in kernel.source
        assert "Results& results" in kernel.source
        assert ("unsigned* counters" in kernel.source) == tickets
    cut = sum("StorePartial" in kernel.source for kernel in kernels)
    assert cut == (model is Deep)
    got, want = steps(here), steps(compiled("reference", model, precision="tf32"))
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=2e-2 * scale, err_msg=key)


def test_patches_with_columns_have_the_same_bits_for_every_number_of_streams(patches: None):
    need_command("g++", "clang++")
    one, four = (steps(compiled("sim", precision="tf32", streams=n)) for n in (1, 4))
    for key, array in one.items():
        np.testing.assert_array_equal(array, four[key])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_patches_with_columns_compile_without_spills(patches: None, arch: str):
    need_command("nvcc")
    from graphc.runtime.cuda.compile import compile_cuda

    for model in (Normed, Wide):
        program = compiled("cuda", model, precision="tf32")
        for kernel in (program.plan.kernels[name] for name in joined(program)):
            used = compile_cuda(kernel.source, kernel.name, arch).usage
            assert not any(u.spilled for u in used.values()), kernel.name


def test_what_a_later_launch_reads_again_is_not_written_over():
    need_command("g++", "clang++")
    here = compiled("sim", Twice, streams=1)
    assert any("dgrad" in name for name in joined(here))
    got, want = steps(here), steps(compiled("reference", Twice))
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=1e-4 * scale, err_msg=key)


def test_results_do_not_depend_on_streams():
    need_command("g++", "clang++")
    one, four = (steps(compiled("sim", streams=n)) for n in (1, 4))
    for key, array in one.items():
        np.testing.assert_array_equal(array, four[key])


def test_launches_fall_by_those_that_read_an_image_for_its_sums():
    def launches(program: Any) -> int:
        return sum(len(k.launches) for k in program.plan.kernels.values())

    apart = launches(compiled("cuda", streams=1, disable="fuse_columns"))
    assert launches(compiled("cuda", streams=1)) == apart - 2


@pytest.mark.parametrize("model", [Normed, Twice])
def test_an_image_that_nobody_reads_again_is_stored_by_one_name(model: type[nn.Module]):
    """A norm's gradient sums and scales one image: what follows from it is not stored besides."""
    program = compiled("cuda", model, streams=1)
    read = {v for n in program.graph.nodes for v in n.inputs} | program.graph.result_set
    found = [n for n in kernels_in(program.graph) if n.op.kernel in joined(program)]
    unread = [[v for v in n.outputs if v not in read] for n in found]
    assert any("dgrad" in n.op.kernel for n in found) or model is Normed
    assert all(len(values) <= 1 for values in unread), unread


def test_variances_are_exact_far_from_zero():
    """Each thread sums about an element of its own: a mean of many deviations costs nothing."""
    need_command("g++", "clang++")
    here, there = compiled("sim"), compiled("reference")
    assert joined(here)
    for program in (here, there):
        program(images() + 1000)
    got, want = (program.state_dict()["norm1.running_var"] for program in (here, there))
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_what_is_not_joined():
    assert not joined(compiled("cuda", disable="fuse_columns"))
    assert not joined(compiled("cpu"))
    several = compiled("cuda", Beside)
    assert not any(name.startswith("conv2_bias") for name in joined(several))


def test_small_images_are_reduced_by_one_launch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reduce, "ALONE_BYTES", 128 << 10)
    program = compiled("cuda")
    first = program.plan.kernels[joined(program)[0]]
    assert [launch.symbol.rpartition("_")[2] for launch in first.launches] == ["kernel", "kernel"]
    assert "Results& results" not in first.source


def test_the_reason_is_told():
    program = compiled("cuda")
    (first, *_) = joined(program)
    assert "its first sums are those of columns that a contraction has made" in str(
        program.explain(first)
    )
