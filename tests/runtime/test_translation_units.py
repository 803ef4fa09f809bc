"""Kernels in units: what is shared, what is built again, what each is called, and every error."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import CompileError
from graphc.ir import Where
from graphc.kernels.program.form import hole
from graphc.kernels.program.kernel import Kernel
from graphc.program import loading
from graphc.runtime.compilers import cache, compiler, translation_units
from graphc.runtime.compilers.compiler import run
from graphc.runtime.compilers.shared_objects import FLAGS, KERNEL_HEADERS, cpu_target
from graphc.runtime.compilers.translation_units import build_kernels, building
from tests.runtime.compiling import calling, calls, objects, own_cache
from tests.runtime.handmade import kernel
from tests.support.translation_units import ANSWER, answer_of, many, result_of, results
from tests.tools import ROOT

__all__ = ["own_cache"]


def test_a_kernel_is_built_once(tmp_path):
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 1
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 1
    assert [p.suffix for p in (tmp_path / "cache" / "cpu").iterdir()] == [".so"]


def test_kernels_are_found_by_name_and_see_the_headers():
    included = kernel("included", "", top="#ifndef __OPTIMIZE__\n#error flags are missing\n#endif")
    functions = build_kernels({"answer": ANSWER, "included": included})
    assert set(functions) == {"answer", "included"}
    assert build_kernels({}) == {}
    assert (KERNEL_HEADERS / "cpu").is_dir()


def test_kernels_that_differ_in_names_alone_share_one_function(tmp_path):
    def relu(name: str, value: str) -> Kernel:
        text = (
            f"const float* const {hole(1)}_data = (float*)arguments[0];\n"
            f"const float {hole(1)}_ = {hole(1)}_data[0];\n"
            f"*(int*)arguments[0] = {hole(1)}_ > 0;"
        )
        made = kernel(hole(0), text)
        return replace(made, name=name, names=(name, value), origin=f"{name}: relu {value}.py:3")

    first, second = relu("conv1_relu", "conv1_add"), relu("conv2_relu", "conv2_add")
    assert "const float conv1_add_ = conv1_add_data[0];" in first.source
    other = kernel("other", "*(int*)arguments[0] = 7;")
    functions = build_kernels({k.name: k for k in (first, second, other)})
    assert functions["conv1_relu"] == functions["conv2_relu"] != functions["other"]
    assert len(objects(tmp_path)) == 2


def test_layers_of_one_kind_are_compiled_once():
    class Deep(nn.Module):
        def __init__(self):
            self.layers = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)])

        def forward(self, x):
            return self.layers(x)

    program = graphc.compile(
        lambda model, x: graphc.mean(model(x) ** 2.0),
        Deep(),
        graphc.spec((32, 32)),
        update=optim.SGD(lr=0.1),
        device="cpu",
    )
    functions = build_kernels(program.plan.kernels)
    assert len(functions) == len(program.kernels) >= 18
    assert len(set(functions.values())) <= 11
    for name, text in program.kernels.items():
        assert f"void {name}(" in text and text.startswith(f"// {name}: ")


def test_what_a_kernel_computes_does_not_depend_on_its_neighbours(tmp_path, monkeypatch):
    def states(unit_cost: float) -> list[np.ndarray]:
        monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / f"units-{unit_cost}"))
        monkeypatch.setattr(translation_units, "UNIT_COST", unit_cost)
        graphc.seed(0)
        layers = nn.Conv2d(1, 6, kernel_size=3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        program = graphc.compile(
            lambda model, x: graphc.mean(graphc.log_softmax(model(x)) ** 2.0),
            nn.Sequential(*layers, nn.Linear(150, 5)),
            graphc.spec((20, 1, 12, 12)),
            update=optim.SGD(lr=0.1),
            device="cpu",
        )
        x = np.random.default_rng(0).normal(size=(20, 1, 12, 12)).astype(np.float32)
        losses = [program(x) for _ in range(2)]
        return [*losses, *program.state_dict().values()]

    together = states(1e9)
    built = calls(tmp_path)
    alone = states(1e-9)
    assert calls(tmp_path) - built > built
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_kernel_is_found_again_whatever_was_built_beside_it(tmp_path):
    assert results(many(40)) == {f"k{i}": i for i in range(40)}
    before = calls(tmp_path)
    assert before < 10
    chosen = {name: k for name, k in many(45).items() if name in ("k3", "k17", "k39")}
    assert results(chosen) == {"k3": 3, "k17": 17, "k39": 39}
    assert calls(tmp_path) == before
    assert results(many(41)) == {f"k{i}": i for i in range(41)}
    assert calls(tmp_path) == before + 1


def test_kernels_are_built_where_files_have_one_name_only(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    assert results(many(8)) == {f"k{i}": i for i in range(8)}
    assert len(objects(tmp_path)) == 8


def test_another_line_of_the_model_is_no_other_object(tmp_path):
    first = replace(ANSWER, origin="answer: add model.py:3")
    second = replace(ANSWER, origin="answer: add model.py:4")
    assert answer_of({"answer": first}) == answer_of({"answer": second}) == 42
    assert calls(tmp_path) == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "not an object"])
def test_a_corrupt_object_is_built_again(tmp_path, monkeypatch, damage):
    build_kernels({"answer": ANSWER})
    (good,) = objects(tmp_path)
    content = good.read_bytes()
    junk = cache.sealed(b"junk", [good.stem])
    damaged = {
        "cut": content[: len(content) // 2],
        "changed": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        "empty": b"",
        "not an object": junk,
    }[damage]
    # In another cache: the good one is loaded by now.
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "corrupt"))
    path = tmp_path / "corrupt" / "cpu" / good.name
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged)
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 2
    assert cache.intact(path, path.stem)


def test_two_processes_may_build_the_same_kernels(tmp_path):
    program = (
        "from tests.runtime.test_translation_units import many, results\n"
        "assert results(many(6)) == {f'k{i}': i for i in range(6)}\n"
    )
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [p.wait(timeout=120) for p in running] == [0, 0, 0]
    found = objects(tmp_path)
    assert len(found) == 6 and all(cache.intact(path, path.stem) for path in found)
    assert not [p for p in (tmp_path / "cache" / "cpu").iterdir() if p.is_dir()]


def test_a_compile_error_names_kernel_line_file_command_and_error(tmp_path):
    bad = Kernel("bad", "pointwise", 'extern "C" void bad() { return missing; }')
    with pytest.raises(CompileError) as caught:
        build_kernels({"bad": bad}, {"bad": Where("conv1", ("lenet.py:14",))})
    (file,) = (tmp_path / "cache" / "cpu").glob("bad-*.cpp")
    first, command = str(caught.value).split("\n")
    compiler = os.environ["CXX"]
    flags = [*FLAGS, "-fno-wrapv"]
    flags += [f"-DGRAPHC_LANES={cpu_target().lanes}", f"-I{KERNEL_HEADERS}"]
    assert command == "command: " + shlex.join([compiler, *flags, str(file), "-o", "/dev/null"])
    start = f"kernel bad (conv1 lenet.py:14) does not compile: {file}:1:"
    assert first.startswith(start) and "missing" in first and "error: " in first
    assert file.read_text() == bad.source
    again = run(shlex.split(command)[1:])
    assert again.returncode == 1 and first.split(" does not compile: ")[1] in again.stderr


def test_the_error_of_a_unit_is_that_of_its_bad_kernel(tmp_path):
    bad = kernel("bad", "missing();")
    with pytest.raises(CompileError) as caught:
        build_kernels({**many(9), "bad": bad})
    (file,) = (tmp_path / "cache" / "cpu").glob("bad-*.cpp")
    assert str(caught.value).startswith(f"kernel bad does not compile: {file}:4:")


def test_a_compiler_that_cannot_hold_a_unit_builds_its_kernels_alone(tmp_path, monkeypatch):
    gives_up = (
        'for word in "$@"; do case $word in *.cpp) '
        "test $(grep -c '^namespace kernel_' $word) -gt 1 && exit 1;; esac; done\n"
    )
    calling(tmp_path, monkeypatch, f'{gives_up}exec {os.environ["CXX"]} "$@"')
    assert results(many(6)) == {f"k{i}": i for i in range(6)}


def test_a_compiler_that_fails_silently(tmp_path, monkeypatch):
    script = calling(tmp_path, monkeypatch, '[ "$1" = --version ] && echo mute 1.0 || exit 3')
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    (file,) = (tmp_path / "cache" / "cpu").glob("answer-*.cpp")
    flags = [*FLAGS, "-fno-wrapv"]
    flags += [f"-DGRAPHC_LANES={cpu_target().lanes}", f"-I{KERNEL_HEADERS}"]
    command = [str(script), *flags, str(file), "-o", "/dev/null"]
    assert str(caught.value) == (
        "kernel answer does not compile: the compiler ended with status 3\n"
        f"command: {shlex.join(command)}"
    )


def test_a_cache_that_cannot_be_made_is_an_error(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(blocked))
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        f"cannot write the cache of compiled kernels in {blocked / 'cpu'}: Not a directory; "
        "make room there, or let GRAPHC_CACHE_DIR name another folder"
    )


def test_a_full_disk_is_an_error_and_leaves_no_object(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        f"cannot write the cache of compiled kernels in {tmp_path / 'cache' / 'cpu'}: No space "
        "left on device; make room there, or let GRAPHC_CACHE_DIR name another folder"
    )
    assert objects(tmp_path) == []


def test_kernels_may_be_built_for_fewer_lanes():
    lanes = kernel("answer", "*(int*)arguments[0] = GRAPHC_LANES;")
    for wanted in (4, 8):
        assert result_of(build_kernels({"answer": lanes}, lanes=wanted)["answer"]) == wanted


def test_a_training_step_of_a_cnn_is_few_kernels_in_few_units(monkeypatch):
    class Net(nn.Module):
        def __init__(self):
            self.conv1, self.conv2 = nn.Conv2d(1, 20, kernel_size=5), nn.Conv2d(20, 50, 5)
            self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

        def forward(self, x):
            x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
            x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
            return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))

    program = graphc.compile(
        lambda model, x, y: graphc.cross_entropy(model(x), y),
        Net(),
        graphc.spec((100, 1, 28, 28)),
        graphc.spec((100,), "int32"),
        update=optim.SGD(lr=0.1),
        device="cpu",
    )
    monkeypatch.setattr(translation_units, "usable_cores", lambda: 2)
    wanted = [
        translation_units.PendingKernel(kernel, "", kernel.canonical)
        for kernel in {k.canonical: k for k in program.plan.kernels.values()}.values()
    ]
    assert len(wanted) <= 22
    assert [len(unit) > 3 for unit in translation_units._units(wanted)] == [True, True, True]


def test_kernels_whose_integers_wrap_around_are_built_by_themselves(monkeypatch):
    """The product of 65,536 by itself is 0, whatever stands beside it."""
    commands = []

    def recorded(command, *rest):
        commands.append(command)
        return run(command, *rest)

    monkeypatch.setattr(translation_units, "run", recorded)
    square = "int32_t x = 65536 + !arguments[0]; *(int*)arguments[0] = x * x;"
    squares = kernel("squares", square, top="#include <cstdint>\n")
    assert results({**many(5), "squares": squares})["squares"] == 0
    built = [("-fno-wrapv" in c, "-fwrapv" in c) for c in commands if "-shared" in c]
    assert (False, True) in built
    assert (True, True) in built


def test_kernels_of_a_unit_share_what_turns_blocks(tmp_path):
    """Two relayouts of other shapes hold one function for whole blocks, which neither inlines."""
    text = "".join(
        f'extern "C" void k{m}(const float* x, float* y)'
        f" {{ graphc::relayout<true, 1, 32, {m}, {m}>(x, y, 0, 2); }}\n"
        for m in (48, 64)
    )
    source = tmp_path / "unit.cpp"
    source.write_text(f'#include "cpu/shared/transpose.h"\n{text}')
    flags = [f for f in FLAGS if f != "-shared"]
    command = [compiler.find_compiler().command[0], *flags, "-DGRAPHC_LANES=16"]
    subprocess.run(
        [*command, f"-I{KERNEL_HEADERS}", "-S", str(source), "-o", str(tmp_path / "unit.s")],
        check=True,
    )
    lines = (tmp_path / "unit.s").read_text().splitlines()
    turning = {line for line in lines if line.startswith("_ZN6graphc") and "transpose" in line}
    assert len(turning) == 1


def test_kernels_are_built_beside_what_is_done_inside(tmp_path):
    kernels = many(9)
    with building(kernels) as built:
        built()
        before = calls(tmp_path)
        assert results(kernels) == {f"k{i}": i for i in range(9)}
        assert 0 < before == calls(tmp_path)


def test_the_error_of_a_kernel_built_beside_comes_to_who_asks_for_it(tmp_path):
    kernels = {"bad": kernel("bad", "missing();")}
    with building(kernels) as built:
        built()
        with pytest.raises(CompileError, match=r"^kernel bad \(lenet\.py:14\) does not compile: "):
            build_kernels(kernels, {"bad": "lenet.py:14"})


def test_what_is_built_beside_is_given_up_with_what_is_done_inside(tmp_path, monkeypatch):
    calling(tmp_path, monkeypatch, '[ "$1" = --version ] && echo slow 1.0 || exec sleep 300')
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), building({"answer": ANSWER}):
        raise KeyboardInterrupt
    assert objects(tmp_path) == []
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert not names & {"graphc-kernels", "graphc-build"}


def test_kernels_are_compiled_while_their_plan_is_made(tmp_path, monkeypatch):
    planned, end = loading.planned, time.monotonic() + 60

    def after_building(*arguments, **options):
        while all(path.name.startswith("player") for path in objects(tmp_path)):
            assert time.monotonic() < end
            time.sleep(0.01)
        return planned(*arguments, **options)

    monkeypatch.setattr(loading, "planned", after_building)
    double = graphc.compile(lambda x: x * 2.0, graphc.spec((3,)), device="cpu", streams=1)
    np.testing.assert_array_equal(double(np.ones(3, np.float32)), np.full(3, 2, np.float32))
