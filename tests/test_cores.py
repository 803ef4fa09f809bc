"""The cores that a process may use: fewer than it could run on where a quota says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphc.base.cores import usable_cores


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_it_is_the_affinity(system: Path) -> None:
    assert usable_cores(system) == 8


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("10000 100000", 1),
        ("max 100000", 8),
        ("1600000 100000", 8),
        ("", 8),
        ("what is this", 8),
        ("100000 0", 8),
    ],
)
def test_a_groups_quota_is_rounded_up(quota: str, cores: int, system: Path) -> None:
    _put(system / "proc/self/cgroup", "0::/box\n")
    _put(system / "sys/fs/cgroup/box/cpu.max", f"{quota}\n")
    assert usable_cores(system) == cores


def test_the_smallest_quota_of_the_groups_around_counts(system: Path) -> None:
    _put(system / "proc/self/cgroup", "0::/outer/inner\n")
    _put(system / "sys/fs/cgroup/outer/inner/cpu.max", "500000 100000\n")
    _put(system / "sys/fs/cgroup/outer/cpu.max", "300000 100000\n")
    assert usable_cores(system) == 3


def test_a_container_sees_its_own_group_as_the_root(system: Path) -> None:
    _put(system / "proc/self/cgroup", "0::/docker/0123\n")
    _put(system / "sys/fs/cgroup/cpu.max", "400000 100000\n")
    assert usable_cores(system) == 4


@pytest.mark.parametrize(("quota", "cores"), [("250000", 3), ("-1", 8)])
def test_groups_of_the_first_version(quota: str, cores: int, system: Path) -> None:
    _put(system / "proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n0::/\n")
    _put(system / "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", f"{quota}\n")
    _put(system / "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
    assert usable_cores(system) == cores
