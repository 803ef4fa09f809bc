"""Count the cores that this process may use, by its affinity and its control groups' quotas."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

SYSTEM = Path("/")
"""Where `proc` and `sys` lie."""
CONTROLLER = "cpu.max".partition(".")[0]
"""The name of the controller, and how the names of its files begin."""


def usable_cores(system: Path = SYSTEM) -> int:
    """Return the number of cores that this process may use, at least 1.

    A container often gets a share of the machine's time instead of cores of its own; more threads
    than that share would wait for each other.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _quotas(system))]))


def _quotas(system: Path) -> Iterator[float]:
    """Return how many cores' time each control group of this process allows it."""
    groups = system / "sys" / "fs" / "cgroup"
    try:
        memberships = (system / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for membership in memberships:
        _, controllers, path = membership.split(":", 2)
        if not controllers:
            yield from _along(groups, path, f"{CONTROLLER}.max")
        elif CONTROLLER in controllers.split(","):
            names = (f"{CONTROLLER}.cfs_quota_us", f"{CONTROLLER}.cfs_period_us")
            yield from _along(groups / CONTROLLER, path, *names)


def _along(mount: Path, path: str, *names: str) -> Iterator[float]:
    """Return the quota over the period, of a group and of the groups around it.

    Both numbers are in one file, or in one file each. The result is None where they are not two
    positive numbers: "max" and -1 mean that there is no quota.
    """
    group = Path(path.lstrip("/"))
    for folder in (group, *group.parents):
        try:
            words = " ".join((mount / folder / name).read_text() for name in names).split()
            quota, period = map(int, words)
        except (OSError, ValueError):
            continue
        if quota > 0 and period > 0:
            yield quota / period
