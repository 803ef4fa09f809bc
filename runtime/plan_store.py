"""Remember planned CPU programs, so that they are loaded instead of planned again.

The key is the digest of everything that determines a plan: the text of the traced graph (and of its
update, if any), the arguments of `compile`, the machine, the compiler, and this package's sources.
Stored are the plan, which is verified again, the keys of its kernels in the cache, and the origin
of its state: the model's, packed copies of it, or constants. The passes run only if somebody looks
at their results.

Programs with the user's own ops, whose code no key can cover, are not remembered, nor programs that
are checked, tuned or limited in memory.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from graphc.base.config import Config
from graphc.base.dtypes import Array
from graphc.base.target import Target
from graphc.ir import DTYPES, Graph, Layout, dtype_name
from graphc.ir.state import PackedBuffer, StateBuffer
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.ops.constant import PLACED, Constant
from graphc.ops.loops.scan import bodies
from graphc.runtime.compilers import cache
from graphc.runtime.compilers.shared_objects import compiler_or_none
from graphc.runtime.compilers.translation_units import kernel_keys, toolchain
from graphc.runtime.plan.plan import Plan
from graphc.runtime.plan.saved import decoded, encoded
from graphc.runtime.tuning.stream_autotuner import cpu_name

FORMAT = 2
"""The format of stored programs."""
CONSTANT_BYTES = 1 << 16
"""The largest constant that is stored with the plan. A larger one must be in the requested graph,
as it is unless a pass has computed it."""

_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Found:
    """A remembered program."""

    plan: Plan
    """The verified plan."""
    keys: Mapping[str, str]
    """The key of each kernel in the cache, by name."""
    state: Mapping[str, StateBuffer]
    """The buffers of the graph's state, by name."""
    packed: Mapping[str, StateBuffer]
    """Further buffers of the plan, made from these."""
    prebuilt: Mapping[str, Prebuilt]
    """The prebuilt functions of the kernels that were not compiled then, by name."""


def plan_key(
    graph: Graph,
    trainable: Mapping[str, bool] | None,
    target: Target,
    settings: Config,
    precision: str,
) -> str | None:
    """The key of a traced graph's program, except for how its parameters are updated; `trainable`
    tells which are. None if it must not be remembered."""
    asked = settings.check or settings.tune or settings.memory_lean or settings.memory_search
    if not settings.plan_cache or asked or settings.memory_limit is not None:
        return None
    if compiler_or_none() is None:
        return None
    if any(n.op.is_own() for g in (graph, *bodies(graph)) for n in g.nodes):
        return None
    chosen = settings.streams, settings.threads, sorted(settings.disable), precision
    machine = target, cpu_name(settings.threads), toolchain()
    versions = FORMAT, sys.version, np.__version__, _networkx(), sources_stamp()
    return cache.choice_key(str(graph), trainable, chosen, machine, versions)


@functools.cache
def sources_stamp() -> str:
    """The digest of the names, sizes and times of change of this package's Python files, as of the
    first call: what Python goes by too when it runs byte code in place of a file."""
    digest = hashlib.sha256()
    folders = [str(_PACKAGE)]
    while folders:
        with os.scandir(folders.pop()) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name.endswith(".py"):
                status = entry.stat()
                digest.update(f"{entry.path} {status.st_size} {status.st_mtime_ns}\0".encode())
            elif entry.is_dir() and entry.name != "__pycache__":
                folders.append(entry.path)
    return digest.hexdigest()


@functools.cache
def sources_digest() -> str:
    """The digest of this package's Python files, as of the first call."""
    return _files_digest(_PACKAGE, (".py",))


@functools.cache
def headers_digest() -> str:
    """The digest of the headers of all kernels, as of the first call."""
    return _files_digest(_PACKAGE / "kernels", (".h", ".cuh"))


def _files_digest(root: Path, endings: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    prefix = len(str(root)) + 1
    for folder, folders, files in os.walk(root, followlinks=True):
        folders.sort()
        for name in sorted(name for name in files if name.endswith(endings)):
            path = f"{folder}/{name}"
            digest.update(f"{path[prefix:]}\0".encode())
            file = os.open(path, os.O_RDONLY)
            try:
                while part := os.read(file, 1 << 20):
                    digest.update(part)
            finally:
                os.close(file)
    return digest.hexdigest()


def _networkx() -> tuple[object, ...]:
    """The version of NetworkX. Importing it takes as long as everything else in finding a plan."""
    spec = find_spec("networkx")
    if spec is None or spec.origin is None:
        return ()
    status = os.stat(spec.origin)
    return spec.origin, status.st_size, status.st_mtime_ns


def store_plan(
    key: str,
    plan: Plan,
    state: Mapping[str, StateBuffer],
    prebuilt: Mapping[str, Prebuilt] | None = None,
    keys: Mapping[str, str] | None = None,
) -> None:
    """Remember a plan, the origin of its `state`, and the `prebuilt` functions of kernels that are
    not compiled yet; `keys` are those of `kernel_keys`, if known."""
    names = {id(buffer): name for name, buffer in state.items()}
    computing = {name: kernel for name, kernel in plan.kernels.items() if kernel.message is None}
    packed = [
        (name, names[id(b.source)], b.layout.axis, b.layout.width)
        for name, b in state.items()
        if isinstance(b, PackedBuffer)
    ]
    own = [name for name, buffer in state.items() if not isinstance(buffer, PackedBuffer)]
    constants = {
        name: _written(state[name].array)
        for name in own
        if name.startswith(PLACED) and state[name].array.nbytes <= CONSTANT_BYTES
    }
    whole = {
        "plan": encoded(plan),
        "keys": keys or kernel_keys(computing),
        "state": own,
        "packed": packed,
        "constants": constants,
        "prebuilt": {
            name: (found.symbol, base64.b64encode(found.data).decode())
            for name, found in (prebuilt or {}).items()
        },
    }
    body = json.dumps(whole, separators=(",", ":")).encode()
    with cache.open_folder("plans") as folder:
        cache.store_file(cache.sealed(body, [key]), folder / f"{key}.plan")


def load_plan(
    key: str, buffers: Mapping[str, StateBuffer], graphs: Iterable[Graph]
) -> Found | None:
    """The program stored under `key`, verified and bound to the model's `buffers`; None if there is
    none. `graphs` are those that may hold its constants."""
    with cache.open_folder("plans") as folder:
        body, keys = cache.unsealed(cache.read(folder / f"{key}.plan"))
    if key not in keys:
        return None
    whole = json.loads(body)
    state = dict(buffers)
    state |= {n: StateBuffer(_read(*parts)) for n, parts in whole["constants"].items()}
    missing = [name for name in whole["state"] if name not in state]
    if missing:
        state |= {
            PLACED + n.op.value.digest: StateBuffer(n.op.array)
            for whole_graph in graphs
            for graph in (whole_graph, *bodies(whole_graph))
            for n in graph.nodes
            if isinstance(n.op, Constant) and PLACED + n.op.value.digest in missing
        }
        if any(name not in state for name in missing):
            return None
    plan: Plan = decoded(whole["plan"])
    plan.verify()
    packed = {
        name: state[source].packed(Layout(axis, width))
        for name, source, axis, width in whole["packed"]
    }
    prebuilt = {
        name: Prebuilt(symbol, base64.b64decode(data))
        for name, (symbol, data) in whole["prebuilt"].items()
    }
    bound = {name: state[name] for name in whole["state"]}
    return Found(plan, whole["keys"], bound, packed, prebuilt)


def _written(array: Array) -> tuple[str, list[int], str]:
    return dtype_name(array.dtype), [*array.shape], base64.b64encode(array.tobytes()).decode()


def _read(dtype: str, shape: list[int], content: str) -> Array:
    return np.frombuffer(base64.b64decode(content), DTYPES[dtype]).reshape(shape)
