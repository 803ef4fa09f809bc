"""Many programs in one process: what they hold, and that dropping them gives it back."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc import nn
from tools.soak.vitals import KIB, check, vitals

ROUNDS = 3
SLACK = 32 << 20
"""Bytes by which a later round may be larger: the allocator keeps what it has cut into pieces."""


def made(number: int) -> tuple[Any, Any]:
    """Return a program whose sizes no other one has, and its input f32 [3, width]."""
    width = number + 1
    model = nn.Sequential(nn.Linear(width, 4), nn.ReLU())
    program = graphc.compile(model, graphc.spec((3, width)))
    return program, np.full((3, width), 0.5, np.float32)


def many_programs(amount: int, folder: Path) -> Mapping[str, Any]:
    """Hold this many different programs at once, call each, drop them; three times over."""
    os.environ["GRAPHC_TIER"] = "0"
    made(0)[0](made(0)[1])
    before = vitals()
    full, empty = [], []
    for _ in range(ROUNDS):
        programs = [made(number) for number in range(amount)]
        results = [program(x).sum() for program, x in programs]
        check(bool(np.isfinite(results).all()), "results")
        full.append(vitals())
        alive = [weakref.ref(program) for program, _ in programs]
        programs.clear()
        gc.collect()
        check(all(ref() is None for ref in alive), "programs that are dropped stay in memory")
        empty.append(vitals())
    for name in ("files", "mappings", "threads"):
        numbers = [getattr(each, name) for each in (*full[1:], *empty[1:])]
        most = getattr(full[0], name) + (64 if name == "mappings" else 0)
        check(max(numbers) <= most, f"{name}: {numbers}, first {most}")
    sizes = [each.resident for each in empty]
    check(sizes[-1] <= sizes[0] + SLACK, f"resident bytes after dropping: {sizes}")
    check(max(f.resident for f in full) <= full[0].resident + SLACK, f"resident bytes: {full}")
    return {
        "programs": amount,
        "rounds": ROUNDS,
        "KiB per program": (full[0].resident - before.resident) // KIB // amount,
        "files grown": full[-1].files - before.files,
        "threads grown": full[-1].threads - before.threads,
        "MiB after each round": [size >> 20 for size in sizes],
    }


def one_again(amount: int, folder: Path) -> Mapping[str, Any]:
    """Compile, call and drop one and the same program again and again: nothing grows."""
    seen = []
    for number in range(amount + amount // 4):
        program, x = made(5)
        program(x)
        del program
        if number == amount // 4:
            gc.collect()
            seen.append(vitals())
    gc.collect()
    seen.append(vitals())
    grown = seen[1].resident - seen[0].resident
    check(grown <= 4 << 20, f"{grown} bytes more after {amount} programs")
    check(seen[1].files <= seen[0].files, f"files: {seen}")
    check(seen[1].mappings <= seen[0].mappings + 16, f"mappings: {seen}")
    return {"programs": amount, "bytes per program": max(0, grown) // amount}


def compiled_kernels(amount: int, folder: Path) -> Mapping[str, Any]:
    """Load kernels of this many programs that a compiler has built: what loaded objects hold."""
    os.environ["GRAPHC_TIER"] = "1"
    made(0)
    before = vitals()
    for number in range(amount):
        program, x = made(number)
        program(x)
    after = vitals()
    check(after.files == before.files, "loaded objects keep files open")
    return {
        "programs": amount,
        "mappings per program": round((after.mappings - before.mappings) / amount, 1),
        "KiB per program": (after.resident - before.resident) // KIB // amount,
    }
