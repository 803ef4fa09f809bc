"""Files of an export for GPUs that build it."""

from __future__ import annotations

from graphc.export.build_files import FLAGS
from graphc.export.cuda.header import CudaModule, image_symbol
from graphc.export.names import filled, native
from graphc.runtime.cuda.compile import MEANT, fatbin_options


def images_text(module: CudaModule) -> str:
    """Return images.S, which holds the fat binaries."""
    lines = ["/* The kernels' fat binaries. */", "  .section .rodata"]
    for stem in module.kernels.files:
        symbol = image_symbol(module, stem)
        lines += ["  .balign 64", f"  .globl {symbol}", f"  .hidden {symbol}", f"{symbol}:"]
        lines.append(f'  .incbin "cubins/{stem}.fatbin"')
    lines += ['  .section .note.GNU-stack,"",%progbits', ""]
    return "\n".join(lines)


def script_text(module: CudaModule) -> str:
    """Return build.sh."""
    return filled(native("cuda_build.sh"), _words(module))


def cmake_text(module: CudaModule) -> str:
    """Return CMakeLists.txt."""
    return filled(native("cuda_CMakeLists.txt"), _words(module))


def _words(module: CudaModule) -> dict[str, str]:
    code = " weights.c" if module.weights_in_code else ""
    nvcc = " ".join((*MEANT, *fatbin_options(module.archs, module.flush)))
    flags = [flag for flag in FLAGS if flag not in ("-std=c++20", "-w")]
    return {
        "MADE_FOR": module.title,
        "MADE_BY": module.version,
        "NVCC_FLAGS": nvcc,
        "CXX_FLAGS": " ".join(flags),
        "CMAKE_FLAGS": ";".join(flags),
        "WEIGHTS_C": code,
        "WEIGHTS_O": ' "$OUT/weights.o"' if module.weights_in_code else "",
        "MODEL": module.name,
    }
