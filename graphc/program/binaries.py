"""Compiled kernels in the file of a program, for machines without a compiler.

They are machine code for the CPU that they were compiled on, and as dangerous as any program. So
they are used only where the user says that the file is trusted, on a CPU that has all instruction
sets, and by the version of graphc, Python and NumPy that saved them. Then nothing is compiled: the
plan of the file is verified and runs the kernels of the file.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import BUGS, GraphError, PlanError, described
from graphc.files.fields import Fields, pairs_of
from graphc.files.safetensors import FormatError
from graphc.ir import Graph, Layout
from graphc.ir.state import PackedBuffer, StateBuffer
from graphc.program.making import optimize
from graphc.program.program import Program
from graphc.program.saved_parts import Parts

OBJECT, PLACED_ARRAY = "object/", "placed/"
"""What the names of a file's arrays begin with."""


def collect(program: Program) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the record of a program's binaries as JSON, and the objects and constants as arrays.

    Raises:
        GraphError: The program runs on another device than the CPU.
    """
    from graphc.runtime.compilers.player_library import player_object
    from graphc.runtime.compilers.shared_objects import cpu_features
    from graphc.runtime.compilers.translation_units import kernel_keys, object_of
    from graphc.runtime.cpu.executable import CpuExecutable

    executable = program.executable
    if program.plan is None or not isinstance(executable, CpuExecutable):
        raise GraphError(
            f"save: binaries=True holds kernels for a CPU, {program.name} is for "
            f"{program.target.device}"
        )
    keys = kernel_keys(program.plan.kernels)
    arrays: dict[str, Array] = {}
    objects = {key: _added(arrays, object_of(f"{key}.so")) for key in dict.fromkeys(keys.values())}
    player = _added(arrays, player_object())
    names = {id(buffer): name for name, buffer in program.bound.items()}
    packed = [
        [name, [names[id(buffer.source)], buffer.layout.axis, buffer.layout.width]]
        for name, buffer in executable.state_buffers.items()
        if isinstance(buffer, PackedBuffer)
    ]
    own = [name for name in program.bound if name not in program.buffers]
    arrays |= {PLACED_ARRAY + name: program.bound[name].array for name in own}
    record = {
        "version": _version(),
        "features": [*cpu_features()],
        "keys": keys,
        "objects": objects,
        "player": player,
        "bound": [*program.bound],
        "packed": packed,
    }
    return record, arrays


def load(
    parts: Parts,
    plan: Any,
    digest: str,
    record: Fields,
    arrays: Mapping[str, Array],
    threads: int | None,
) -> Program:
    """Return the program that runs the binaries of a trusted file.

    Args:
        parts: What the file says of the program.
        plan: The plan as JSON.
        digest: That of the plan.
        record: What `collect` returned.
        arrays: The arrays of the file.
        threads: The number of CPU threads.

    Raises:
        GraphError: The binaries are of another version or for another CPU.
        PlanError: The plan is not valid, or another than that of the file's certificate.
        FormatError: The record is damaged.
    """
    from graphc.runtime.compilers.player_library import adopt_player
    from graphc.runtime.cpu.executable import CpuExecutable
    from graphc.runtime.plan.saved import decoded_plan

    _check_machine(record.texts("version"), record.texts("features"))
    keys, objects = record.table("keys", str), record.table("objects", str)
    player, names = record.take("player", str), record.texts("bound")
    packed = pairs_of(record.take("packed", list), "packed")
    record.end()
    try:
        planned = decoded_plan(plan)
        certificate = planned.verify()
    except BUGS as bug:
        raise PlanError(f"load: the plan cannot be read: {described(bug)}") from bug
    if certificate.digest != digest or planned.kernels.keys() != keys.keys():
        raise PlanError(
            f"load: the plan is {certificate.digest}, the file's certificate is for {digest}"
        )
    own = parts.whole.buffers
    bound = {
        name: own[name] if name in own else StateBuffer(_array(arrays, PLACED_ARRAY + name))
        for name in names
    }
    state = dict(bound)
    for name, source in packed:
        state[name] = _packed(bound, source)
    with tempfile.TemporaryDirectory(prefix="graphc-") as folder:
        adopt_player(_written(Path(folder, "player.so"), arrays, player))
        functions = _functions(Path(folder), keys, objects, arrays)
        _, recipe = parts.recipe(threads)
        settings, target = recipe.settings, recipe.target
        executable = CpuExecutable(planned, state, settings.threads, functions)
        stages: dict[str, Graph] = {"saved": parts.whole.graph}

        def find_stages() -> dict[str, Graph]:
            optimize(recipe, stages)
            return stages

        return Program(
            parts.traced,
            find_stages,
            planned,
            executable,
            bound,
            parts.rule,
            target,
            settings.check,
            recipe,
        )


def _packed(state: Mapping[str, StateBuffer], source: Any) -> StateBuffer:
    try:
        origin, axis, width = source
        return state[origin].packed(Layout(axis, width))
    except BUGS:
        raise FormatError(f"binaries: no packed state: {source}") from None


def _version() -> list[str]:
    """What binaries are good for: graphc, the player's sources, Python and NumPy."""
    from graphc.runtime.compilers.player_library import player_digest
    from graphc.runtime.plan_store import sources_digest

    return [sources_digest(), player_digest(), hex(sys.hexversion), np.__version__]


def _check_machine(version: Iterable[str], features: Iterable[str]) -> None:
    from graphc.runtime.compilers.shared_objects import cpu_features

    if [*version] != _version():
        raise GraphError(
            "the binaries are of another version of graphc, Python or NumPy: load without "
            "trusted=True compiles the kernels"
        )
    lacking = sorted({f for f in features if "=" not in f} - {*cpu_features()})
    if lacking:
        raise GraphError(
            f"the binaries are for a CPU with {', '.join(lacking[:4])}, which this one "
            "lacks: load without trusted=True compiles the kernels"
        )


def _added(arrays: dict[str, Array], content: bytes) -> str:
    """The name of an object among the arrays, where it is held once."""
    name = f"{OBJECT}{hashlib.sha256(content).hexdigest()[:16]}"
    arrays[name] = np.frombuffer(content, np.uint8)
    return name


def _array(arrays: Mapping[str, Array], name: str) -> Array:
    if name not in arrays:
        raise FormatError(f"binaries: no array {name}")
    return arrays[name]


def _written(path: Path, arrays: Mapping[str, Array], name: str) -> Path:
    path.write_bytes(_array(arrays, name).tobytes())
    return path


def _functions(
    folder: Path, keys: Mapping[str, str], objects: Mapping[str, str], arrays: Mapping[str, Array]
) -> dict[str, int]:
    """The address of each kernel's function, by the kernel's name."""
    from graphc.runtime.compilers.shared_objects import address_of

    libraries: dict[str, ctypes.CDLL] = {}
    for number, name in enumerate(dict.fromkeys(objects.values())):
        path = _written(folder / f"{number}.so", arrays, name)
        try:
            libraries[name] = ctypes.CDLL(str(path))
        except OSError as problem:
            raise GraphError(f"the system refuses a binary: {problem}") from None
    functions = {}
    for kernel, key in keys.items():
        functions[kernel] = address_of(libraries[objects[key]], f"kernel_{key}")
    return functions
