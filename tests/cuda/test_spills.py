"""Kernels that fit registers: the shapes that once did not, and tools/spills, which tries all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.workloads import WORKLOADS
from graphc import nn, optim, spec
from graphc.base.config import early_launch
from graphc.base.errors import CompileError
from graphc.runtime.cuda.compile import CudaCompiler
from graphc.trace import current_builder
from tests.support.spills import NEEDED
from tests.tools import first_quick
from tools.spills import __main__ as command
from tools.spills.cases import SETTINGS, asked, texts
from tools.spills.compiling import spills, usages
from tools.spills.texts import plain

TOO_MANY = """\
// Each thread holds 64 sums in 32 registers.
extern "C" __global__ void __launch_bounds__(1024, 2) brimming(const float* x, float* y) {
  float plenty[64];
  for (int i = 0; i < 64; i++) plenty[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int n = 0; n < 9; n++)
    for (int i = 0; i < 64; i++) plenty[i] += plenty[(i + 7) % 64] * x[n];
  for (int i = 0; i < 64; i++) y[i * 1024 + threadIdx.x] = plenty[i];
}
"""


@pytest.fixture(params=NEEDED)
def compiler(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CudaCompiler:
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    return NEEDED[request.param]()


def dense(x, w):
    return graphc.relu(x @ w.T)


def padded(x, w):
    return graphc.conv2d(x, w, None, 1, 1)


def normed(x, scale, shift, w, dy):
    """The gradients of a normalised image that a convolution reads."""

    def weighed(x, scale, shift):
        mean = graphc.mean(x, (0, 2, 3), keepdims=True)
        apart = x - mean
        variance = graphc.mean(graphc.square(apart), (0, 2, 3), keepdims=True)
        y = graphc.relu(apart * graphc.rsqrt(variance + 1e-5) * scale + shift)
        return graphc.sum(padded(y, w) * dy)

    return graphc.grad(weighed, (0, 1, 2))(x, scale, shift)


def measured(x, w, scale, shift, v):
    """A convolution behind one with a batch norm, whose sums groups of tiles join."""
    y = graphc.conv2d(x, w, None, 2, 1)
    mean = graphc.mean(y, (0, 2, 3), keepdims=True)
    variance = graphc.mean(graphc.square(y - mean), (0, 2, 3), keepdims=True)
    return padded(graphc.relu((y - mean) * graphc.rsqrt(variance + 1e-5) * scale + shift), v)


def norm(x, scale, shift):
    apart = x - graphc.mean(x, (0, 2, 3), keepdims=True)
    variance = graphc.mean(graphc.square(apart), (0, 2, 3), keepdims=True)
    return apart * graphc.rsqrt(variance + 1e-5) * scale + shift


def trained(stride: int, branches: int):
    """The gradients of the parts of a step that make an image by batch norms, which a convolution
    reads; and, where there are branches that are added, the image itself."""

    def gradients(x, dy, scale, shift, *weights):
        def loss(scale, shift, last, *first):
            normed = [norm(graphc.conv2d(x, w), scale, shift) for w in first]
            y = graphc.relu(sum(normed[1:], normed[0]))
            z = graphc.conv2d(y, last, None, stride, last.shape[-1] // 2)
            return graphc.sum(z * dy) + graphc.sum(y * y) * (branches - 1)

        return graphc.grad(loss, tuple(range(3 + branches)))(scale, shift, *weights)

    return gradients


IMAGE, CHANNELS = (8, 512, 7, 7), (512, 1, 1)
EACH, FIRST, LAST = (256, 1, 1), (256, 64, 1, 1), (64, 256, 1, 1)
STRIDED = ((32, 64, 28, 28), (32, 256, 14, 14), EACH, EACH, (256, 256, 3, 3), FIRST)
BRANCHED = ((32, 64, 56, 56), (32, 64, 56, 56), EACH, EACH, LAST, FIRST, FIRST)
TWO = ((8, 64, 56, 56), (128, 64, 3, 3), (128, 1, 1), (128, 1, 1), (128, 128, 3, 3))
MENDED: dict[str, tuple[Callable[..., Any], str, tuple[tuple[int, ...], ...]]] = {
    "dense": (dense, "float32", ((7680, 64), (256, 64))),
    "padded": (padded, "float32", ((8, 256, 14, 14), (256, 256, 3, 3))),
    "groups": (dense, "float32", ((100, 800), (500, 800))),
    "wgrad": (lambda x, dy: dy.T @ x, "tf32", ((2048, 4096), (2048, 4096))),
    "dgrad": (lambda x, w: x @ w, "tf32", ((4096, 2048), (2048, 2048))),
    "measured": (measured, "float32", TWO),
    "strided": (trained(2, 1), "float32", STRIDED),
    "branched": (trained(1, 2), "float32", BRANCHED),
    "normed": (normed, "tf32", (IMAGE, CHANNELS, CHANNELS, (512, 512, 3, 3), IMAGE)),
}
"""What spilled 4 to 128 bytes by NVRTC for one architecture at least, or is like what did."""


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
@pytest.mark.parametrize("name", MENDED)
def test_shapes_that_once_spilled_fit_registers(name: str, arch: str, compiler: CudaCompiler):
    function, precision, shapes = MENDED[name]
    options: dict[str, Any] = {"device": "cuda", "streams": 1, "precision": precision}
    program = graphc.compile(function, *map(spec, shapes), **options)
    found = dict(usages(program.kernels, compiler, arch))
    assert sum(map(len, found.values())) >= len(program.kernels)
    assert spills(found) == []


@pytest.mark.parametrize("arch", first_quick(1, ["sm_90a", "sm_80"]))
def test_tiles_of_narrow_columns_fit_registers(arch: str, compiler: CudaCompiler):
    def product(x, w, bias):
        return x @ graphc.astype(w, "float32").T + graphc.astype(bias, "float32")

    specs = spec((4096, 512)), spec((2048, 512), "float16"), spec((2048,), "float16")
    program = graphc.compile(product, *specs, device="cuda", streams=1)
    found = dict(usages(program.kernels, compiler, arch))
    assert any("Registers<128, 128, 16" in text for text in program.kernels.values())
    assert spills(found) == []


def test_large_blocks_of_which_there_are_few_have_a_multiprocessor_each():
    function, precision, shapes = MENDED["normed"]
    options: dict[str, Any] = {"device": "cuda", "streams": 1, "precision": precision}
    kernels = graphc.compile(function, *map(spec, shapes), **options).kernels
    assert any("__launch_bounds__(512, 1)" in text for text in kernels.values())
    rows = graphc.compile(lambda x: graphc.softmax(x, -1), spec((4096, 16384)), **options)
    assert any("__launch_bounds__(512)" in text for text in rows.kernels.values())


def test_what_counts_batches_beside_large_updates_fits_registers(compiler: CudaCompiler):
    """One part of the launch reads a counter of each normalisation."""

    class Counted(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter(np.zeros(2**19, np.float32))
            self.counts = [nn.Parameter(np.int64(0), trainable=False) for _ in range(60)]

        def forward(self, x):
            builder = current_builder()
            for count in self.counts:
                builder.update(builder.read_state(count.state), graphc.as_tensor(count) + 1)
            return graphc.mean(self.weight * x)

    options: dict[str, Any] = {"device": "cuda", "streams": 1, "update": optim.SGD(lr=0.1)}
    step = graphc.compile(lambda m, x: m(x), Counted(), spec((2**19,)), **options)
    update = {name: text for name, text in step.kernels.items() if name == "sgd_update"}
    assert spills(dict(usages(update, compiler, "sm_80"))) == [] and len(update) == 1


def test_a_kernel_that_spills_is_found_under_its_own_names(compiler: CudaCompiler):
    found = dict(usages({"much": TOO_MANY}, compiler, "sm_90a"))
    (spill,) = spills(found)
    assert (spill.kernel, spill.symbol, spill.usage.registers) == ("much", "brimming", 32)
    assert str(spill) == f"brimming: {spill.usage.spilled} bytes beside 32 registers"
    assert spill.usage.spilled >= 64


def test_the_command_lists_what_spills_and_fails(compiler: CudaCompiler, monkeypatch, capsys):
    made = {"much": TOO_MANY, "again": TOO_MANY.replace("brimming", "crammed")}
    monkeypatch.setattr(command, "texts", lambda workload, settings: made)
    name = "nvrtc" if compiler.command == ("nvrtc",) else "nvcc"
    options = ["--workloads", "mlp-small-b20", "--settings", "tf32,wgmma", "--compilers", name]
    with pytest.raises(SystemExit) as ended:
        command.main([*options, "--archs", "sm_80"])
    assert ended.value.code == 1
    line, spill, end = capsys.readouterr().out.splitlines()
    assert line.startswith(f"mlp-small-b20 tf32 {name} sm_80: 2 kernels, 1 texts, 1 spill, ")
    assert spill.startswith("  brimming: ") and end == "1 spill"


def test_the_command_ends_well_where_nothing_spills(compiler: CudaCompiler, monkeypatch, capsys):
    made = {"few": TOO_MANY.replace("64", "4")}
    monkeypatch.setattr(command, "texts", lambda workload, settings: made)
    name = "nvrtc" if compiler.command == ("nvrtc",) else "nvcc"
    with pytest.raises(SystemExit) as ended:
        command.main(["--workloads", "gpt4-b8", "--settings", "tf32", "--compilers", name])
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == "0 spill"


@pytest.mark.parametrize("settings", [s for s in SETTINGS if s not in ("early", "tma")])
def test_settings_make_texts_of_their_own(settings: str):
    """In an LSTM, or in LeNet where the last blocks add. `early` is compiled otherwise; `tma` asks
    for larger matrices."""
    workload = WORKLOADS["lstm-h512-b64" if settings == "streams" else "mnist-cnn-b100"]
    other = SETTINGS["bfloat16" if settings == "wgmma" else "tf32"]
    made, others = (
        {plain(text)[0] for text in texts(workload, each).values()}
        for each in (SETTINGS[settings], other)
    )
    assert settings == "tf32" or made - others


def test_joined_launches_are_compiled_too():
    made = texts(WORKLOADS["mlp-4x256-b16"], SETTINGS["tf32"])
    assert [name for name in made if name.endswith("_joined")]


def test_launches_that_begin_early_are_compiled_as_such(compiler: CudaCompiler, monkeypatch):
    made = texts(WORKLOADS["mlp-small-b20"], SETTINGS["tf32"])
    monkeypatch.setattr(command, "texts", lambda workload, settings: dict([*made.items()][:1]))
    name = "nvrtc" if compiler.command == ("nvrtc",) else "nvcc"
    for settings in ("tf32", "early"):
        options = ["--workloads", "mlp-small-b20", "--settings", settings, "--archs", "sm_90a"]
        with pytest.raises(SystemExit):
            command.main([*options, "--compilers", name])
    folder = Path(os.environ["GRAPHC_CACHE_DIR"]) / "cuda"
    images = {path.read_bytes() for path in folder.glob("*.cubin")}
    assert len(images) == 2
    assert early_launch() is False


@pytest.mark.parametrize("option", ["workloads", "settings", "archs", "compilers"])
def test_an_unknown_word_is_an_error_that_lists_those_that_are_there(option: str):
    known = command.KNOWN[option]
    with pytest.raises(SystemExit) as ended:
        command.main([f"--{option}", "gpt5"])
    assert str(ended.value) == f"{option}: expected some of {', '.join(known)}, got 'gpt5'"


def test_a_text_that_does_not_compile_is_an_error_that_names_the_kernel(compiler: CudaCompiler):
    with pytest.raises(CompileError, match=r"^kernel kernel \(much\) does not compile: "):
        list(usages({"much": TOO_MANY.replace("float plenty", "floats plenty")}, compiler, "sm_80"))


def test_texts_that_differ_in_names_and_comments_alone_are_one():
    changed = (
        TOO_MANY.replace("plenty", "abundance").replace("brimming", "throng").replace("64 s", "s")
    )
    text, names = plain(TOO_MANY)
    assert plain(changed)[0] == text != plain(TOO_MANY.replace("% 64", "% 63"))[0]
    assert "//" not in text and "brimming" not in text and "__launch_bounds__(1024, 2)" in text
    assert sorted(names.values()) == ["brimming", "plenty"]
    assert plain("y = nullptr, x = plenty;") == ("y = nullptr, x = name_0;\n", {"name_0": "plenty"})


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_kernel_of_a_workload_spills(workload: str, settings: str):
    """With the compiled cache of the user, so that nothing is compiled twice."""
    made = texts(WORKLOADS[workload], SETTINGS[settings])
    with asked(SETTINGS[settings]):
        found = [
            f"{name} {arch} {spill}"
            for name, needed in NEEDED.items()
            for arch in SETTINGS[settings].archs
            for spill in spills(dict(usages(made, needed(), arch)))
        ]
    assert made and found == []
