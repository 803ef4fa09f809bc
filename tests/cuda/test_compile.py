"""CUDA text to cubins: the cache, what kernels take, errors; and all models for two chips."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import graphc
from graphc import optim
from graphc.base.errors import CompileError
from graphc.runtime.cuda import compile as compiling
from graphc.runtime.cuda.compile import HEADERS, CudaCompiler, compile_cuda, find_compiler
from tests.small_models import MODELS, loss_fn
from tests.tools import first_quick, need_command, need_cuda_compiler, need_nvcc, need_nvrtc

TEXT = """\
#include "cuda/shared/memory.cuh"
extern "C" __global__ void twice(const float* x, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x];
}
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CudaCompiler:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    return need_cuda_compiler()


def counted(monkeypatch: pytest.MonkeyPatch, compiler: CudaCompiler) -> list[Path]:
    """The files that are compiled from now on."""
    files: list[Path] = []

    def run(file: Path, options: tuple[str, ...]) -> tuple[bytes, str]:
        files.append(file)
        return compiler.compile(file, options)

    made = CudaCompiler(compiler.command, compiler.version, compiler.options, run)
    monkeypatch.setattr(compiling, "find_compiler", lambda: made)
    return files


def test_a_kernel_becomes_a_cubin_with_its_usage(compiler):
    cubin = compile_cuda(TEXT, "twice", "sm_90a")
    assert cubin.image.startswith(b"\x7fELF")
    usage = cubin.usage["twice"]
    assert 0 < usage.registers < 32
    assert (usage.spilled, usage.shared) == (0, 0)


def test_a_kernel_is_compiled_once(compiler, monkeypatch):
    files = counted(monkeypatch, compiler)
    first = compile_cuda(TEXT, "twice", "sm_90a")
    assert compile_cuda(TEXT, "twice", "sm_90a") == first
    assert len(files) == 1
    assert files[0].read_text() == TEXT


def test_a_kernel_that_travels_needs_no_compiler(compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHC_CUBINS", str(tmp_path / "cubins"))
    made = compile_cuda(TEXT, "twice", "sm_90a")
    (file,) = (tmp_path / "cubins").iterdir()

    def none() -> CudaCompiler:
        raise CompileError("no CUDA compiler")

    monkeypatch.setattr(compiling, "find_compiler", none)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "another"))
    assert compile_cuda(TEXT, "twice", "sm_90a") == made
    for text, arch in ((TEXT.replace("2 *", "3 *"), "sm_90a"), (TEXT, "sm_80")):
        with pytest.raises(CompileError):
            compile_cuda(text, "twice", arch)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CompileError):
        compile_cuda(TEXT, "twice", "sm_90a")
    monkeypatch.undo()
    monkeypatch.setenv("GRAPHC_CUBINS", str(tmp_path / "cubins"))
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "third"))
    assert compile_cuda(TEXT, "twice", "sm_90a").usage == made.usage  # compiled, and kept again
    assert len(list((tmp_path / "cubins").iterdir())) == 1


def test_another_chip_or_text_is_another_cubin(compiler, monkeypatch):
    files = counted(monkeypatch, compiler)
    compile_cuda(TEXT, "twice", "sm_90a")
    compile_cuda(TEXT, "twice", "sm_80")
    compile_cuda(TEXT.replace("2 *", "3 *"), "twice", "sm_90a")
    assert len(set(files)) == 3


def test_numbers_below_the_smallest_normal_one_are_flushed_unless_kept(compiler, monkeypatch):
    files = counted(monkeypatch, compiler)
    text = 'extern "C" __global__ void third(float* x) { x[0] = x[0] * 0.3f; }'
    flushes = compile_cuda(text, "third", "sm_90a")
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    keeps = compile_cuda(text, "third", "sm_90a")
    assert len(set(files)) == 2
    code = [image.image[image.image.index(b".text.third") :] for image in (flushes, keeps)]
    assert code[0] != code[1]


def test_a_header_that_changed_makes_another_cubin_of_what_includes_it_alone(
    compiler, tmp_path: Path, monkeypatch
):
    headers = tmp_path / "headers"
    (headers / "cuda" / "shared").mkdir(parents=True)
    monkeypatch.setattr(compiling, "HEADERS", headers)
    monkeypatch.setattr(compiling, "OPTIONS", ("-std=c++20", f"-I{headers}"))
    files = counted(monkeypatch, compiler)

    def compiled(times: int, other: int) -> list[int]:
        """Which of three texts are compiled, whose factors stand so in headers."""
        (headers / "times.h").write_text(f"constexpr int times = {times};\n")
        (headers / "cuda" / "shared" / "far.cuh").write_text('#pragma once\n#include "times.h"\n')
        (headers / "cuda" / "shared" / "near.cuh").write_text('#pragma once\n#include "far.cuh"\n')
        (headers / "cuda" / "shared" / "other.cuh").write_text(f"constexpr int times = {other};\n")
        compiling._headers_digest.cache_clear()
        texts = [TEXT.replace("memory", name).replace("2 *", "times *") for name in names]
        files.clear()
        for text in texts:
            compile_cuda(text, "twice", "sm_90a")
        return [texts.index(file.read_text()) for file in files]

    names = ("near", "far", "other")
    assert compiled(2, 3) == [0, 1, 2]
    assert compiled(2, 3) == []
    assert compiled(4, 3) == [0, 1]
    assert compiled(4, 5) == [2]
    compiling._headers_digest.cache_clear()


@pytest.mark.parametrize("content", [b"", b"cut short", None])
def test_a_cubin_that_was_damaged_is_made_again(compiler, monkeypatch, content):
    files = counted(monkeypatch, compiler)
    first = compile_cuda(TEXT, "twice", "sm_90a")
    path = files[0].with_suffix(".cubin")
    path.unlink() if content is None else path.write_bytes(content)
    again = compile_cuda(TEXT, "twice", "sm_90a")
    assert again.usage == first.usage
    assert compile_cuda(TEXT, "twice", "sm_90a") == again
    assert len(files) == 2


def test_an_error_names_kernel_line_error_and_command(compiler):
    with pytest.raises(CompileError) as error:
        compile_cuda(TEXT.replace("2 *", "two *"), "twice", "sm_90a", "fc1 net.py:7")
    assert re.fullmatch(
        r"kernel twice \(fc1 net\.py:7\) does not compile: .*twice-\w+\.cu\(3\): error: "
        r'identifier "two" is undefined\n'
        r"command: \S+ -std=c\+\+20 -lineinfo -fmad=false -I\S+kernels -arch=sm_90a "
        r".*twice-\w+\.cu",
        str(error.value),
    )


def test_a_folder_that_cannot_be_written_is_named(compiler, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(CompileError) as error:
        compile_cuda(TEXT, "twice", "sm_90a")
    assert str(error.value) == (
        f"cannot write the cache of compiled kernels in {tmp_path}/file/cuda: Not a directory; "
        "make room there, or let GRAPHC_CACHE_DIR name another folder"
    )


def test_without_a_compiler_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(compiling, "nvrtc", lambda: None)
    monkeypatch.setattr(compiling, "nvcc", lambda: None)
    with pytest.raises(CompileError) as error:
        find_compiler.__wrapped__()
    assert str(error.value) == (
        "no CUDA compiler: NVRTC is not installed and nvcc is not on the PATH. "
        "pip install 'graphc[cuda]' brings NVRTC"
    )


def test_nvcc_serves_where_nvrtc_is_missing(compiler, monkeypatch):
    nvcc = need_nvcc()
    monkeypatch.setattr(compiling, "find_compiler", lambda: nvcc)
    cubin = compile_cuda(TEXT, "twice", "sm_80")
    assert cubin.usage["twice"].registers > 0
    with pytest.raises(CompileError, match='identifier "two" is undefined'):
        compile_cuda(TEXT.replace("2 *", "two *"), "twice", "sm_80")


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_every_kernel_of_the_models_compiles_and_spills_nothing(compiler, arch: str):
    need_nvrtc()  # nvcc takes minutes
    kernels = {}
    for name, (model, shape) in MODELS.items():
        specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
        train = graphc.compile(loss_fn, model(), *specs, update=optim.Adam(lr=0.1), device="cuda")
        kernels.update({(name, k): source for k, source in train.kernels.items()})
    with ThreadPoolExecutor(2) as pool:
        cubins = list(pool.map(lambda k: compile_cuda(kernels[k], k[1], arch), kernels))
    usage = [
        (key, u) for key, cubin in zip(kernels, cubins, strict=True) for u in cubin.usage.items()
    ]
    assert len(usage) >= len(kernels) > 30
    assert [found for found in usage if found[1][1].spilled] == []


def test_the_log_of_ptxas_is_read():
    assert compiling.parse_usage(LOG) == {
        "first": compiling.Usage(40, 12, 2048),
        "second": compiling.Usage(8, 0, 0),
    }


LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    16 bytes stack frame, 12 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""


def test_a_launch_that_begins_early_waits_before_it_touches_memory(tmp_path):
    """In the code of every kernel of a step with products of registers and of tensor cores."""
    nvcc = need_command("nvcc")
    shape = MODELS["lenet"][1]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    options = {"update": optim.Adam(lr=0.1), "device": "cuda", "precision": "bfloat16"}
    program = graphc.compile(loss_fn, MODELS["lenet"][0](), *specs, **options)
    text = tmp_path / "kernels.cu"
    text.write_text("\n".join(program.kernels.values()))
    command = [nvcc, "-std=c++20", "-arch=sm_90a", "-ptx", f"-I{HEADERS}", str(text), "-o", "-"]
    entries = ptx_of([*command, "-DGRAPHC_EARLY_LAUNCH"])
    assert len(entries) > 20
    assert any("mma.sync" in x for x in entries) and any("fma.rn.f32" in x for x in entries)
    for entry in entries:
        name, wait = entry.split("(")[0], entry.find("griddepcontrol.wait")
        first = TOUCHES.search(entry)
        assert first is not None and 0 < wait < first.start(), f"{name} reads before it waits"
        assert wait < entry.find("griddepcontrol.launch_dependents") < first.start()
    assert not any("griddepcontrol" in entry for entry in ptx_of(command))


TOUCHES = re.compile(r"\b(?:ld|st|atom|red)\.[a-z.]*global|\bcp\.async\.c[ag]\b")
"""Instructions that read or write global memory."""


def ptx_of(command: list[str]) -> list[str]:
    """The text of each kernel that is compiled."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(".entry ")[1:]
