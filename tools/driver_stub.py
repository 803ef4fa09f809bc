"""Build a stub of NVIDIA's driver library from the toolkit's headers.

`python tools/driver_stub.py INCLUDE FOLDER` writes FOLDER/libcuda.so.1 and a link libcuda.so. It
has every entry point that the headers declare, so PyCUDA links with it and can be imported; each
returns CUDA_ERROR_STUB_LIBRARY (34), so nothing runs. Functions of further C files (`--add FILE`)
replace the stub's: tests build a driver that records its calls.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

STUB_LIBRARY = 34
"""CUDA_ERROR_STUB_LIBRARY: the driver that was loaded is a stub."""

TEXTS = {
    "cuGetErrorName": "CUDA_ERROR_STUB_LIBRARY",
    "cuGetErrorString": "the CUDA driver that was loaded is a stub: this machine has no driver",
}
"""Texts of functions whose result callers print without checking the status."""

# A header names either the current version of an entry point or, with the second, the older ones.
VARIANTS = ((), ("-D__CUDA_API_VERSION_INTERNAL",), ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",))
HEADERS = ("cuda.h", "cudaProfiler.h")


def build_stub(include: Path, folder: Path, added: Sequence[Path] = ()) -> Path:
    """The library in `folder`. `include` has cuda.h; functions of the C files `added` replace the
    stub's. Raises subprocess.CalledProcessError."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcuda.so.1"
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "stub.c"
        source.write_text(stub_text(entry_points(include)))
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", f"-I{include}"]
        files = [str(path) for path in (source, *added)]
        subprocess.run([*command, *files, "-ldl", "-o", str(library)], check=True)
    link = folder / "libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to(library.name)
    return library


def find_headers() -> Path | None:
    """The folder of cuda.h, in a toolkit or in the wheel nvidia-cuda-runtime; None if there is
    neither."""
    compiler = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_ROOT"), os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    if compiler:
        roots.append(str(Path(compiler).resolve().parent.parent))
    folders = [Path(root) / "include" for root in roots if root]
    package = find_spec("nvidia")
    for place in (package.submodule_search_locations or ()) if package else ():
        folders += sorted(Path(place).glob("*/include"))
    return next((folder for folder in folders if (folder / "cuda.h").exists()), None)


def entry_points(include: Path) -> list[str]:
    """The names of all functions that the driver's headers declare, sorted."""
    present = [name for name in HEADERS if (include / name).exists()]
    unit = "".join(f'#include "{name}"\n' for name in present)
    names: set[str] = set()
    for flags in VARIANTS:
        command = ["gcc", "-E", "-P", f"-I{include}", *flags, "-x", "c", "-"]
        done = subprocess.run(command, input=unit, capture_output=True, text=True, check=True)
        names.update(
            re.findall(
                r"\bCUresult\s+(?:__attribute__\s*\(\(.*?\)\)\s*)*(cu[A-Z]\w*)\s*\(", done.stdout
            )
        )
    return sorted(names)


def stub_text(names: Sequence[str]) -> str:
    """C source of weak functions of these names."""
    weak = "__attribute__((weak))"
    lines = ["// The entry points of the CUDA driver, each of which only says that it is a stub."]
    for name in names:
        if name in TEXTS:
            body = f'(void)error; *text = "{TEXTS[name]}"; return 0;'
            lines.append(f"{weak} int {name}(int error, const char** text) {{ {body} }}")
        else:
            lines.append(f"{weak} int {name}(void) {{ return {STUB_LIBRARY}; }}")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("include", type=Path, help="the folder of cuda.h")
    parser.add_argument("folder", type=Path, help="where libcuda.so.1 is written")
    parser.add_argument("--add", type=Path, action="append", default=[], metavar="FILE.c")
    options = parser.parse_args()
    print(build_stub(options.include, options.folder, options.add))


if __name__ == "__main__":
    main()
