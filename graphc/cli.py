"""The command line: `graphc show`, `explain`, `profile`, `report`, `export`, `doctor`, `cache`."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from graphc.base import config
from graphc.base.cores import usable_cores
from graphc.base.errors import CompileError, GraphError, PlanError, RunError
from graphc.nn.module import Module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 is success; 1 an error of graphc, which is printed, or `doctor` without a compiler; 2 an
    unknown command; 141 a closed pipe, as of a program that SIGPIPE ends.
    """
    options = _parser().parse_args(arguments)
    try:
        for line in options.run(options):
            print(line)
        sys.stdout.flush()
    except (GraphError, CompileError, PlanError, RunError) as error:
        print(f"graphc: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The interpreter flushes once more when it ends, and would say that it cannot.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    return 1 if options.run is _doctor and not _compiles() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="graphc", description="Look at compiled programs.")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, help: str, run: Callable[[Any], Iterator[str]]) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=help)
        command.set_defaults(run=run)
        if name not in ("doctor", "cache"):
            place = "a program, or a function giving one"
            command.add_argument("program", metavar="FILE.py:NAME", help=place)
        return command

    show = add("show", "print a program's stages, kernels or plan", _show)
    show.add_argument("--stage", help="a pass's name, or kernels, or plan; default: the last pass")
    show.add_argument("--diff", action="store_true", help="what the stage, or each one, changed")
    explain = add("explain", "say why a thing is as it is", _explain)
    explain.add_argument("what", help="a kernel, value, event e3, work+0..64, module or file.py:3")
    add("memory", "say what holds the peak of the memory", _memory)
    profile = add("profile", "time a program's kernels, on made-up arrays", _profile)
    profile.add_argument("--repeats", type=int, default=20, help="calls that are measured")
    profile.add_argument("--by-module", action="store_true", help="add up by module")
    profile.add_argument("--trace", metavar="FILE.json", help="write one call for Perfetto")
    report = add("report", "write what is known of a program as one HTML file", _report)
    report.add_argument("--versus", metavar="FILE.py:NAME", help="another one, beside it")
    report.add_argument("--output", metavar="FILE.html", help="default: NAME.html of the program")
    report.add_argument("--no-measure", action="store_true", help="do not time the kernels")
    export = add("export", "write a program as C and C++ sources", _export)
    export.add_argument("folder", help="a new folder")
    export.add_argument("--target", default="x86-64", help="such as x86-64-avx2, wasm32, cuda")
    export.add_argument("--name", help="the prefix of names in C; default: that of the function")
    export.add_argument("--threads", action="store_true", help="let kernels use several threads")
    export.add_argument("--weights-in-code", action="store_true", help="write them as an array too")
    add("doctor", "print what graphc finds on this machine", _doctor)
    cache = add("cache", "print the cache's place and size", _cache)
    cache.add_argument("--clear", action="store_true", help="remove what graphc has put there")
    cache.add_argument("--fill", action="store_true", help="build the prebuilt CPU kernels first")
    return parser


def _show(options: argparse.Namespace) -> Iterator[str]:
    if options.diff:
        return show_diff(options.program, options.stage)
    return show_program(options.program, options.stage)


def _explain(options: argparse.Namespace) -> Iterator[str]:
    yield str(_find(options.program, "explain").explain(options.what))


def _memory(options: argparse.Namespace) -> Iterator[str]:
    yield str(_find(options.program, "memory").memory())


def _profile(options: argparse.Namespace) -> Iterator[str]:
    if options.repeats < 1:
        raise GraphError(f"profile: expected at least 1 for --repeats, got {options.repeats}")
    profile = _find(options.program, "profile").profile_random_inputs(options.repeats)
    yield profile.by_module() if options.by_module else str(profile)
    if options.trace:
        profile.to_chrome_trace(options.trace)
        yield f"one call is in {options.trace}: open it at ui.perfetto.dev"


def _report(options: argparse.Namespace) -> Iterator[str]:
    measure = not options.no_measure
    return report_program(options.program, options.versus, options.output, measure)


def _export(options: argparse.Namespace) -> Iterator[str]:
    _find(options.program, "export").export(
        options.folder,
        options.target,
        name=options.name,
        threads=options.threads,
        weights_in_code=options.weights_in_code,
    )
    yield f"{options.folder}: README.md says how to build it and how to call it"


def _doctor(options: argparse.Namespace) -> Iterator[str]:
    return doctor()


def _cache(options: argparse.Namespace) -> Iterator[str]:
    if options.fill:
        from graphc.runtime.compilers.player_library import player_library
        from graphc.runtime.compilers.prebuilt_library import build_library

        build_library()
        player_library()
    return cache_lines(options.clear)


def show_diff(place: str, stage: str | None) -> Iterator[str]:
    """What a stage of a program changed, or what each did, as diffs of the graph's text.

    Raises GraphError as `show_program` does.
    """
    from graphc.inspect.formats import stage_diffs

    found = stage_diffs(_find(place, "show").stages)
    if stage is not None and stage not in found:
        raise GraphError(f"stage: expected one of {', '.join(found)} with --diff, got {stage!r}")
    for name in found if stage is None else [stage]:
        yield found[name] or f"{name} changed nothing"


def show_program(place: str, stage: str | None) -> Iterator[str]:
    """A stage of the program that FILE.py:NAME holds, or that the function NAME() gives.

    Raises GraphError if there is no such file, name or stage.
    """
    program = _find(place, "show")
    stages = list(program.stages)
    if stage is None:
        stage = stages[-1]
    if stage in program.stages:
        yield str(program.stages[stage])
    elif stage == "plan":
        yield (
            "no plan: the reference device plays the graph"
            if program.plan is None
            else str(program.plan)
        )
    elif stage == "kernels":
        yield from program.kernels.values()
    else:
        known = ", ".join([*stages, "kernels", "plan"])
        raise GraphError(f"stage: expected one of {known}, got {stage!r}")


def report_program(
    place: str, versus: str | None, output: str | None, measure: bool
) -> Iterator[str]:
    """Write the report of a program, beside another one if given, and print its path.

    The program is called with zeros. It raises GraphError as `show_program` does, or if the file
    cannot be written.
    """
    program = _find(place, "report")
    path = Path(output or f"{program.name}.html")
    other = None if versus is None else _find(versus, "report")
    program.report(path, versus=other, measure=measure)
    yield f"{path}: {path.stat().st_size / 1e6:.2f} MB"


def doctor() -> Iterator[str]:
    """What graphc finds: versions, cores, compilers, the cache, the settings."""
    yield f"graphc     {_version('graphc')}, Python {platform.python_version()}"
    for package in ("numpy", "networkx", "pycuda", "cuda-bindings"):
        yield f"{package:10} {_version(package)}"
    yield f"machine    {platform.machine()}, {usable_cores()} usable cores"
    yield from _compiler_lines()
    yield from _gpu_lines()
    yield f"nvcc       {shutil.which('nvcc') or 'none'}"
    yield from (f"cache      {line}" for line in cache_lines(clear=False))
    yield f"settings   {config.read()}"


def cache_lines(clear: bool) -> Iterator[str]:
    """The cache's folder and size in files and bytes; `clear` removes what graphc put there."""
    from graphc.runtime.compilers import cache

    folder, found = config.cache_dir(), cache.entries()
    count, nbytes = sum(entry.files for entry in found), sum(entry.nbytes for entry in found)
    yield f"{folder}: {count} files, {nbytes / 1e6:.1f} MB"
    if clear:
        left = [str(path.relative_to(folder)) for path in cache.clear()]
        yield f"removed; graphc did not make {', '.join(left)}" if left else "removed"


def _compiles() -> bool:
    """Whether there is a compiler for the CPU's kernels."""
    from graphc.runtime.compilers.compiler import find_compiler

    try:
        return bool(find_compiler())
    except CompileError:
        return False


def _compiler_lines() -> Iterator[str]:
    from graphc.runtime.compilers.compiler import find_compiler
    from graphc.runtime.compilers.shared_objects import cpu_target

    target = cpu_target()
    first, second = (nbytes // 1024 for nbytes in (target.caches.first, target.caches.second))
    yield f"cpu        {target.lanes} float32 in a vector, caches of {first} and {second} KiB"
    try:
        compiler = find_compiler()
        yield f"compiler   {compiler.command[0]}: {compiler.version}"
    except CompileError as error:
        yield f"compiler   {error}"
    yield f"prebuilt   {_prebuilt()}"


def _prebuilt() -> str:
    """Where the prebuilt kernels come from."""
    from graphc.runtime.compilers.prebuilt_library import find_library

    library = find_library(build=False)
    return library.handle._name if library else "not built yet: graphc cache --fill"


def _gpu_lines() -> Iterator[str]:
    from graphc.runtime.cuda.parts import describe_parts

    yield from (f"gpu        {line}" for line in describe_parts())


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _find(place: str, command: str) -> Any:
    file, colon, name = place.rpartition(":")
    path = Path(file if colon else place)
    if not path.is_file():
        raise GraphError(f"{command}: expected FILE.py:NAME, got {place!r}: no such file")
    if not name or not colon:
        raise GraphError(f"{command}: expected FILE.py:NAME, got {place!r}: no name")
    module = _load(path, command)
    if not hasattr(module, name):
        raise GraphError(f"{command}: {path.name} has no {name}{_alternatives(module)}")
    found = getattr(module, name)
    if callable(found) and not isinstance(found, Module) and not hasattr(found, "stages"):
        found = _call(found, f"{name} in {path.name}", command)
    if not hasattr(found, "stages"):
        compiled = f": {name} is not compiled" if isinstance(found, Module) else ""
        raise GraphError(
            f"{command}: expected {name} in {path.name} to be a program or a function that gives "
            f"one, got {type(found).__name__}{compiled}"
        )
    return found


def _load(path: Path, command: str) -> ModuleType:
    """The file, run as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise GraphError(f"{command}: expected FILE.py:NAME, got {path.name}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _call(function: Any, name: str, command: str) -> Any:
    """What the function gives; GraphError if it wants arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise GraphError(
            f"{command}: expected {name} to be a function without arguments that gives a program, "
            f"got {function.__name__}{inspect.signature(function)}"
        ) from None
    return function()


def _alternatives(module: ModuleType) -> str:
    """The names in `module` that can be shown."""
    names = [
        name
        for name, value in vars(module).items()
        if hasattr(value, "stages")
        or (inspect.isfunction(value) and value.__module__ == module.__name__)
    ]
    return f"; it has {', '.join(names)}" if names else ""
