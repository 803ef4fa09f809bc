"""Register use of kernels by both compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from graphc.runtime.cuda.compile import CudaCompiler, Usage, compile_cuda, nvcc, nvrtc
from tools.spills.texts import plain

COMPILERS: Mapping[str, Callable[[], CudaCompiler | None]] = {"nvrtc": nvrtc, "nvcc": nvcc}


@dataclass(frozen=True)
class Spill:
    """A launch of a kernel, by `symbol`, that spills."""

    kernel: str
    symbol: str
    usage: Usage

    def __str__(self) -> str:
        return f"{self.symbol}: {self.usage.spilled} bytes beside {self.usage.registers} registers"


def usages(
    texts: Mapping[str, str], compiler: CudaCompiler, arch: str, threads: int = 1
) -> Iterator[tuple[str, dict[str, Usage]]]:
    """The usage of each symbol of each kernel in `texts`, by name. Kernels of one plain text are
    compiled once, and not again while the cache has them; the first stands for all. Raises
    CompileError."""
    first: dict[str, tuple[str, dict[str, str]]] = {}
    for name, text in texts.items():
        changed, names = plain(text)
        first.setdefault(changed, (name, names))

    def compiled(text: str) -> tuple[str, dict[str, Usage]]:
        name, names = first[text]
        found = compile_cuda(text, "kernel", arch, where=name, compiler=compiler).usage
        return name, {names.get(symbol, symbol): usage for symbol, usage in found.items()}

    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(compiled, first)


def spills(found: Mapping[str, Mapping[str, Usage]]) -> list[Spill]:
    """The usages that spill."""
    return [
        Spill(kernel, symbol, usage)
        for kernel, symbols in found.items()
        for symbol, usage in symbols.items()
        if usage.spilled
    ]
