"""What the prebuilt library knows of a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prebuilt:
    """A function of the prebuilt library and the description that it reads.

    The symbol has the ABI of a generated kernel: `extern "C" void SYMBOL(void* const* arguments,
    int phase, int chunk)`. It takes the same arguments, phases and chunks as the kernel and gives
    the same bits; `arguments[-1]` is the address of the description.
    """

    symbol: str
    """The function's name in the library."""
    data: bytes
    """The description: position-independent, and at a multiple of 64 bytes when it is read."""
