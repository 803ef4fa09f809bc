"""Build a wheel of PyCUDA on a machine without a GPU, a driver or the CUDA toolkit.

`python tools/build_pycuda.py WHEELS` writes the wheel into the folder WHEELS for the Python that
runs this; `--python` builds it for another. The headers come from the toolkit (CUDA_ROOT, or where
nvcc is), else from the wheels that NVIDIA publishes. It links with a stub of the driver's library:
the wheel runs on any machine with a driver for CUDA 13. `--carry` also fetches the wheels that
`graphc[cuda]` and `make gpu-check` need, so that a machine without a network can install them: `pip
install --no-index --find-links WHEELS ...`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from driver_stub import build_stub, find_headers  # type: ignore[import-not-found]

VERSION = "2026.1"
HEADER_WHEELS = (
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cuda-crt==13.0.*",
    "nvidia-cuda-profiler-api==13.0.*",
)
CARRIED = (
    "cuda-bindings>=13.0.3,<14",
    "nvidia-cuda-nvrtc==13.0.*",
    "numpy>=2",
    "networkx>=3.1",
    "pytest>=8",
)
"""Requirements of graphc[cuda] and `make gpu-check` besides PyCUDA and its own requirements."""
PYCUDA_NEEDS = ("pytools", "platformdirs", "mako", "siphash24", "typing-extensions", "markupsafe")

# PyCUDA takes its options from this file alone, not from the environment.
CONFIGURATION = """\
CUDA_ROOT = {root!r}
CUDA_INC_DIR = [{include!r}]
CUDADRV_LIB_DIR = [{stub!r}]
CUDADRV_LIBNAME = ["cuda"]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-w", "-g0"]
LDFLAGS = ["-Wl,-s"]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", type=Path, help="the folder that the wheel is written to")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to build for")
    parser.add_argument("--source", type=Path, help="PyCUDA's sdist; default: fetch it")
    parser.add_argument("--carry", action="store_true", help="fetch the wheels of the rest too")
    options = parser.parse_args()
    wheels: Path = options.wheels.absolute()
    wheels.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(options.python, wheels, options.source)
    if options.carry:
        run(options.python, "-m", "pip", "download", "-q", "-d", wheels, *PYCUDA_NEEDS, *CARRIED)
    print(wheel)


def build_wheel(python: str, wheels: Path, source: Path | None = None) -> Path:
    """Build PyCUDA's wheel for the interpreter `python` in the folder `wheels`; takes about a
    minute. Raises subprocess.CalledProcessError after the failing command has printed why."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        builder = environment(python, scratch / "environment")
        include = find_headers() or fetch_headers(builder, scratch / "headers")
        build_stub(include, scratch / "stub")
        unpacked = unpack(source or fetch_source(builder, scratch), scratch)
        text = CONFIGURATION.format(
            root=str(include.parent), include=str(include), stub=str(scratch / "stub")
        )
        (unpacked / "siteconf.py").write_text(text)
        made = scratch / "made"
        run(builder, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", made,
            unpacked)  # fmt: skip
        (wheel,) = made.glob("pycuda-*.whl")
        return Path(shutil.copy(wheel, wheels))


def fetch_headers(builder: str, folder: Path) -> Path:
    """The headers of NVIDIA's wheels."""
    run(builder, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *HEADER_WHEELS)
    (header,) = folder.rglob("cuda.h")
    return header.parent


def fetch_source(builder: str, folder: Path) -> Path:
    arguments = ("--no-deps", "--no-build-isolation", "--no-binary", "pycuda", "-d", folder)
    run(builder, "-m", "pip", "download", "-q", *arguments, f"pycuda=={VERSION}")
    (archive,) = folder.glob("pycuda-*.tar.gz")
    return archive


def unpack(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.glob("pycuda-*") if path.is_dir())
    return unpacked


def environment(python: str, folder: Path) -> str:
    """The interpreter of a new virtual environment with the build requirements."""
    run(python, "-m", "venv", folder)
    builder = str(folder / "bin" / "python")
    run(builder, "-m", "pip", "install", "-q", "setuptools", "wheel", "numpy>=2")
    return builder


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main()
