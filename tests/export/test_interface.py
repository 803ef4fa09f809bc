"""What an export's functions do besides computing, what its files say, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks import exported
from benchmarks.exported import build, run, selftest, states
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.cli import main
from graphc.export.header import ERRORS
from tests.export.harness import need_target
from tests.support.guide import blocks
from tests.tools import need_command, run_python

X = graphc.spec((4, 3))


def loss(model: Any, x: Any) -> Any:
    return graphc.mean(model(x) ** 2)


def step_and_model() -> tuple[Any, Any]:
    graphc.seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.5), nn.Linear(5, 2))
    return graphc.compile(loss, model, X, update=optim.Adam(lr=0.1), device="cpu"), model


def sample() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


CHECKS = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"
static _Alignas(64) unsigned char arena[NET_ARENA_BYTES], state[NET_STATE_BYTES];
static _Alignas(64) unsigned char saved[NET_STATE_BYTES], other[NET_STATE_BYTES];
static unsigned char weights[NET_WEIGHTS_BYTES];
static float x[NET_TRAIN_X_COUNT], loss, again, y[NET_PREDICT_RESULT_COUNT];

static int init(net* model, size_t size) { return net_init(model, arena, state, weights, size); }

int main(void) {
  FILE* file = fopen("net.weights", "rb");
  const size_t size = fread(weights, 1, sizeof weights, file);
  net model;
  printf("%d %d %d %d\n", init(0, size), net_init(&model, arena + 1, state, weights, size),
         net_init(&model, arena, state + 8, weights, size), init(&model, size - 1));
  weights[0]++;
  printf("%d", init(&model, size));
  weights[0]--, weights[30]++;
  printf(" %d", init(&model, size));
  weights[30]--, weights[100]++;
  printf(" %d", init(&model, size));
  weights[100]--;
  printf(" %d\n", init(&model, size));
  const net_train_inputs in = {x};
  const net_train_outputs out = {&loss}, second = {&again}, none = {0};
  for (int i = 0; i < NET_TRAIN_X_COUNT; i++) x[i] = 0.1f * (float)i;
  printf("%d %d %d\n", net_train(&model, &in, &none), net_train(&model, 0, &out),
         net_train(&model, &in, &out));
  memcpy(saved, net_save(&model), sizeof saved);
  net_train(&model, &in, &out);
  memcpy(other, net_save(&model), sizeof other);
  saved[200] ^= 1;
  printf("%d %d", net_restore(&model, saved, sizeof saved),
         memcmp(other, net_save(&model), sizeof other));
  saved[200] ^= 1;
  printf(" %d\n", net_restore(&model, saved, sizeof saved));
  net_train(&model, &in, &second);
  printf("%d %d\n", loss == again, memcmp(other, net_save(&model), sizeof other));
  printf("%d %g\n", *net_state_step(&model), *net_state_lr(&model));
  const net_predict_inputs point = {x};
  const net_predict_outputs result = {y};
  printf("%d\n", net_predict(&model, &point, &result));
  fclose(file);
  return 0;
}
"""


def test_errors_and_saved_state(tmp_path: Path) -> None:
    need_target("x86-64")
    train, model = step_and_model()
    model.eval()
    predict = graphc.compile(model, X, device="cpu")
    folder = tmp_path / "made"
    graphc.export({"train": train, "predict": predict}, folder, name="net")
    build(folder, "x86-64")
    (folder / "checks.c").write_text(CHECKS)
    flags = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I.")
    run("gcc", *flags, "checks.c", "build/libnet.a", "-o", "checks", folder=folder)
    said = run(str(folder / "checks"), folder=folder).splitlines()
    codes = {name.removeprefix("ERROR_"): str(n) for n, (name, _) in enumerate(ERRORS)}
    null, aligned, short = codes["NULL"], codes["ALIGNMENT"], codes["SIZE"]
    assert said == [
        f"{null} {aligned} {aligned} {short}",
        f"{codes['FORMAT']} {codes['PROGRAM']} {codes['CHECKSUM']} 0",
        f"{null} {null} 0",
        f"{codes['CHECKSUM']} 0 0",  # an error leaves the state as it is
        "1 0",  # dropout draws the same again
        "2 0.1",
        "0",
    ]


def test_the_header_is_c_plus_plus_too_and_two_exports_make_one_program(tmp_path: Path) -> None:
    need_target("x86-64-avx2")
    for name in ("first", "second"):
        train, _ = step_and_model()
        train.export(tmp_path / name, "x86-64-avx2", name=name, calls=1)
        build(tmp_path / name, "x86-64-avx2")
    (tmp_path / "both.cpp").write_text(
        '#include "first/first.h"\n#include "second/second.h"\n'
        "int main() { first a; second b; return first_init(&a, 0, 0, 0, 0) != FIRST_ERROR_NULL ||\n"
        "    second_init(&b, 0, 0, 0, 0) != SECOND_ERROR_NULL; }\n"
    )
    libraries = [f"{name}/build/lib{name}.a" for name in ("first", "second")]
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    run("g++", *flags, "both.cpp", *libraries, "-o", "both", folder=tmp_path)
    run(str(tmp_path / "both"), folder=tmp_path)


THREADS = r"""
#include <stdio.h>
#include "net.h"
static _Alignas(64) unsigned char arena[NET_ARENA_BYTES], state[NET_STATE_BYTES];
static _Alignas(64) unsigned char pool[NET_POOL_BYTES];
static unsigned char weights[NET_WEIGHTS_BYTES];
static float x[NET_STEP_X_COUNT];

int main(void) {
  FILE* file = fopen("net.weights", "rb");
  const size_t size = fread(weights, 1, sizeof weights, file);
  for (int threads = 1; threads <= 4; threads++) {
    net model;
    float loss;
    const net_step_inputs in = {x};
    const net_step_outputs out = {&loss};
    if (net_init(&model, arena, state, weights, size)) return 1;
    if (threads > 1 && net_start(&model, pool, threads) != threads) return 2;
    for (int i = 0; i < 20; i++) net_step(&model, &in, &out);
    if (threads > 1) net_stop(&model);
    const unsigned char* block = net_save(&model);
    printf("%02x%02x%02x%02x\n", block[15], block[14], block[13], block[12]);
  }
  return 0;
}
"""


def test_threads_change_no_bit(tmp_path: Path) -> None:
    need_target("x86-64")
    graphc.seed(0)
    model = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 64))
    step = graphc.compile(
        loss, model, graphc.spec((64, 96)), update=optim.SGD(lr=0.1), device="cpu"
    )
    assert any(max(k.phases) > 1 for k in step.plan.kernels.values())
    folder = tmp_path / "made"
    step.export(folder, "x86-64", name="net", threads=True, calls=2)
    lines = selftest(folder, "net", "x86-64")
    assert states(lines) and exported.tested(folder, "net", "x86-64", threads=3) == lines
    (folder / "threads.c").write_text(THREADS)
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", "-pthread")
    run("gcc", *flags, "threads.c", "build/libnet.a", "-o", "threads", folder=folder)
    found = run(str(folder / "threads"), folder=folder).split()
    assert len(found) == 4 and len(set(found)) == 1


def test_cmake_builds_it(tmp_path: Path) -> None:
    need_target("x86-64")
    need_command("cmake")
    train, _ = step_and_model()
    train.export(tmp_path / "made", name="net", calls=1, weights_in_code=True)
    run("cmake", "-B", "build", folder=tmp_path / "made")
    run("cmake", "--build", "build", folder=tmp_path / "made")
    run("ctest", "--test-dir", "build", folder=tmp_path / "made")


LOADER = """
import { readFileSync } from "node:fs";
import { load } from "./net.mjs";
const weights = readFileSync("net.weights");
const model = await load(readFileSync("build/net.wasm"), weights);
const x = Float32Array.from({ length: 12 }, (_, i) => i / 8);
const first = model.save();
const { result } = model.step({ x });
console.log(Object.keys(model.state).length, model.state.step[0]);
model.restore(first);
console.log(model.step().result[0] === result[0], model.state["0.weight"].length);
const said = (f) => { try { f(); } catch (error) { console.log(error.message); } };
said(() => model.step({ z: x }));
said(() => model.step({ x: [1] }));
first[70] ^= 1;
said(() => model.restore(first));
said(() => model.restore(first.subarray(1)));
await load(readFileSync("build/net.wasm"), weights.subarray(1)).catch((e) =>
  console.log(e.message));
"""


def test_the_loader_for_javascript(tmp_path: Path) -> None:
    need_target("wasm32")
    train, _ = step_and_model()
    folder = tmp_path / "made"
    train.export(folder, "wasm32", name="net", calls=1)
    build(folder, "wasm32")
    (folder / "use.mjs").write_text(LOADER)
    size = (folder / "net.weights").stat().st_size
    assert run("node", "use.mjs", folder=folder).splitlines() == [
        f"{len(train.state_dict())} 1",
        "true 15",
        "net.step: no input z; expected x",
        "net.step: x expected 12 elements, got 1",
        "net: the weights or the state are damaged",
        "net: the weights or the saved state are too short",
        f"net: expected weights of {size} bytes, got {size - 1}",
    ]
    types = (folder / "net.d.mts").read_text()
    assert '/** f32[5,3] */ "0.weight": Float32Array;' in types
    assert "/** f32[4,3] */ x?: Float32Array | number[];" in types


def test_the_state_and_the_program_are_as_before(tmp_path: Path) -> None:
    train, _ = step_and_model()
    before = train.state_dict()
    train.export(tmp_path / "made", "aarch64", inputs=[(sample(),)])
    for name, array in train.state_dict().items():
        if name != "lr":  # which the first step would have set
            np.testing.assert_array_equal(array, before[name])
    assert np.isfinite(train(sample()))


def test_a_state_is_that_of_any_target(tmp_path: Path) -> None:
    """Header and checksum of the weights depend on no target."""
    train, _ = step_and_model()
    for target in ("x86-64-avx512", "wasm32", "cortex-m"):
        train.export(tmp_path / target, target, name="net", calls=1)
    weights = {(tmp_path / t / "net.weights").read_bytes() for t in ("x86-64-avx512", "wasm32")}
    assert len(weights) == 1
    assert (tmp_path / "cortex-m" / "net.weights").read_bytes() in weights


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"target": "sparc"},
            "export: target expected one of x86-64, x86-64-avx2, x86-64-avx512, aarch64, wasm32, "
            "riscv64, cortex-m, cuda, or a GPU such as sm_90a, got 'sparc'",
        ),
        ({"name": "a-b"}, "export: name expected an identifier of C such as model, got 'a-b'"),
        (
            {"target": "wasm32", "threads": True},
            "export: threads=True needs an operating system, wasm32 has none",
        ),
        ({"denormals": "zero"}, "export: denormals expected 'flush' or 'keep', got 'zero'"),
        (
            {"target": "riscv64", "denormals": "flush"},
            'export: riscv64 has no mode that flushes denormals: denormals="keep"',
        ),
        ({"calls": 0}, "export: calls expected a number from 1 on, got 0"),
        (
            {"inputs": []},
            "export: inputs expected at least one call, of 1048576 bytes in all at most, got 0 of "
            "0 bytes",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    train, _ = step_and_model()
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        train.export(tmp_path / "made", **arguments)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    def refused(programs: Any, message: str, folder: Path = tmp_path / "made") -> None:
        with pytest.raises(GraphError, match=f"^{message}$"):
            graphc.export(programs, folder)

    square = lambda x: x * x  # noqa: E731
    refused(
        graphc.compile(square, X, device="sim"),
        "export: function was compiled for sim: only programs of the CPU and the reference can be "
        'exported for a CPU: compile with device="cpu", or export for "cuda"',
    )
    refused(
        graphc.compile(square, graphc.spec(("n", 3)), device="cpu"),
        r"export: function is for any size, an export is for one: export what its at\(\) returns",
    )
    told = graphc.compile(lambda x: graphc.show(x, "x") + 1, X, device="cpu")
    refused(
        told,
        "export: function prints by graphc.show: use graphc.tap, whose values become outputs",
    )
    program = graphc.compile(square, X, device="cpu")
    refused({}, "export: expected a program, or a dict of programs by name, got no programs")
    refused(3, "export: expected a program, or a dict of programs by name, got int")
    refused({"f": 3}, "export: f expected a program, got int")
    refused(
        {"a b": program},
        "export: a function's name expected an identifier of C such as model, got 'a b'",
    )
    refused({"init": program}, "export: a function cannot be called init: every export has one")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    refused(program, f"export: {tmp_path}/full is not empty: give a new folder", tmp_path / "full")
    (tmp_path / "plain").touch()
    refused(
        program, f"export: cannot write {tmp_path}/plain/a: Not a directory", tmp_path / "plain/a"
    )
    message = "export: inputs belong to a single program, the export has several"
    with pytest.raises(GraphError, match=message):
        graphc.export({"a": program, "b": program}, tmp_path / "two", inputs=[(sample(),)])


def test_the_command_line(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "programs.py"
    file.write_text(
        "import graphc\nfrom graphc import nn\n"
        'net = graphc.compile(nn.Linear(3, 2), graphc.spec((4, 3)), device="cpu")\n'
    )
    folder = tmp_path / "made"
    words = ["export", f"{file}:net", str(folder), "--target", "riscv64", "--name", "linear"]
    assert main(words) == 0
    said = f"{folder}: README.md says how to build it and how to call it\n"
    assert capsys.readouterr().out == said
    assert (folder / "linear.h").exists()
    assert main(words) == 1
    assert capsys.readouterr().err.endswith(f"{folder} is not empty: give a new folder\n")


def test_the_page_runs(tmp_path: Path) -> None:
    (block,) = [text for _, text in blocks("docs/export.md")]
    run_python("-c", block, folder=tmp_path)
    for folder in ("training", "both"):
        assert (tmp_path / folder / "line.h").exists()
    assert "line_train_inputs" in (tmp_path / "both" / "line.h").read_text()


def test_any_name_and_an_array_of_the_weights(tmp_path: Path) -> None:
    """Names of arguments and results may be words of C, differ in case or hold anything."""
    need_target("x86-64")

    def function(x: Any) -> Any:
        first, second = x["a */ b\\"], x["int"]
        return {"NAME": first + second, "name": x["2"] * 2, "a\nb": second, "": first - 1}

    specs = {"a */ b\\": X, "int": X, "2": X}
    program = graphc.compile(function, specs, device="cpu")
    program.export(tmp_path / "made", name="UPPER_NAME", weights_in_code=True, calls=1)
    assert states(selftest(tmp_path / "made", "UPPER_NAME", "x86-64"))
    program.export(tmp_path / "module", "wasm32", name="CALLS")
    assert "CALLS_run(&model" in (tmp_path / "module" / "wasm.c").read_text()


def test_a_result_with_the_name_and_type_of_an_argument_has_memory_of_its_own(
    tmp_path: Path,
) -> None:
    need_target("x86-64")
    program = graphc.compile(lambda x: {"x": x @ x}, graphc.spec((64, 64)), device="cpu")
    program.export(tmp_path / "made", name="net", calls=1)
    assert states(selftest(tmp_path / "made", "net", "x86-64"))


def test_programs_of_the_reference_and_of_a_file(tmp_path: Path) -> None:
    graphc.seed(0)
    model = nn.Linear(3, 2)
    named = {d: graphc.compile(model, X, device=d) for d in ("cpu", "reference")}
    named["cpu"].save(tmp_path / "saved")
    named["loaded"] = graphc.load(tmp_path / "saved")
    for name, program in named.items():
        program.export(tmp_path / name, "aarch64", name="net", calls=1)
    for file in ("model.cpp", "kernels_0.cpp", "net.weights", "selftest.c"):
        assert len({(tmp_path / name / file).read_bytes() for name in named}) == 1


def test_what_no_address_reaches(tmp_path: Path) -> None:
    wide = graphc.compile(lambda x: x + 1, graphc.spec((1 << 14, 1 << 15)), device="reference")
    message = (
        "export: the program takes 4294967616 bytes, with which wasm32 has no addresses: at most "
        "2147483647"
    )
    with pytest.raises(GraphError, match=f"^{message}$"):
        wide.export(tmp_path / "made", "wasm32")
