"""Parts of a contraction's sums that the launch of a norm behind it adds: of a convolution, or of a
projection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.kernels.cuda.contract import column_sums, contract_kernel
from graphc.kernels.cuda.contract.split_k import BY_LAUNCH, Partial, SplitK, SplitKOptions
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.ops.fused import kernels_in
from graphc.passes.fuse import rows
from tests.support.spills import NEEDED
from tests.tools import first_quick, need_command
from tools.spills.compiling import spills, usages

SCHEDULES = contract_kernel.schedules


class Images(nn.Module):
    """The second image has channels that fill no whole blocks."""

    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(8, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 20, 3, padding=1), nn.BatchNorm2d(20)
        self.conv3 = nn.Conv2d(20, 8, 3)

    def forward(self, x: Any) -> Any:
        x = graphc.relu(self.norm1(self.conv1(x)))
        x = graphc.relu(self.norm2(self.conv2(x)))
        return self.conv3(x)


class Rows(nn.Module):
    """Rows that fill no whole blocks, and a residual beside the second one."""

    def __init__(self) -> None:
        self.up, self.norm1 = nn.Linear(96, 132), nn.LayerNorm(132)
        self.down, self.norm2 = nn.Linear(132, 96), nn.LayerNorm(96)
        self.head = nn.Linear(96, 100)

    def forward(self, x: Any) -> Any:
        y = graphc.relu(self.norm1(self.up(x)))
        return self.head(self.norm2(x + self.down(y)))


@dataclass(frozen=True)
class Case:
    """A model and the shape of its argument; whether each kernel that adds parts is of a gradient;
    the bytes of three parts that a block of one of them reads, and how many kernels read fewer."""

    model: type[nn.Module]
    shape: tuple[int, ...]
    gradients: list[bool]
    read: int
    fewer: int


CASES = {
    "columns": Case(Images, (8, 8, 7, 7), [False, True], 3 * 8 * 7 * 7 * 8 * 4, 0),
    "rows": Case(Rows, (3, 7, 96), [False, False, True, True], 3 * 8 * 132 * 4, 2),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def cut(*arguments: Any) -> Any:
    """Every schedule with k in three parts, which a second launch adds, if there are such."""
    found = list(SCHEDULES(*arguments))
    return [replace(w, splits=3) for w in found if w.tile.k <= 32] or found


def compiled(device: str, case: Case = CASES["rows"], **options: Any) -> Any:
    graphc.seed(0)

    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x, settings = graphc.spec(case.shape), {"update": optim.SGD(lr=0.1), "precision": "tf32"}
    return graphc.compile(loss, case.model(), x, device=device, **settings, **options)


def steps(program: Any, case: Case = CASES["rows"]) -> dict[str, Any]:
    """The state after two steps."""
    x = np.random.default_rng(3).normal(1, 1, case.shape).astype(np.float32)
    for _ in range(2):
        program(x)
    return dict(program.state_dict())


def adding(program: Any) -> list[Any]:
    return [k for k in program.plan.kernels.values() if "add_parts<Problem>(" in k.source]


@pytest.fixture
def parts(clean_environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    clean_environment.setenv("GRAPHC_TICKETS", "0")
    clean_environment.setattr(contract_kernel, "schedules", cut)
    clean_environment.setattr(rows, "LEAST_BYTES", 0)
    clean_environment.setattr(rows, "LEAST_SUMMED", 0)
    return clean_environment


def test_training_is_as_by_the_reference(case: Case, parts: pytest.MonkeyPatch):
    need_command("g++", "clang++")
    parts.setenv("GRAPHC_CHECK", "race")
    here = compiled("sim", case, streams=1)
    kernels = adding(here)
    assert [len(k.launches) for k in kernels] == [2] * len(case.gradients)
    assert ["dgrad" in k.name for k in kernels] == case.gradients
    got, want = steps(here, case), steps(compiled("reference", case), case)
    several = steps(compiled("sim", case, streams=4), case)
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=2e-2 * scale, err_msg=key)
        assert array.tobytes() == several[key].tobytes()


def test_blocks_that_would_read_more_than_in_the_time_of_a_launch_add_none(
    case: Case, parts: pytest.MonkeyPatch
):
    cycles = case.read / GPU.l2_rate_of_one
    for launch, count in ((cycles, len(case.gradients)), (cycles - 1, case.fewer)):
        parts.setattr(column_sums, "GPU", replace(GPU, launch=launch))
        assert len(adding(compiled("sim", case, streams=1))) == count


@pytest.mark.parametrize("needed", NEEDED)
@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_they_fit_registers(
    case: Case, needed: str, arch: str, parts: pytest.MonkeyPatch, tmp_path: Any
):
    parts.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    texts = {k.name: k.source for k in adding(compiled("sim", case, streams=1))}
    found = dict(usages(texts, NEEDED[needed](), arch))
    assert len(found) == len(texts) == len(case.gradients)
    assert spills(found) == []


def test_rows_that_other_blocks_have_are_read_by_another_launch(parts: pytest.MonkeyPatch):
    """A layer norm of a product in another shape, to which some rows are added as they are."""
    need_command("g++", "clang++")
    parts.setenv("GRAPHC_CHECK", "race")

    def normed(w: Any, x: Any) -> Any:
        y = x @ w
        z = graphc.reshape(y, (3, 8, 96)) + y[:8]
        return (z - graphc.mean(z, -1, keepdims=True)) / graphc.std(z, -1, keepdims=True)

    specs = graphc.spec((64, 96)), graphc.spec((24, 64))
    rng = np.random.default_rng(0)
    values = [rng.normal(0, 1, spec.shape).astype(np.float32) for spec in specs]
    want, got = (
        graphc.compile(normed, *specs, device=device)(*values) for device in ("reference", "sim")
    )
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_what_adds_parts_makes_the_bits_of_two_launches(parts: pytest.MonkeyPatch):
    need_command("g++", "clang++")
    together = steps(compiled("sim", streams=1))
    apart = compiled("sim", streams=1, disable="fuse_rows")
    assert not adding(apart)
    for key, array in steps(apart).items():
        assert array.tobytes() == together[key].tobytes(), key


def fused(program: Any) -> int:
    """The kernels with a contraction and reductions behind it."""
    nodes = kernels_in(program.stages["fuse_rows"])
    kinds = [{bool(n.op.contracts) for n in node.body.nodes if n.op.contracts or reduces(n)}
             for node in nodes]  # fmt: skip
    return kinds.count({True, False})


def reduces(node: Any) -> bool:
    return node.op.reduced_axes is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEAST_BYTES", 3 * 7 * 96 * 4 + 1),
        ("MOST_BYTES", 3 * 7 * 132 * 4 - 1),
        ("MOST_COLUMNS", 131),
    ],
)
def test_rows_of_other_sizes_stay_apart(name: str, value: int, parts: pytest.MonkeyPatch):
    assert fused(compiled("sim")) == 4
    parts.setattr(rows, name, value)
    assert fused(compiled("sim")) == 2


def test_sums_of_few_products_stay_apart(parts: pytest.MonkeyPatch):
    parts.setattr(rows, "LEAST_SUMMED", 97)
    assert fused(compiled("sim")) == 2  # of 132 and of 100 products, not of twice 96


def test_a_launch_that_is_behind_anyway_adds_parts_for_what_moving_them_takes():
    partial = Partial(4, 1 << 18, 4, 32, 128 * 64, True, False)
    moved = 4 * (1 << 20) / GPU.l2_rate
    behind = SplitKOptions(tickets=True, behind=True)
    assert behind.best(partial) == (2 * moved + 4 * GPU.partial_wait, SplitK.LAUNCH)
    assert BY_LAUNCH.best(partial)[0] - behind.best(partial)[0] >= GPU.launch_gap
