"""A stand-in for the library of prebuilt kernels: the generated kernels of some models, which count
their calls and look at their descriptions. With it the tests of two tiers run any program."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.compilers import player_library, prebuilt_library, translation_units
from graphc.runtime.compilers.background_builds import BUILDS
from graphc.runtime.compilers.translation_units import PendingKernel
from graphc.runtime.cpu import tiers
from tests.small_models import MODELS, loss_fn
from tests.tools import need_command

STOCKED = pytest.StashKey[tuple[Path, Path]]()
STAND_INS = ("mlp", "recurrent")
"""The models, one of them with loops."""
HEADER = """
#include <cstdint>
#include <cstdlib>
#include <cstring>
extern "C" long graphc_played;
static void look(void* const* arguments, const char* key) {
  const void* description = arguments[-1];
  if ((uintptr_t)description % 64 || std::memcmp(description, key, 32)) std::abort();
  __atomic_fetch_add(&graphc_played, 1, __ATOMIC_RELAXED);
}
"""
STAND_IN = """
extern "C" void kernel_{key}(void* const* arguments, int phase, int chunk);
extern "C" void stand_in_{key}(void* const* arguments, int phase, int chunk) {{
  look(arguments, "{key}");
  kernel_{key}(arguments, phase, chunk);
}}
"""


def program(model: str, **options: Any) -> tuple[graphc.Program, list[Any]]:
    """A training step of a small model, and arguments for it."""
    graphc.seed(3)
    make, shape = MODELS[model]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    options = {"update": optim.Adam(lr=0.01), "device": "cpu", "threads": 2, "seed": 1, **options}
    step = graphc.compile(loss_fn, make(), *specs, **options)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return step, [x, np.arange(shape[0], dtype=np.int32) % 10]


def outcome(step: graphc.Program, losses: list[Any]) -> list[bytes]:
    """The bits of losses and of what the step has left."""
    return [np.asarray(a).tobytes() for a in (*losses, *step.state_dict().values())]


def steps(step: graphc.Program, arguments: list[Any], count: int) -> list[bytes]:
    return outcome(step, [step(*arguments) for _ in range(count)])


def stock(folder: Path, sources: Path) -> None:
    """Fill the cache in `folder` with the player and a library of the kernels of the models, whose
    text is in `sources`."""
    os.environ["GRAPHC_CACHE_DIR"] = str(folder)
    player_library._player.__wrapped__()  # this process may have it from another cache
    sources.mkdir()
    (sources / "counter.cpp").write_text('extern "C" { long graphc_played = 0; }')
    seen: set[str] = set()
    for model in STAND_INS:
        step, arguments = program(model, wait=True)
        step(*arguments)
        plan = step.plan
        assert plan is not None
        keys = {digest(k): name for name, k in plan.kernels.items() if digest(k) not in seen}
        unit = [PendingKernel(plan.kernels[name], "", key) for key, name in keys.items()]
        text = [HEADER, translation_units._unit_text(unit)]
        text += [STAND_IN.format(key=key) for key in keys]
        (sources / f"{model}.cpp").write_text("".join(text))
        seen.update(keys)
    forget(folder)


def forget(folder: Path) -> None:
    """Remove compiled kernels and plans from a cache, not the player and the library."""
    for kernel in (folder / "cpu").glob("*.so"):
        if "-" not in kernel.name:
            kernel.unlink()
    shutil.rmtree(folder / "plans", ignore_errors=True)


def describe(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The stand-in of a kernel."""
    return Prebuilt(f"stand_in_{digest(kernel)}", digest(kernel).encode())


def digest(kernel: Kernel) -> str:
    """What names a kernel's stand-in."""
    return hashlib.sha256(kernel.canonical.encode()).hexdigest()[:32]


class StandIns:
    """The stand-in library, in use until `undo`."""

    def __init__(self, sources: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        patch.delenv("GRAPHC_TIER", raising=False)
        patch.setattr(prebuilt_library, "SOURCES", sources)
        patch.setattr(tiers, "prebuilt", describe)

    def forget(self) -> None:
        """Remove the compiled kernels from the cache."""
        forget(Path(os.environ["GRAPHC_CACHE_DIR"]))

    def lacking(self, templates: Collection[str]) -> None:
        """Let kernels of these templates have no stand-in."""

        def some(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
            return None if kernel.template in templates else describe(node, kernel, target)

        self.patch.setattr(tiers, "prebuilt", some)

    @property
    def played(self) -> int:
        """How often stand-ins have been called."""
        library = prebuilt_library.find_library()
        assert library is not None
        return ctypes.c_long.in_dll(library.handle, "graphc_played").value


@pytest.fixture(scope="session")
def stocked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A cache with the player and the stand-in library, and the folder of the library's source."""
    need_command("g++", "clang++")
    stash = request.config.stash
    if STOCKED not in stash:  # each module that imports the fixture has one of its own
        stash[STOCKED] = _stock(tmp_path_factory.mktemp("stock"))
    return stash[STOCKED]


def _stock(folder: Path) -> tuple[Path, Path]:
    cache, sources = folder / "cache", folder / "sources"
    with pytest.MonkeyPatch.context() as patch:
        for variable in [name for name in os.environ if name.startswith("GRAPHC_")]:
            patch.delenv(variable)
        patch.setenv("GRAPHC_NUM_STREAMS", "1")
        patch.setenv("GRAPHC_PLAN_CACHE", "0")
        patch.setenv("GRAPHC_CACHE_DIR", str(cache))
        stock(cache, sources)
        patch.setattr(prebuilt_library, "SOURCES", sources)
        prebuilt_library.build_library()
    return cache, sources


@pytest.fixture
def stand_ins(
    stocked: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandIns]:
    """A copy of that cache in `tmp_path / "cache"`, and the stand-ins in use."""
    shutil.copytree(stocked[0], tmp_path / "cache", symlinks=True)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    try:
        yield StandIns(stocked[1], monkeypatch)
    finally:
        BUILDS.end()
