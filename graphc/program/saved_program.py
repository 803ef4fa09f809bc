"""Programs as files: graph, weights, settings, and a record of what was planned.

A file is sealed (`graphc/files/sealed.py`) and read as that of a stranger: it can define a graph
and its state, as an ONNX file can, and nothing that it holds is executed. `load` makes the program
from the graph: passes, lowering, planning, the verifier, and kernels that are compiled or in this
user's own cache. Then it compares the digests of the kernels with those of the file:

- equal: the program is the one that was saved;
- other kernels by the same version of graphc on another CPU: the program was planned anew. It is
  loaded if both add all floats in the order that the graph states, so that results have the same
  bits;
- other kernels by the same version on the same machine: the file contradicts itself, and is
  refused;
- anything else, as with another version of graphc: refused, unless `replan=True` accepts results
  that may differ in the last bits.

Compiled kernels in a file are used only with `trusted=True`: see binaries.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from graphc.base import config
from graphc.base.errors import BUGS, GraphError, PlanError, described
from graphc.base.messages import decisions, log
from graphc.files.fields import Fields
from graphc.files.safetensors import FormatError, read_bytes
from graphc.files.sealed import unsealed, write_sealed
from graphc.ir.state import contents
from graphc.optim.groups import Rate
from graphc.program import binaries as embedded
from graphc.program.making import make
from graphc.program.plan_cache import PlanCache
from graphc.program.program import Program
from graphc.program.saved_parts import (
    STATE,
    Parts,
    constants_of,
    document_of,
    kernel_digests,
    read_parts,
)

KIND = "graphc program 1"


def save(program: Program, path: str | os.PathLike[str], binaries: bool = False) -> None:
    """Write a program to a file; `Program.save` describes it."""
    with decisions():
        document, buffers, graph = document_of(program)
        lr = None if program.update is None else 0.0
        twin = _made(read_parts(Fields(document, "save"), constants_of(graph), lr, True), None)
    arrays = {STATE + name: array for name, array in contents(buffers, "save").items()}
    arrays |= constants_of(graph)
    document["record"] = _record(twin)
    document["binaries"] = None
    if binaries:
        document["binaries"], objects = embedded.collect(twin)
        arrays |= objects
    write_sealed("save", Path(path), KIND, document, arrays)


Program.write = staticmethod(save)


def load(
    path: str | os.PathLike[str],
    *,
    trusted: bool = False,
    replan: bool = False,
    lr: Rate | None = None,
    threads: int | None = None,
) -> Program:
    """Return the program of a file that `Program.save` wrote, with its state.

    The program is called as before, with arguments in the same order and of the same names, and
    returns the same structure. One with `update` goes on training. The graph is lowered, planned
    and verified here, unless the cache has its plan, and its kernels are compiled, unless the cache
    has them: nothing in the file is executed.

    Args:
        path: The file.
        trusted: Whether to run the compiled kernels that the file holds, without a compiler. They
            are machine code: only for files from whom you would take a program.
        replan: Whether to accept other kernels than those that were saved, by another version of
            graphc for example, so that results may differ in the last bits.
        lr: The learning rate or schedule in place of the saved one; needed if that was a schedule.
        threads: The number of CPU threads, as in `compile`.

    Returns:
        The program.

    Raises:
        GraphError: The file is missing, damaged or of another format; or its kernels are others
            here, and results might differ.
        PlanError: The file's kernels are not those of its graph.
        CompileError: A compiler is missing or fails.

    Example:
        >>> f = graphc.compile(lambda x: {"twice": 2 * x}, graphc.spec(2))
        >>> f.save("f.graphc")
        >>> graphc.load("f.graphc")(np.array([1, 2], np.float32))
        {'twice': array([2., 4.], dtype=float32)}
    """
    with _reading(path):
        document, arrays = unsealed(read_bytes(path), KIND)
        whole = Fields(document, "program")
        parts = read_parts(whole, arrays, lr)
        record, objects = whole.take("record", dict), whole.take("binaries", dict, type(None))
        whole.end()
        saved = _read_record(Fields(record, "record"))
    if config.denormals() != parts.settings.denormals:
        raise GraphError(
            f"load: {path} was saved with GRAPHC_DENORMALS={parts.settings.denormals}, here it is "
            f"{config.denormals()}"
        )
    if trusted:
        if objects is None:
            raise GraphError(f"load: {path} holds no binaries: trusted=True has nothing to trust")
        with _reading(path):
            digest = (saved["certificate"] or {"digest": ""})["digest"]
            binaries = Fields(objects, "binaries")
            return embedded.load(parts, saved["plan"], digest, binaries, arrays, threads)
    with _reading(path), decisions():
        program = _made(parts, threads)
        _compare(path, saved, _origin(program), replan or bool(parts.settings.tune))
    return program


@contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn whatever a file is wrong in into a GraphError that names it."""
    try:
        yield
    except OSError as problem:
        raise GraphError(f"load: cannot read {path}: {problem.strerror}") from None
    except FormatError as problem:
        raise GraphError(f"load: {path}: {problem}") from None
    except GraphError as problem:
        if str(path) in str(problem):
            raise
        raise GraphError(f"load: {path}: {problem}") from None
    except MemoryError:
        raise GraphError(f"load: {path} needs more memory than there is") from None
    except BUGS as bug:
        raise GraphError(f"load: {path} holds no program: {described(bug)}") from bug


def _made(parts: Parts, threads: int | None) -> Program:
    """The program of the parts of a file, made anew or found in the cache of plans."""
    (device, recipe), whole = parts.recipe(threads), parts.whole
    settings, target = recipe.settings, recipe.target
    remembered = PlanCache(whole.graph, whole.buffers, None, target, settings, recipe.precision)
    stages = {"saved": whole.graph}
    return make(None, parts.rule, recipe, device, remembered, stages, ())


def _record(program: Program) -> dict[str, Any]:
    """What was planned, where and from what, as JSON."""
    from graphc.runtime.plan.saved import encoded

    plan = program.plan
    proved = None if plan is None else {"certificate": asdict(plan.verify()), "plan": encoded(plan)}
    return {**_origin(program), **(proved or {"certificate": None, "plan": None})}


def _origin(program: Program) -> dict[str, Any]:
    """The version, the machine and the kernels of a program, as JSON."""
    from graphc.runtime.compilers.shared_objects import cpu_features
    from graphc.runtime.plan_store import sources_digest

    kernels = {} if program.plan is None else program.plan.kernels
    return {
        "sources": sources_digest(),
        "machine": [repr(program.target), *cpu_features()],
        "stated": all(kernel.sums != "own" for kernel in kernels.values()),
        "kernels": kernel_digests(program),
    }


def _read_record(record: Fields) -> Mapping[str, Any]:
    from graphc.runtime.plan.certificate import Certificate

    found = {
        "sources": record.take("sources", str),
        "machine": record.texts("machine"),
        "stated": record.take("stated", bool),
        "kernels": record.table("kernels", str),
        "certificate": record.take("certificate", dict, type(None)),
        "plan": record.take("plan", list, type(None)),
    }
    if found["certificate"] is not None:
        parts = Fields(found["certificate"], "certificate")
        for field in fields(Certificate):
            parts.take(field.name, str if field.type == "str" else int)
        parts.end()
    record.end()
    return found


def _compare(
    path: str | os.PathLike[str], saved: Mapping[str, Any], made: Mapping[str, Any], replan: bool
) -> None:
    """Raise an error unless the program that was made gives the bits of the one that was saved."""
    others = {
        name
        for name in saved["kernels"].keys() | made["kernels"].keys()
        if saved["kernels"].get(name) != made["kernels"].get(name)
    }
    if not others:
        return
    same_version = saved["sources"] == made["sources"]
    count = f"{len(others)} kernels are others than those saved, such as {min(others)}"
    if same_version and saved["machine"] == made["machine"] and not replan:
        raise PlanError(f"load: {path}: {count}, though graphc and the machine are the same")
    if replan or (same_version and saved["stated"] and made["stated"]):
        log("info", f"load: {path}: planned anew: {count}")
        return
    what = "this CPU" if same_version else "this version of graphc"
    raise GraphError(
        f"load: {path}: {count}: with {what} results may differ in the last bits; "
        "replan=True accepts that"
    )
