"""The function that users call to export programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphc.program.program import Program


def export(
    programs: Program | Mapping[str, Program],
    folder: str | Path,
    target: str = "x86-64",
    *,
    name: str | None = None,
    threads: bool = False,
    weights_in_code: bool = False,
    denormals: str | None = None,
    calls: int = 3,
    inputs: Sequence[Sequence[Any]] | None = None,
) -> None:
    """Write programs as C, C++ and CUDA sources that need neither Python nor graphc.

    Several programs share their state, such as a training step and a prediction with the same
    parameters. The folder's README.md says how to build and to call them; docs/export.md describes
    all files.

    Args:
        programs: A program, or several by the names of their C functions. The function of a single
            one is called `step` if it updates parameters, else `run`.
        folder: The folder to write; it must be empty or missing.
        target: The machine: "x86-64" (SSE2), "x86-64-avx2", "x86-64-avx512", "aarch64", "wasm32",
            "riscv64" or "cortex-m". Programs of a GPU: "cuda", which all GPUs from compute
            capability 8.0 on can run, or an architecture such as "sm_90a".
        name: The prefix of all names in C; by default the name of the first program's function.
        threads: Whether kernels may use several threads (POSIX); else nothing needs them.
        weights_in_code: Whether the weights are also a C array, for machines without files.
        denormals: "flush" or "keep"; by default what `compile` was told, or "keep" where the
            machine has no such mode.
        calls: The number of calls of each function that the self-test makes.
        inputs: The arguments of these calls, in turns; by default random floats, and integers that
            are 0 or 1.

    Raises:
        GraphError: The target is unknown, the folder is not empty, or a program cannot be exported.
        CompileError: For a GPU, there is no nvcc, or a kernel does not compile.

    Example:
        >>> step = graphc.compile(
        ...     lambda m, x: graphc.sum(m(x) ** 2),
        ...     nn.Linear(2, 1),
        ...     graphc.spec((4, 2)),
        ...     update=optim.SGD(lr=0.1),
        ... )
        >>> graphc.export(step, "linear", "aarch64", name="linear")
    """
    from graphc.export.writing import write

    write(
        programs,
        folder,
        target,
        name=name,
        threads=threads,
        weights_in_code=weights_in_code,
        denormals=denormals,
        calls=calls,
        inputs=inputs,
    )


Program.write_sources = staticmethod(export)
