"""Checkpoints: all that a training run needs to go on exactly, in one file per checkpoint.

A checkpoint is a sealed safetensors file (`graphc/files/sealed.py`) with the parameters, moments,
counters and keys of some programs and modules, the learning rates that were set, and data of the
user's. Files are written whole or not at all, and a damaged one is found by its digest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphc.base.errors import GraphError
from graphc.base.files import PARTIAL
from graphc.base.messages import log
from graphc.base.source_lines import error
from graphc.files.fields import Fields, list_of
from graphc.files.safetensors import DTYPES, FormatError, read_bytes
from graphc.files.sealed import folder_names, unsealed, write_sealed
from graphc.ir import Array
from graphc.ir.sliced_state import SlicedBuffer
from graphc.ir.state import StateBuffer, contents, overwrite
from graphc.nn.module import Module
from graphc.optim.rates import check_rates, rates_of, restore_rates
from graphc.program.program import Program

Source = Program | Module
Sources = Source | Mapping[str, Source]

KIND = "graphc checkpoint 1"
_NAME = re.compile(r"step-(\d{1,18})\.safetensors")
_ALONE = "program"
"""The name of a source that is given alone."""


@dataclass(frozen=True)
class Checkpoint:
    """What `load_checkpoint` has restored."""

    step: int
    """The number of the step that was given to `save_checkpoint`."""
    data: Any
    """The user's data."""
    path: Path
    """The file."""
    skipped: tuple[str, ...] = ()
    """Newer files that are damaged, and in what."""


def save_checkpoint(
    folder: str | os.PathLike[str],
    step: int,
    sources: Sources,
    *,
    data: Any = None,
    keep: int | None = 3,
) -> Path:
    """Write a checkpoint of a training run to a folder, as of one moment between steps.

    It holds all state of the programs: parameters, moments, running statistics and averages,
    counters of steps and random numbers, and learning rates. The position in a schedule is the
    number of steps. A file appears whole or not at all, even if the process is killed or the power
    fails. At any time, one process may write to a folder: of the ranks of `DataParallel`, whose
    state is the same, rank 0 writes, and the others return at once. With
    `shard_optimizer_state=True` and with `PipelineParallel` all ranks call this together, since
    rank 0 collects what each has.

    Args:
        folder: The folder, which is made if needed.
        step: The number of the step, which names the file; an existing file of it is replaced.
        sources: A program or module, or a dict from names to several. What they share is stored
            once.
        data: Small data for JSON, such as the position in the training data.
        keep: How many checkpoints to keep, those of the highest steps and this one; None keeps all.

    Returns:
        The path of the file, `folder/step-N.safetensors`.

    Raises:
        GraphError: The file cannot be written, or an argument is wrong.

    Example:
        >>> step = graphc.compile(
        ...     lambda m: graphc.sum(m.weight**2), nn.Linear(2, 1), update=optim.Adam()
        ... )
        >>> path = graphc.save_checkpoint("run", 1, step, data={"epoch": 0})
        >>> path.name
        'step-1.safetensors'
    """
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 10**18:
        raise error(f"save_checkpoint: step expected a whole number from 0 up, got {step!r}")
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
        raise error(f"save_checkpoint: keep expected a number from 1 up or None, got {keep!r}")
    named = _named("save_checkpoint", sources)
    path = Path(folder) / f"step-{step}.safetensors"
    groups = [s.group for s in named.values() if isinstance(s, Program)]
    writes = not any(group is not None and group.rank for group in groups)
    for group in filter(None, groups if writes else ()):
        group.check()
    tensors, buffers = _stored(named)
    others = _of_other_ranks(named, tensors)
    if not writes:
        sliced = {n: b for n, b in buffers.items() if isinstance(b, SlicedBuffer)}
        contents(sliced, "save_checkpoint")  # which rank 0 collects
        return path
    document = {
        "step": step,
        "data": data,
        "tensors": tensors,
        "rates": {n: rates_of(s.update) for n, s in named.items() if _trains(s)},
    }
    with suppress(OSError):  # which writing the file reports
        path.parent.mkdir(parents=True, exist_ok=True)
    arrays = others | contents(buffers, "save_checkpoint")
    try:
        write_sealed("save_checkpoint", path, KIND, document, arrays)
    except (TypeError, ValueError, RecursionError) as problem:
        raise error(f"save_checkpoint: data expected data for JSON: {problem}") from None
    _tidy(path, keep)
    return path


def load_checkpoint(path: str | os.PathLike[str], sources: Sources) -> Checkpoint | None:
    """Restore the newest intact checkpoint of a folder, or the checkpoint of a file.

    Damaged or truncated files of a folder are skipped with a warning. Either everything is restored
    or nothing is changed.

    Args:
        path: A folder that `save_checkpoint` wrote to, or one of its files.
        sources: The programs and modules, as given to `save_checkpoint` and compiled in the same
            way.

    Returns:
        The step, data and path of the checkpoint; None if the folder has no checkpoint yet, or does
        not exist.

    Raises:
        GraphError: All checkpoints are damaged, or one does not fit; the message says in what.

    Example:
        >>> step = graphc.compile(
        ...     lambda m: graphc.sum(m.weight**2), nn.Linear(2, 1), update=optim.Adam()
        ... )
        >>> _ = graphc.save_checkpoint("run", 7, step)
        >>> found = graphc.load_checkpoint("run", step)
        >>> found.step
        7
    """
    path, named = Path(path), _named("load_checkpoint", sources)
    if path.suffix == ".safetensors" and not path.is_dir():
        try:
            return _restore(path, *_read(path), named, ())
        except FormatError as problem:
            raise GraphError(f"load_checkpoint: {path}: {problem}") from None
    skipped: list[str] = []
    for _, name in reversed(_numbered(path)):
        try:
            found = _read(path / name)
        except FormatError as problem:
            skipped.append(f"{name}: {problem}")
            log("warning", f"load_checkpoint: skipped {path / name}: {problem}")
            continue
        return _restore(path / name, *found, named, tuple(skipped))
    if skipped:
        raise GraphError(
            "\n  ".join([f"load_checkpoint: every checkpoint in {path} is damaged", *skipped])
        )
    return None


def _named(function: str, sources: Sources) -> dict[str, Source]:
    named = dict(sources) if isinstance(sources, Mapping) else {_ALONE: sources}
    for name, source in named.items():
        if not isinstance(source, Program | Module) or not isinstance(name, str):
            raise error(
                f"{function}: expected a program, a module or a dict from names to them, "
                f"got {type(source).__name__} at {name!r}"
            )
    if not named:
        raise error(f"{function}: expected a program or module, got an empty dict")
    return named


def _trains(source: Source) -> bool:
    return isinstance(source, Program) and source.update is not None


def _buffers(source: Source) -> dict[str, StateBuffer]:
    if isinstance(source, Program):
        return source.buffers
    return {name: parameter.state for name, parameter in source.named_parameters()}


def _stored(
    named: Mapping[str, Source],
) -> tuple[dict[str, dict[str, str]], dict[str, StateBuffer]]:
    """The name of the tensor of each piece of state of each source, and the buffers by tensor."""
    tensor_of: dict[StateBuffer, str] = {}
    tensors: dict[str, dict[str, str]] = {}
    for source, holder in named.items():
        tensors[source] = {}
        for name, buffer in _buffers(holder).items():
            tensors[source][name] = tensor_of.setdefault(buffer, f"{source}/{name}")
    return tensors, {name: buffer for buffer, name in tensor_of.items()}


def _of_other_ranks(
    named: Mapping[str, Source], tensors: dict[str, dict[str, str]]
) -> dict[str, Array]:
    """The state that stages of programs on other ranks have, by tensor; its names are added."""
    arrays = {}
    for source, holder in named.items():
        if isinstance(holder, Program) and holder.staged is not None:
            whole = holder.staged.whole(contents(holder.buffers, "save_checkpoint"))
            for name in (name for name in whole if name not in tensors[source]):
                tensors[source][name] = f"{source}/{name}"
                arrays[f"{source}/{name}"] = whole[name]
    return arrays


def _elsewhere(source: Source) -> Collection[str]:
    """The names of a program's state that other ranks have."""
    staged = source.staged if isinstance(source, Program) else None
    return () if staged is None else staged.types.keys() - source.buffers.keys()


def _read(path: Path) -> tuple[Fields, dict[str, Array]]:
    """The document and the arrays of an intact file."""
    try:
        document, arrays = unsealed(read_bytes(path), KIND)
    except OSError as problem:
        raise FormatError(f"cannot read it: {problem.strerror}") from None
    return Fields(document, "checkpoint"), arrays


def _restore(
    path: Path,
    document: Fields,
    arrays: Mapping[str, Array],
    named: Mapping[str, Source],
    skipped: tuple[str, ...],
) -> Checkpoint:
    try:
        step = document.take("step", int)
        data = document.take("data", *_JSON)
        tensors = {
            name: Fields({"names": names}, f"tensors of {name}").table("names", str)
            for name, names in document.table("tensors", dict).items()
        }
        rates = document.table("rates", list)
        for name, numbers in rates.items():
            _check_numbers(name, numbers)
        document.end()
    except FormatError as problem:
        raise GraphError(f"load_checkpoint: {path}: {problem}") from None
    problems, new = _fitting(named, tensors, arrays)
    trained = {name: source for name, source in named.items() if _trains(source)}
    if rates.keys() != trained.keys():
        problems.append(f"programs that train: expected {[*trained]}, the file has {[*rates]}")
    if problems:
        raise GraphError("\n  ".join([f"load_checkpoint: {path} does not fit", *problems]))
    for name, source in trained.items():
        check_rates(source.update, rates[name], f"load_checkpoint: {path}: {name}")
    buffers = {f"{n}/{key}": b for n, s in named.items() for key, b in _buffers(s).items()}
    overwrite(buffers, new, "load_checkpoint")
    for name, source in trained.items():
        restore_rates(source.update, rates[name], source.clock)
    return Checkpoint(step, data, path, skipped)


_JSON = (type(None), bool, int, float, str, list, dict)
_SHORT = {dtype: name.lower() for name, dtype in DTYPES.items()}


def _check_numbers(name: str, rates: Sequence[Any]) -> None:
    """FormatError unless these are rates of a rule and its groups."""
    if not rates or any(type(rate) not in (float, str) for rate in rates):
        raise FormatError(f"rates of {name}: expected numbers")
    list_of([rate for rate in rates if rate not in ("schedule", "rule")], float, f"rates of {name}")


def _fitting(
    named: Mapping[str, Source],
    tensors: Mapping[str, Mapping[str, str]],
    arrays: Mapping[str, Array],
) -> tuple[list[str], dict[str, Array]]:
    """What does not fit, and the new contents of each piece of state."""
    problems = [f"missing {name}" for name in named if name not in tensors]
    problems += [f"unexpected {name}" for name in tensors if name not in named]
    new: dict[str, Array] = {}
    own_of: dict[str, StateBuffer] = {}
    tensor_of: dict[StateBuffer, str] = {}
    for source in (name for name in named if name in tensors):
        own, theirs = _buffers(named[source]), tensors[source]
        problems += [f"{source}: missing {n} : {own[n].whole_type}" for n in own if n not in theirs]
        known = {*own, *_elsewhere(named[source])}
        problems += [f"{source}: unexpected {name}" for name in theirs if name not in known]
        for name in (name for name in own if name in theirs):
            buffer, tensor = own[name], theirs[name]
            array = arrays.get(tensor)
            if array is None:
                problems.append(f"{source}: {name} has no tensor in the file")
            elif array.shape != buffer.whole_type.shape or array.dtype != buffer.array.dtype:
                got = f"{_SHORT[array.dtype]}[{','.join(map(str, array.shape))}]"
                problems.append(f"{source}: {name}: expected {buffer.whole_type}, got {got}")
            else:
                new[f"{source}/{name}"] = array
            if own_of.setdefault(tensor, buffer) is not buffer:
                problems.append(f"{source}: {name} was shared with another, and is not by now")
            if tensor_of.setdefault(buffer, tensor) != tensor:
                problems.append(f"{source}: {name} is shared with another, and was not")
    return sorted(problems), new


def _numbered(folder: Path) -> list[tuple[int, str]]:
    """The steps and names of a folder's checkpoints, in ascending order."""
    found = (_NAME.fullmatch(name) for name in folder_names(folder))
    return sorted((int(match[1]), match[0]) for match in found if match is not None)


def _tidy(saved: Path, keep: int | None) -> None:
    """Remove older checkpoints than `keep`, and what killed processes have left."""
    folder = saved.parent
    names = [name for _, name in _numbered(folder)]
    old = [] if keep is None else names[:-keep]
    unfinished = [
        name
        for name in folder_names(folder)
        if name.endswith(PARTIAL) and _NAME.match(name) is not None
    ]
    for name in (*old, *unfinished):
        if name != saved.name:
            with suppress(OSError):
                (folder / name).unlink()
