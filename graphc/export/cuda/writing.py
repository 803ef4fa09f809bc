"""Write programs of a GPU as CUDA and C++ sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import graphc
from graphc.base.errors import GraphError
from graphc.export.build_files import weights_text
from graphc.export.cuda import build_files, readme, selftest
from graphc.export.cuda.header import CudaModule, header_text, model_text
from graphc.export.cuda.kernels import kernels_of
from graphc.export.cuda.lowering import check_gpu_program, entries_of
from graphc.export.cuda.memory import lay_out
from graphc.export.interface import functions_of
from graphc.export.names import native
from graphc.program.program import Program
from graphc.runtime.plan.plan import Launch, all_steps


def gpu_files(
    programs: Mapping[str, Program],
    archs: tuple[str, ...],
    *,
    name: str,
    threads: bool,
    weights_in_code: bool,
    flush: bool,
    calls: int,
    inputs: Sequence[Sequence[Any]] | None,
) -> dict[str, str | bytes]:
    """Return the files of an export by their paths.

    Args:
        programs: The programs by the names of their functions.
        archs: What to compile kernels for, as nvcc calls it.
        name: The prefix of all names in C.
        threads: False, as a GPU's kernels use no threads of the host.
        weights_in_code: Whether the weights are also a C array.
        flush: Whether denormals count as zeros.
        calls: The number of calls of each function that the self-test makes.
        inputs: The arguments of these calls, in turns.

    Raises:
        GraphError: A program cannot be exported for a GPU.
        CompileError: There is no nvcc, or a kernel does not compile.
    """
    if threads:
        raise GraphError("export: threads=True is for kernels of a CPU; a GPU has its own")
    for program in programs.values():
        check_gpu_program(program)
    entries = entries_of(programs)
    device, kernels = lay_out(entries), kernels_of(entries)
    module = CudaModule(
        name=name,
        functions=functions_of(name, entries),
        memory=device.host,
        flush=flush,
        weights_in_code=weights_in_code,
        version=graphc.__version__,
        archs=archs,
        device=device,
        kernels=kernels,
    )
    weights = device.host.state.image() + device.host.constants.image()
    test = selftest.selftest_of(module, calls, inputs)
    where = {
        step.kernel: str(step.where)
        for entry in entries
        for step in all_steps(entry.plan.steps)
        if isinstance(step, Launch)
    }
    files: dict[str, str | bytes] = {
        f"{name}.h": header_text(module),
        f"{name}.weights": weights,
        f"{name}.expected": selftest.expected_bytes(test),
        "model.cpp": model_text(module),
        "images.S": build_files.images_text(module),
        "README.md": readme.readme_text(module),
        "CMakeLists.txt": build_files.cmake_text(module),
        "build.sh": build_files.script_text(module),
        "selftest.c": selftest.selftest_text(module, test),
        "include/graphc/state.h": native("state.h"),
        "include/graphc/cuda_player.h": native("cuda_player.h"),
    }
    files |= {f"kernels/{stem}.cu": kernel.source for stem, kernel in kernels.files.items()}
    files |= {f"include/{path}": text for path, text in kernels.headers().items()}
    images = kernels.images(archs, flush, where)
    files |= {f"cubins/{stem}.fatbin": image for stem, image in images.items()}
    if weights_in_code:
        files["weights.c"] = weights_text(module, weights)
    return files
