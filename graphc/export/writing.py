"""Write programs as C and C++ sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import graphc
from graphc.base import config
from graphc.base.errors import GraphError
from graphc.export import build_files, readme, selftest
from graphc.export.cuda.architectures import architectures
from graphc.export.cuda.writing import gpu_files
from graphc.export.header import Module, header_text, model_text
from graphc.export.interface import functions_of
from graphc.export.lowering import check_program, check_sizes, lower_for
from graphc.export.memory import lay_out
from graphc.export.names import check_name, filled, identifier, native
from graphc.export.sources import kernels_of
from graphc.export.targets import Machine, find_machine
from graphc.export.wasm import wasm_files
from graphc.program.program import Program


def write(
    programs: Program | Mapping[str, Program],
    folder: str | Path,
    target: str,
    *,
    name: str | None,
    threads: bool,
    weights_in_code: bool,
    denormals: str | None,
    calls: int,
    inputs: Sequence[Sequence[Any]] | None,
) -> None:
    """Write programs as C and C++ sources; `graphc.export` describes it."""
    archs = architectures(target)
    machine = None if archs else find_machine(target)
    if machine is not None and threads and not machine.hosted:
        raise GraphError(f"export: threads=True needs an operating system, {target} has none")
    named = _named(programs)
    prefix = check_name("name", name or identifier(next(iter(named.values())).name))
    flush = _flush(target, machine is None or machine.flushes, denormals, named)
    if machine is not None:
        for program in named.values():
            check_program(program)
    place = _new_folder(Path(folder))
    for program in named.values():
        if program.update is not None:
            program.update.before_step(program.clock)
    options: dict[str, Any] = {"name": prefix, "threads": threads, "flush": flush}
    options |= {"weights_in_code": weights_in_code, "calls": calls, "inputs": inputs}
    files = (
        gpu_files(named, archs, **options)
        if machine is None
        else _cpu_files(named, machine, **options)
    )
    for path, contents in files.items():
        _write(place / path, contents)


def _cpu_files(
    programs: Mapping[str, Program],
    machine: Machine,
    *,
    name: str,
    threads: bool,
    weights_in_code: bool,
    flush: bool,
    calls: int,
    inputs: Sequence[Sequence[Any]] | None,
) -> dict[str, str | bytes]:
    """The files of an export for a machine, by their paths."""
    prefix = name
    weights_in_code |= machine.name == "cortex-m"
    entries = lower_for(machine, programs)
    memory = lay_out(entries)
    module = Module(
        name=prefix,
        machine=machine,
        functions=functions_of(prefix, entries),
        memory=memory,
        kernels=kernels_of(prefix, entries, machine),
        threads=threads,
        flush=flush,
        weights_in_code=weights_in_code,
        version=graphc.__version__,
    )
    _check_size(module)
    weights = memory.state.image() + memory.constants.image()
    test = selftest.selftest_of(module, calls, inputs)
    files: dict[str, str | bytes] = {
        f"{prefix}.h": header_text(module),
        f"{prefix}.weights": weights,
        "model.cpp": model_text(module),
        "README.md": readme.readme_text(module),
        "CMakeLists.txt": build_files.cmake_text(module),
        "build.sh": build_files.script_text(module),
        "selftest.c": selftest.selftest_text(module, test),
        "include/graphc/state.h": native("state.h"),
        "include/graphc/mode.h": native("mode.h"),
    }
    for number, text in enumerate(module.kernels.units()):
        files[f"kernels_{number}.cpp"] = text
    files |= {f"include/{path}": text for path, text in module.kernels.headers().items()}
    if weights_in_code:
        files["weights.c"] = build_files.weights_text(module, weights)
    if threads:
        files["include/graphc/pool.h"] = native("pool.h")
    if machine.name == "wasm32":
        files |= wasm_files(module, test)
    elif not machine.hosted:
        files |= _bare(module, calls * len(entries))
    return files


def _named(programs: Program | Mapping[str, Program]) -> dict[str, Program]:
    """The programs by the names of their functions."""
    if isinstance(programs, Program):
        check_sizes(programs)
        return {"run" if programs.update is None else "step": programs}
    if not isinstance(programs, Mapping) or not programs:
        kind = "no programs" if isinstance(programs, Mapping) else type(programs).__name__
        raise GraphError(f"export: expected a program, or a dict of programs by name, got {kind}")
    for name, program in programs.items():
        if not isinstance(program, Program):
            raise GraphError(f"export: {name} expected a program, got {type(program).__name__}")
        check_name("a function's name", name)
        check_sizes(program)
        if name in _TAKEN:
            raise GraphError(f"export: a function cannot be called {name}: every export has one")
    return dict(programs)


def _check_size(module: Module) -> None:
    """Raise GraphError for a program that an address of the machine cannot reach."""
    total = module.memory.arena + module.memory.state.size + module.weights_bytes
    total += sum(p.type.nbytes for f in module.functions for p in (*f.inputs, *f.outputs))
    most = (1 << 31) - 1
    if module.machine.pointer_bytes == 4 and total > most:
        raise GraphError(
            f"export: the program takes {total} bytes, with which {module.machine.name} has no "
            f"addresses: at most {most}"
        )


_TAKEN = frozenset(
    "init save restore start stop state constant close read write driver_error image".split()
)


def _flush(
    target: str, can_flush: bool, wanted: str | None, programs: Mapping[str, Program]
) -> bool:
    """Whether denormals count as zeros on a target that can, or cannot, do that."""
    if wanted not in (None, *config.DENORMALS):
        known = " or ".join(map(repr, config.DENORMALS))
        raise GraphError(f"export: denormals expected {known}, got {wanted!r}")
    if wanted == "flush" and not can_flush:
        raise GraphError(f'export: {target} has no mode that flushes denormals: denormals="keep"')
    settings = {program.recipe.settings.denormals for program in programs.values()}
    return can_flush and (wanted or min(settings)) == "flush"


def _new_folder(folder: Path) -> Path:
    """The folder, created if it is missing; GraphError if it is not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise GraphError(f"export: {folder} is not empty: give a new folder")
    except OSError as error:
        raise GraphError(f"export: cannot write {folder}: {error.strerror}") from None
    return folder


def _bare(module: Module, calls: int) -> dict[str, str]:
    """What a machine without an operating system starts with."""
    words = {"CALLS": str(calls), "UPPER": module.upper, "NAME": module.name}
    files = {name: native(name) for name in ("cortex_m.c", "cortex_m.h", "cortex_m.ld")}
    return files | {"selftest_main.c": filled(native("selftest_main.c"), words)}


def _write(path: Path, contents: str | bytes) -> None:
    raw = contents.encode() if isinstance(contents, str) else contents
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    except OSError as error:
        raise GraphError(f"export: cannot write {path}: {error.strerror}") from None
