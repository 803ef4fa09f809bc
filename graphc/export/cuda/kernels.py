"""The kernels of an export for GPUs: CUDA files, fat binaries, and tables of their launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from graphc.base.cores import usable_cores
from graphc.export.lowering import Entry
from graphc.export.names import identifiers
from graphc.kernels.program.joined import RESIDENT
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.runtime.cuda.compile import HEADERS, compile_fatbin, included
from graphc.runtime.plan.plan import JoinedLaunch


@dataclass(frozen=True)
class Function:
    """A kernel function, as a launch finds it."""

    module: int
    """The module's number."""
    symbol: str
    shared_bytes: int
    """Bytes of dynamic shared memory that a launch may use."""


@dataclass
class CudaKernels:
    """The kernels of all programs.

    Those of equal text share a file; those that draw tickets or are joined launches have a module,
    with its counters, for themselves.
    """

    files: dict[str, Kernel] = field(default_factory=dict)
    """The kernels by the stems of their files."""
    modules: list[str] = field(default_factory=list)
    """The stem of the file of each module."""
    functions: list[Function] = field(default_factory=list)
    launches: list[tuple[int, GridLaunch]] = field(default_factory=list)
    """The number of the function, and the launch."""
    joined: list[tuple[int, GridLaunch]] = field(default_factory=list)
    """The same of joined launches."""
    first: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of a kernel's first launch, by the names of the entry and the kernel."""
    first_joined: dict[str, int] = field(default_factory=dict)
    """The number of an entry's first joined launch."""

    def headers(self) -> dict[str, str]:
        """The texts of all headers that the files include, by their paths."""
        paths = included([kernel.source for kernel in self.files.values()])
        return {str(path.relative_to(HEADERS)): path.read_text() for path in paths}

    def images(
        self, archs: Sequence[str], flush: bool, where: Mapping[str, str]
    ) -> dict[str, bytes]:
        """Return the fat binaries by the stems of their files.

        Raises CompileError, with the user's line by the name of the kernel in `where`.
        """

        def compiled(kernel: Kernel) -> bytes:
            return compile_fatbin(
                kernel.source, kernel.name, archs, flush, where.get(kernel.name, "")
            )

        with ThreadPoolExecutor(usable_cores()) as pool:
            return dict(zip(self.files, pool.map(compiled, self.files.values()), strict=True))


def kernels_of(entries: Sequence[Entry]) -> CudaKernels:
    """Return the kernels of programs."""
    found = CudaKernels()
    texts: dict[str, Kernel] = {}
    for entry in entries:
        for kernel in _kernels(entry):
            texts.setdefault(_text(entry, kernel), kernel)
    stems = dict(zip(texts, identifiers(kernel.name for kernel in texts.values()), strict=True))
    found.files = {stems[text]: kernel for text, kernel in texts.items()}
    shared: dict[str, int] = {}
    for entry in entries:
        joined = {j.kernel.name for j in entry.plan.joined}
        found.first_joined[entry.name] = len(found.joined)
        for kernel in _kernels(entry):
            text = _text(entry, kernel)
            own = kernel.draws_tickets or kernel.name in joined
            module = None if own else shared.get(text)
            if module is None:
                module = len(found.modules)
                found.modules.append(stems[text])
                if not own:
                    shared[text] = module
            into = found.joined if kernel.name in joined else found.launches
            if kernel.name not in joined:
                found.first[entry.name, kernel.name] = len(into)
            for launch, named in zip(kernel.launches, texts[text].launches, strict=True):
                function = Function(module, named.symbol, launch.shared_bytes)
                if function not in found.functions:
                    found.functions.append(function)
                into.append((found.functions.index(function), launch))
    return found


def resident(joined: JoinedLaunch) -> tuple[int, int, int]:
    """Return the most blocks of a joined launch, what divides them, the most per multiprocessor."""
    (launch,) = joined.kernel.launches
    return launch.grid[0], launch.multiple, RESIDENT


def _kernels(entry: Entry) -> list[Kernel]:
    """The kernels of a plan that are launched."""
    found = [kernel for kernel in entry.plan.kernels.values() if kernel.launches]
    return [*found, *(joined.kernel for joined in entry.plan.joined)]


def _text(entry: Entry, kernel: Kernel) -> str:
    """What tells a kernel's file from others."""
    if any(joined.kernel is kernel for joined in entry.plan.joined):
        return f"{entry.name} {kernel.name}"
    return kernel.canonical
