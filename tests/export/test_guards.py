"""An export leaves out what the CPU's player leaves out: iterations behind the end of a loop, and
branches that are not taken. The bits are those of Python, whatever the arena holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.exported import build, run, selftest, states
from graphc.export.lowering import lower_for
from graphc.export.sources import kernels_of
from graphc.export.targets import find_machine
from graphc.runtime.plan.plan import Launch, Loop, Step
from tests.export.harness import need_target
from tests.test_control_flow import random_program

SIZE = 8
W = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32) / 4
MATRIX = graphc.spec((SIZE, SIZE))
TARGET = "x86-64-avx2"


def climbing(x: Any, w: Any) -> Any:
    """A loop that ends when the sum has reached ten."""
    return graphc.while_loop(
        lambda c: graphc.sum(c) < 10, lambda c: graphc.tanh(c @ w) + c + 1, x, 30
    )


def stacking(x: Any, w: Any) -> Any:
    """A scan that ends early, whose stack is zeros from there on."""
    return graphc.scan(
        lambda c, a: (graphc.tanh(c @ w) + a, c), x, w, until=lambda c: graphc.sum(c) > 9
    )


def branching(x: Any, w: Any) -> Any:
    """The gradient of a branch that is taken where the sum is positive."""

    def loss(x: Any) -> Any:
        taken = graphc.cond(graphc.sum(x) > 0, lambda x: graphc.tanh(x @ w @ w), lambda x: x, x)
        return graphc.sum(taken * x)

    return graphc.value_and_grad(loss)(x)


DRIVER = r"""
#include <stdio.h>
#include <string.h>
#include "net.h"
static int counted;
WRAPPED
static _Alignas(64) unsigned char arena[NET_ARENA_BYTES], state[NET_STATE_BYTES];
static unsigned char weights[NET_WEIGHTS_BYTES];
static float x[NET_RUN_X_COUNT], w[NET_RUN_W_COUNT];
RESULTS

int main(void) {
  FILE* file = fopen("net.weights", "rb");
  const size_t size = fread(weights, 1, sizeof weights, file);
  fclose(file);
  file = fopen("inputs", "rb");
  FILE* outputs = fopen("outputs", "wb");
  net model;
  if (net_init(&model, arena, state, weights, size)) return 1;
  const net_run_inputs in = {x, w};
  const net_run_outputs out = {FIELDS};
  while (fread(x, sizeof x, 1, file) && fread(w, sizeof w, 1, file)) {
    memset(arena, 0xff, sizeof arena);
    counted = 0;
    if (net_run(&model, &in, &out)) return 2;
    printf("%d\n", counted);
    WRITES
  }
  fclose(outputs);
  return 0;
}
"""


def guarded(steps: Sequence[Step], within: bool = False) -> Iterator[Launch]:
    """The launches that may be left out."""
    for step in steps:
        if isinstance(step, Loop):
            yield from guarded(step.steps, within or step.guarded)
        elif isinstance(step, Launch) and (within or step.guarded):
            yield step


def counts(program: Any, inputs: Sequence[Sequence[Any]], folder: Path) -> list[int]:
    """How often each call of the export calls kernels that may be left out; the outputs have the
    bits of Python."""
    program.export(folder, TARGET, name="net", calls=1)
    machine = find_machine(TARGET)
    entries = lower_for(machine, {"run": program})
    names = kernels_of("net", entries, machine).of(entries[0])
    wrapped = sorted({names[launch.kernel] for launch in guarded(entries[0].plan.steps)})
    assert wrapped
    build(folder, TARGET)
    outputs = [f"out{n}" for n in range(len(entries[0].plan.outputs))]
    sizes = [b.value.type.nbytes for b in entries[0].plan.outputs]
    parameters = "(void* const* arguments, int phase, int chunk)"
    words = {
        "WRAPPED": "\n".join(
            f"void __real_{k}{parameters};\nvoid __wrap_{k}{parameters} {{\n"
            f"  counted++, __real_{k}(arguments, phase, chunk);\n}}"
            for k in wrapped
        ),
        "RESULTS": "\n".join(
            f"static _Alignas(64) unsigned char {o}[{n}];"
            for o, n in zip(outputs, sizes, strict=True)
        ),
        "FIELDS": ", ".join(f"(void*){o}" for o in outputs),
        "WRITES": " ".join(f"fwrite({o}, sizeof {o}, 1, outputs);" for o in outputs),
    }
    text = DRIVER
    for word, by in words.items():
        text = text.replace(word, by)
    (folder / "driver.c").write_text(text)
    (folder / "inputs").write_bytes(b"".join(a.tobytes() for call in inputs for a in call))
    flags = ["-std=c11", "-O1", "-I.", *(f"-Wl,--wrap={k}" for k in wrapped)]
    run("gcc", *flags, "driver.c", "build/libnet.a", "-lm", "-o", "driver", folder=folder)
    said = run(str(folder / "driver"), folder=folder)
    found = (folder / "outputs").read_bytes()
    assert found == b"".join(a.tobytes() for call in inputs for a in leaves(program(*call)))
    return [int(line) for line in said.split()]


def leaves(result: Any) -> list[Any]:
    """The arrays of a result, in order."""
    if isinstance(result, tuple):
        return [array for part in result for array in leaves(part)]
    return [np.asarray(result)]


def iterations(x: np.ndarray, goes_on: Callable[[Any], Any], body: Callable[[Any], Any]) -> int:
    """The iterations of a loop, at most 30."""
    count = 0
    while count < 30 and goes_on(x):
        x, count = body(x), count + 1
    return count


INPUTS = [np.full((SIZE, SIZE), value, np.float32) for value in (-4, -2, 0, 5)]


def test_a_loop_that_has_ended_calls_nothing_more(tmp_path: Path) -> None:
    need_target(TARGET)
    program = graphc.compile(climbing, MATRIX, MATRIX, device="cpu")
    found = counts(program, [(x, W) for x in INPUTS], tmp_path / "made")
    times = [
        iterations(x, lambda c: np.sum(c) < 10, lambda c: np.tanh(c @ W) + c + 1) for x in INPUTS
    ]
    assert times[-1] == 0 < times[1] < times[0] < 30
    # The last call counts what a kernel of equal text computes before the loop.
    before, each = found[-1], (found[0] - found[-1]) // times[0]
    assert each > before and found == [before + each * n for n in times]


def test_a_scan_that_ends_early(tmp_path: Path) -> None:
    need_target(TARGET)
    program = graphc.compile(stacking, MATRIX, MATRIX, device="cpu")
    found = counts(program, [(x, W) for x in INPUTS], tmp_path / "made")
    # It looks after each iteration.
    assert 0 < found[-1] < found[0]


def test_a_branch_that_is_not_taken_is_not_run(tmp_path: Path) -> None:
    need_target(TARGET)
    program = graphc.compile(branching, MATRIX, MATRIX, device="cpu")
    taken, other = counts(program, [(INPUTS[3], W), (INPUTS[0], W)], tmp_path / "made")
    loops = [step for step in program.plan.steps if isinstance(step, Loop)]
    assert {loop.count for loop in loops} == {1} and len(loops) >= 2
    assert taken > other


@pytest.mark.parametrize("target", ("x86-64", "aarch64", "wasm32", "cortex-m"))
def test_random_programs_with_loops_and_branches(target: str, tmp_path: Path) -> None:
    need_target(target)
    programs = {}
    for seed in range(4):
        traced = random_program(seed, False)
        specs = graphc.spec(()), graphc.spec(())
        step = graphc.value_and_grad(lambda a, b, f=traced: f(a, b)[0], (0, 1))
        programs[f"seed{seed}"] = graphc.compile(step, *specs, device="cpu")
    graphc.export(programs, tmp_path / "made", target, name="loops", calls=3)
    assert "goes_on" in (tmp_path / "made" / "model.cpp").read_text()
    assert len(states(selftest(tmp_path / "made", "loops", target))) == 12
