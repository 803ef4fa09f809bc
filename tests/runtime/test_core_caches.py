"""The sizes of caches: where they come from and what they change."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import graphc
from graphc.base.target import Caches, Target
from graphc.ir import Type
from graphc.kernels.cpu.contract.schedule import ranked
from graphc.kernels.cpu.contract.tile import STACK_BYTES
from graphc.kernels.program.nest import contraction_nest
from graphc.ops.fused import Fused
from graphc.passes.pipeline import AFTER_GRADIENT
from graphc.passes.rewriting.runner import run_passes
from graphc.program import make_plan_of
from graphc.runtime.compilers.core_caches import CORE, read_caches
from graphc.runtime.compilers.shared_objects import cpu_target
from tests.kernels.harness import traced

KIB = 1024
AMD = (("Data", 1, "32K", "0"), ("Instruction", 1, "64K", "0"), ("Unified", 2, "1024K", "0"))
THREADS = (("Data", 1, "48K", "0,32"), ("Unified", 2, "2048K", "0,32"), ("Unified", 3, "9K", "0"))
CLUSTER = (("Data", 1, "64K", "0"), ("Unified", 2, "4096K", "0-3"))


def core(folder: Path, caches: tuple[tuple[str, int, str, str], ...], threads: str = "0") -> Path:
    """What the system says of a core with these caches: type, level, size, who shares it."""
    for number, (kind, level, size, shared) in enumerate(caches):
        index = folder / "cache" / f"index{number}"
        index.mkdir(parents=True)
        named = {"type": kind, "level": level, "size": size, "shared_cpu_list": shared}
        for name, text in named.items():
            (index / name).write_text(f"{text}\n")
    (folder / "topology").mkdir()
    (folder / "topology" / "thread_siblings_list").write_text(f"{threads}\n")
    return folder


@pytest.mark.parametrize(
    "caches, threads, expected",
    [
        (AMD, "0", Caches(32 * KIB, 1024 * KIB)),
        (THREADS, "0,32", Caches(48 * KIB, 2048 * KIB)),
        (CLUSTER, "0", Caches(64 * KIB, 1024 * KIB)),
    ],
)
def test_data_caches_are_read_and_shared_ones_divided_among_cores(
    caches: tuple[tuple[str, int, str, str], ...], threads: str, expected: Caches, tmp_path: Path
) -> None:
    assert read_caches(core(tmp_path, caches, threads)) == expected


@pytest.mark.parametrize(
    "caches",
    [
        (),
        (("Data", 1, "", "0"),),
        (("Data", 1, "0K", "0"), ("Unified", 2, "0K", "0")),
        (("Data", 1, "32K", "0"), ("Unified", 2, "16K", "0")),
        (("Data", 1, "32K", "0"), ("Unified", 2, "999999K", "0")),
        (("Data", 1, "many", "0"), ("Unified", 2, "1024K", "?")),
    ],
)
def test_what_no_core_has_counts_as_unknown(
    caches: tuple[tuple[str, int, str, str], ...], tmp_path: Path
) -> None:
    assert read_caches(core(tmp_path, caches)) == Caches()


def test_a_system_that_says_nothing_has_the_defaults(tmp_path: Path) -> None:
    assert read_caches(tmp_path / "none") == Caches() == Caches(32 * KIB, 1024 * KIB)


def test_the_target_of_this_machine_has_its_caches() -> None:
    assert cpu_target().caches == read_caches(CORE)
    if hasattr(os, "sysconf") and "SC_LEVEL1_DCACHE_SIZE" in os.sysconf_names:
        said = os.sysconf("SC_LEVEL1_DCACHE_SIZE")
        if (CORE / "cache" / "index0").is_dir() and said > 0:
            assert cpu_target().caches.first == said


def texts(target: Target) -> tuple[str, dict[str, str]]:
    """The plan and kernels of a product with a transposed weight that fills a second-level
    cache."""
    specs = graphc.spec((256, 4096)), graphc.spec((1024, 4096))
    traced = graphc.trace(lambda x, w: x @ graphc.permute_dims(w, (1, 0)), *specs)
    graph = run_passes(traced, target, AFTER_GRADIENT, lambda *_: None)
    plan = make_plan_of(graph, target, 1)
    return str(plan), {k.name: k.source for k in plan.kernels.values()}


def test_equal_figures_make_equal_plans_and_others_other_kernels() -> None:
    target = Target("cpu", 16, caches=Caches(32 * KIB, 1024 * KIB))
    assert texts(target) == texts(Target("cpu", 16)) == texts(replace(target, arch="another"))
    larger = replace(target, caches=Caches(128 * KIB, 16384 * KIB))
    assert texts(larger)[1] != texts(target)[1]


@pytest.mark.parametrize("second, packed", [(256, False), (1024, True), (65536, True)])
def test_a_panel_is_packed_where_it_fits_the_cache_and_the_stack(second: int, packed: bool) -> None:
    caches = Caches(32 * KIB, second * KIB)
    types = Type((512, 2048)), Type((1024, 2048))
    node = traced("product", lambda x, w: x @ graphc.permute_dims(w, (1, 0)), types)
    assert isinstance(node.op, Fused)
    schedule = ranked(contraction_nest(node.op.body), Target("cpu", 16, caches=caches), None, 1)[0]
    assert schedule is not None
    registers = schedule.outer.size * schedule.columns.size
    assert schedule.roles.packed == packed
    assert 64 * schedule.roles.length * registers <= min(caches.far, STACK_BYTES)
