"""Parts of a convolution's sums that the launch of a batch norm behind it adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.kernels.cuda.contract import column_sums, contract_kernel
from graphc.kernels.cuda.shared.gpu_model import GPU
from tests.support.spills import NEEDED
from tests.tools import first_quick, need_command
from tools.spills.compiling import spills, usages

SHAPE = (8, 8, 7, 7)
SCHEDULES = contract_kernel.schedules


class Normed(nn.Module):
    """The second image has channels that fill no whole blocks."""

    def __init__(self) -> None:
        self.conv1, self.norm1 = nn.Conv2d(8, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 20, 3, padding=1), nn.BatchNorm2d(20)
        self.conv3 = nn.Conv2d(20, 8, 3)

    def forward(self, x: Any) -> Any:
        x = graphc.relu(self.norm1(self.conv1(x)))
        x = graphc.relu(self.norm2(self.conv2(x)))
        return self.conv3(x)


def cut(*arguments: Any) -> Any:
    """Every schedule with k in three parts, which a second launch adds, if there are such."""
    found = list(SCHEDULES(*arguments))
    return [replace(w, splits=3) for w in found if w.tile.k <= 32] or found


def compiled(device: str, **options: Any) -> Any:
    graphc.seed(0)

    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x, settings = graphc.spec(SHAPE), {"update": optim.SGD(lr=0.1), "precision": "tf32"}
    return graphc.compile(loss, Normed(), x, device=device, **settings, **options)


def steps(program: Any) -> dict[str, Any]:
    """The state after two steps."""
    x = np.random.default_rng(3).normal(1, 1, SHAPE).astype(np.float32)
    for _ in range(2):
        program(x)
    return dict(program.state_dict())


def adding(program: Any) -> list[Any]:
    return [k for k in program.plan.kernels.values() if "add_parts<Problem>(" in k.source]


@pytest.fixture
def parts(clean_environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    clean_environment.setenv("GRAPHC_TICKETS", "0")
    clean_environment.setattr(contract_kernel, "schedules", cut)
    return clean_environment


def test_training_is_as_by_the_reference(parts: pytest.MonkeyPatch):
    need_command("g++", "clang++")
    parts.setenv("GRAPHC_CHECK", "race")
    here = compiled("sim", streams=1)
    kernels = adding(here)
    assert [len(k.launches) for k in kernels] == [2, 2]
    assert ["dgrad" in k.name for k in kernels] == [False, True]
    got, want = steps(here), steps(compiled("reference"))
    several = steps(compiled("sim", streams=4))
    for key, array in got.items():
        scale = np.abs(want[key]).max()
        np.testing.assert_allclose(array, want[key], rtol=0, atol=2e-2 * scale, err_msg=key)
        assert array.tobytes() == several[key].tobytes()


def test_blocks_that_would_read_more_than_in_the_time_of_a_launch_add_none(
    parts: pytest.MonkeyPatch,
):
    read = 3 * 8 * 7 * 7 * 8 * 4  # three parts of eight columns
    for cycles, count in ((read / GPU.l2_rate_of_one, 2), (read / GPU.l2_rate_of_one - 1, 0)):
        parts.setattr(column_sums, "GPU", replace(GPU, launch=cycles))
        program = compiled("sim", streams=1)
        assert len(adding(program)) == count


@pytest.mark.parametrize("needed", NEEDED)
@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_they_fit_registers(needed: str, arch: str, parts: pytest.MonkeyPatch, tmp_path: Any):
    parts.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    texts = {k.name: k.source for k in adding(compiled("sim", streams=1))}
    found = dict(usages(texts, NEEDED[needed](), arch))
    assert len(found) == len(texts) == 2
    assert spills(found) == []
