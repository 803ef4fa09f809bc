"""What exports for GPUs do besides computing: errors, saved state, files, and what is refused."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.exported import run
from graphc import nn, optim
from graphc.base.errors import CompileError, GraphError
from graphc.export.cuda.architectures import architectures
from graphc.export.cuda.header import GPU_ERRORS
from graphc.runtime.cuda.compile import compile_fatbin
from tests.export.fake_gpu import (
    KERNELS,
    all_equal,
    driver,
    kernels_for_the_simulator,
    linked,
    said,
    selftest,
    settings,
    simulated_kernels,
    step_of,
)
from tests.tools import need_command, need_nvcc

__all__ = ["kernels_for_the_simulator"]
X = graphc.spec((4, 3))


def loss(model: Any, x: Any) -> Any:
    return graphc.mean(model(x) ** 2)


def small(device: str = "sim", **more: Any) -> Any:
    graphc.seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 2))
    return graphc.compile(loss, model, X, update=optim.Adam(lr=0.1), device=device, **more)


ERRORS = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"
static unsigned char weights[NET_WEIGHTS_BYTES], saved[NET_STATE_BYTES], other[NET_STATE_BYTES];
static float x[NET_STEP_X_COUNT];

int main(void) {
  FILE* file = fopen("net.weights", "rb");
  const size_t size = fread(weights, 1, sizeof weights, file);
  net model, none = {0};
  float loss, again, lr;
  const net_step_inputs in = {x}, no_input = {0};
  const net_step_outputs out = {&loss}, second = {&again};
  const int first = net_init(&model, 0, weights, size);
  printf("%d %d\n", first, net_driver_error());
  if (first) return 0;
  weights[70]++;
  printf("%d %d", net_init(&none, 0, 0, size), net_init(&none, 0, weights, size - 1));
  printf(" %d", net_init(&none, 0, weights, size));
  weights[70]--;
  printf(" %d", net_init(&none, 5, weights, size));
  weights[30]++;
  printf(" %d\n", net_init(&none, 0, weights, size));
  weights[30]--;
  printf("%d %d %d\n", net_step(&none, &in, &out), net_step(&model, &no_input, &out),
         net_step(&model, &in, 0));
  for (int i = 0; i < NET_STEP_X_COUNT; i++) x[i] = 0.1f * (float)i;
  const int failed = net_step(&model, &in, &out);
  printf("%d", failed);
  if (failed) printf(" %d", net_restore(&model, weights, size));
  if (failed) printf(" %d", net_step(&model, &in, &out));
  memcpy(saved, net_save(&model), sizeof saved);
  printf(" %d", net_step(&model, &in, &out));
  memcpy(other, net_save(&model), sizeof other);
  printf(" %d", net_restore(&model, saved, sizeof saved));
  printf(" %d", net_step(&model, &in, &second));
  printf(" %d %d\n", loss == again, memcmp(other, net_save(&model), sizeof other));
  printf("%d", net_read(&model, &lr, net_state_lr(&model), sizeof lr));
  printf(" %g", lr);
  lr = 0;
  printf(" %d", net_write(&model, net_state_lr(&model), &lr, sizeof lr));
  memcpy(saved, net_save(&model), sizeof saved);
  printf(" %d\n", net_step(&model, &in, &out));
  net_close(&model);
  net_close(&model);
  fclose(file);
  return 0;
}
"""
CODES = {name.removeprefix("ERROR_"): str(n) for n, (name, _) in enumerate(GPU_ERRORS)}


@pytest.fixture(scope="module")
def program_of_errors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with simulated_kernels():
        folder = tmp_path_factory.mktemp("errors") / "made"
        small(streams=2).export(folder, "cuda", name="net", calls=2)
        assert all_equal(selftest(folder, "net"))
        return linked(folder, ERRORS, "net")


def test_errors_saved_state_and_the_learning_rate(program_of_errors: Path) -> None:
    c = CODES
    assert said(program_of_errors).splitlines() == [
        "0 0",
        f"{c['NULL']} {c['SIZE']} {c['CHECKSUM']} {c['DEVICE']} {c['PROGRAM']}",
        f"{c['NULL']} {c['NULL']} {c['NULL']}",
        "0 0 0 0 1 0",
        "0 0.1 0 0",
    ]
    lines = (program_of_errors.parent / "record").read_text().splitlines()
    verbs = Counter(line.split()[0] for line in lines)
    for made, ended in (
        ("mem_alloc", "mem_free"),
        ("host_alloc", "host_free"),
        ("stream_create", "stream_destroy"),
        ("event_create", "event_destroy"),
        ("module_load", "module_unload"),
        ("retain", "release"),
        ("end_capture", "graph_destroy"),
    ):
        assert verbs[made] == verbs[ended] > 0
    assert "stream_create 1 flags 1 priority -5" in lines
    assert "stream_create 2 flags 1 priority 0" in lines


@pytest.mark.parametrize(
    "call",
    (
        *("launch 1", "launch 3", "launch 20", "copy_any 2", "copy_any 3", "record 1", "wait 1"),
        *("begin_capture 1", "end_capture 1", "graph_instantiate 1", "stream_synchronize 2"),
    ),
)
def test_a_call_that_fails_can_be_followed_by_others(call: str, program_of_errors: Path) -> None:
    lines = said(program_of_errors, FAKE_FAIL=call).splitlines()
    assert lines[0] == "0 0"
    assert lines[3] == f"{CODES['DRIVER']} 0 0 0 0 0 1 0"
    assert lines[4] == "0 0.1 0 0"


@pytest.mark.parametrize(
    ("more", "code", "driver_says"),
    [
        ({"FAKE_DEVICES": "0"}, "DEVICE", 100),
        ({"FAKE_MEMORY": "1000"}, "MEMORY", 2),
        ({"FAKE_FAIL": "module_load 2"}, "DRIVER", 700),
        ({"FAKE_FAIL": "get_function 1"}, "DRIVER", 700),
        ({"FAKE_FAIL": "host_alloc 1"}, "DRIVER", 700),
        ({"FAKE_FAIL": "copy_any 1"}, "DRIVER", 700),
    ],
)
def test_a_model_that_cannot_begin(
    more: dict[str, str], code: str, driver_says: int, program_of_errors: Path
) -> None:
    assert said(program_of_errors, **more) == f"{CODES[code]} {driver_says}\n"


def test_a_state_is_that_of_any_target(tmp_path: Path) -> None:
    """Weights of a convolution lie with channels last on the GPU, row-major in the block."""
    gpu, _ = step_of("lenet", "sim", 1)
    assert any(b.value.type.layout.axis is not None for b in gpu.plan.state)
    cpu, _ = step_of("lenet", "cpu", 1)
    gpu.export(tmp_path / "gpu", "cuda", name="net", calls=1)
    cpu.export(tmp_path / "cpu", "x86-64", name="net", calls=1)
    blocks = [(tmp_path / where / "net.weights").read_bytes() for where in ("gpu", "cpu")]
    assert blocks[0] == blocks[1]


def test_training_and_prediction_share_the_state(tmp_path: Path) -> None:
    graphc.seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4))
    x = graphc.spec((2, 2, 8, 8))
    train = graphc.compile(loss, model, x, update=optim.SGD(lr=0.1), device="sim", streams=1)
    predict = graphc.compile(model, x, device="sim", streams=1)
    folder = tmp_path / "made"
    graphc.export({"train": train, "predict": predict}, folder, "cuda", name="net", calls=3)
    assert all_equal(selftest(folder, "net"))
    predict.export(tmp_path / "alone", "cuda", name="net", weights_in_code=True, calls=1)
    assert all_equal(selftest(tmp_path / "alone", "net"))
    header = (tmp_path / "alone" / "net.h").read_text()
    assert re.search("net_constant_.*weight", header) and "net_weights[" in header


def test_wrong_results_are_reported(tmp_path: Path) -> None:
    program = graphc.compile(lambda x: (x * 2, x.astype("float16"), x > 0), X, device="sim")
    folder = tmp_path / "made"
    program.export(folder, "cuda", name="net", calls=1)
    assert all_equal(selftest(folder, "net"))
    expected = bytearray((folder / "net.expected").read_bytes())
    floats = np.frombuffer(expected, np.float32, 12)
    floats[3] += 1e-6  # within the tolerance
    (folder / "net.expected").write_bytes(expected)
    lines = run("build/net_selftest", folder=folder, environment=settings(folder)).splitlines()
    assert lines[0].startswith("2 of 3 results have the bits of the simulator; the others are ")
    floats[3] += 1
    expected[49] ^= 0x7C  # a half
    expected[48 + 24] ^= 1  # a bool
    (folder / "net.expected").write_bytes(expected)
    with pytest.raises(AssertionError) as raised:
        run("build/net_selftest", folder=folder, environment=settings(folder))
    assert len(re.findall(r"call 0: value_\d: .* from what is expected", str(raised.value))) == 3
    assert "3 results are wrong" in str(raised.value)


def test_nvcc_compiles_the_kernels_and_cmake_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the architectures that the target names, from the files that it writes, without a path of
    this machine."""
    need_nvcc()
    need_command("cmake")
    monkeypatch.setattr(KERNELS, "compile_fatbin", compile_fatbin)
    folder = tmp_path / "made"
    model = nn.Linear(3, 2)
    graphc.compile(model, X, device="cuda").export(folder, "cuda", name="net", calls=1)
    (image,) = (folder / "cubins").iterdir()
    before = image.read_bytes()
    assert before.count(b"sm_80") and before.count(b"sm_90a")
    assert str(Path(graphc.__file__).parent.parent).encode() not in before
    environment = settings(folder)
    run("sh", "build.sh", "kernels", folder=folder, environment=environment)
    assert len(image.read_bytes()) == len(before)
    flags = f"-DCUDA_cuda_driver_LIBRARY={driver()}/libcuda.so"
    words = ["cmake", "-B", "made", flags, f"-DCUDAToolkit_ROOT={environment['CUDA_HOME']}"]
    run(*words, folder=folder, environment=environment)
    run("cmake", "--build", "made", folder=folder, environment=environment)
    listed = run("nm", "-u", "made/libnet.a", folder=folder)
    wanted = {line.split()[-1] for line in listed.splitlines() if " U " in line}
    wanted = {w for w in wanted if not w.startswith(("cu", "net_", "_GLOBAL_OFFSET"))}
    assert wanted <= {"free", "posix_memalign", "memcpy", "memset", "__tls_get_addr"}


def test_architectures() -> None:
    assert architectures("cuda") == ("sm_80", "sm_90a", "compute_80")
    assert architectures("sm_89") == ("sm_89", "compute_89")
    assert architectures("sm_90a") == ("sm_90a",)
    assert [architectures(t) for t in ("sm_75", "cuda:1", "sm_", "x86-64")] == [()] * 4


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(program: Any, message: str, **more: Any) -> None:
        with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
            program.export(tmp_path / "made", "cuda", **more)

    refused(
        graphc.compile(lambda x: x + 1, X, device="cpu"),
        "export: function was compiled for cpu: only programs of a GPU can be exported for one: "
        'compile with device="cuda", which needs no GPU',
    )
    refused(
        small(),
        "export: threads=True is for kernels of a CPU; a GPU has its own",
        threads=True,
    )
    monkeypatch.setenv("GRAPHC_WGMMA", "1")
    refused(
        graphc.compile(lambda x: x + 1, X, device="sim"),
        "export: function was compiled with GRAPHC_WGMMA or GRAPHC_CLUSTERS, which exports do not "
        "have: compile without them",
    )


def test_a_call_of_a_library_is_no_kernel(tmp_path: Path) -> None:
    program = graphc.compile(lambda x: x @ x.T, X, device="sim")
    (name,) = program.plan.kernels
    kernel = replace(program.plan.kernels[name], call=SimpleNamespace())
    program.plan = replace(program.plan, kernels={name: kernel})
    message = (
        f"export: {name} of function is a call of a library, which exports do not need: compile "
        'without tune="libraries"'
    )
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        program.export(tmp_path / "made", "cuda")


def test_a_filter_under_two_layouts(tmp_path: Path) -> None:
    """One program updates it with channels last, the other reads it row-major."""
    graphc.seed(0)
    model = nn.Sequential(nn.Conv2d(16, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    x = graphc.spec((2, 16, 8, 8))
    train = graphc.compile(loss, model, x, update=optim.SGD(lr=0.1), device="sim", streams=1)
    layouts = {b.value.name: b.value.type.layout for b in train.plan.state}
    assert layouts["0.weight"].axis is not None
    weight = graphc.compile(lambda m: m[0].weight * 2, model, device="sim")
    message = (
        "export: the functions read 0.weight under two layouts, row-major and with channels last, "
        "and one of them writes it: export them apart"
    )
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        graphc.export({"train": train, "weight": weight}, tmp_path / "made", "cuda")


def test_without_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    program = graphc.compile(lambda x: x + 1, X, device="cuda")
    message = "no nvcc on the PATH: it makes the kernels of several architectures"
    with pytest.raises(CompileError, match=f"^{message}$"):
        compile_fatbin(program.plan.kernels["add"].source, "add", ("sm_80",), True)
