"""Joined launches as loop nests: those of their parts, interpreted one after another, give the bits
of the launch, and parts of equal nests share a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.target import Target
from graphc.ir import DTYPES
from graphc.kernels import lower as lowering
from graphc.kernels.cuda.shared.launches import BlockFunction
from graphc.kernels.loops.interpret import interpret
from graphc.kernels.lower import lower
from graphc.kernels.program.joined import JoinedPart, JoinedStep
from graphc.kernels.program.kernel import Kernel
from graphc.ops.base import Array
from graphc.ops.fused import kernels_in
from graphc.runtime.plan.plan import Plan
from graphc.runtime.plan.saved import decoded_plan, encoded
from graphc.runtime.planner.joined import join_launches
from tests.support.join_launches import joins

__all__ = ["joins"]

CUDA = Target("cuda", lanes=1, arch="sm_90a")


def softsign(x: graphc.Tensor) -> graphc.Tensor:
    return x / (1 + abs(x))


def normed(x: graphc.Tensor) -> graphc.Tensor:
    return x / (1 + graphc.sum(x * x, axis=1, keepdims=True))


def loop(x: graphc.Tensor, h: graphc.Tensor, scale: graphc.Tensor) -> tuple[graphc.Tensor, ...]:
    """Reductions and pointwise work in a loop and behind it, with values in place."""

    def step(h: graphc.Tensor, x_t: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
        h = normed(softsign(h * scale + x_t))
        return h, h * 2

    h, stack = graphc.scan(step, h, x)
    return graphc.max(stack, axis=0), softsign(h), graphc.concat([h, h * scale], axis=1)


def chain(x: graphc.Tensor, h: graphc.Tensor, scale: graphc.Tensor) -> tuple[graphc.Tensor, ...]:
    """Launches one behind the other, with sums of columns and of all."""
    y = normed(softsign(x[0] * scale))
    columns = graphc.sum(y * h, axis=0)
    z = normed(y + columns)
    return z, graphc.transpose(softsign(z - h)), graphc.sum(z)


SPECS = graphc.spec((5, 16, 32)), graphc.spec((16, 32)), graphc.spec((32,))


class Played:
    """A joined launch by the nests of its parts, on memory of NumPy."""

    def __init__(self, plan: Plan, steps: Sequence[JoinedStep]) -> None:
        (self.run,) = plan.joined
        self.plan, self.steps, self.played = plan, steps, 0
        places = [b.place for b in (*plan.inputs, *plan.outputs)] + list(self.run.arguments)
        self.memory = {"work": np.zeros(plan.peak_bytes, np.uint8)}
        for segment in {p.segment for p in places} - {"work"}:
            size = max(p.stop for p in places if p.segment == segment)
            self.memory[segment] = np.zeros(size, np.uint8)

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs."""
        for binding, array in zip(self.plan.inputs, inputs, strict=True):
            self.bytes(binding.place.segment, binding.place.start, array.nbytes)[:] = (
                np.ascontiguousarray(array).ravel().view(np.uint8)
            )
        self.play(self.steps, ())
        return [
            self.bytes(b.place.segment, b.place.start, b.value.type.nbytes)
            .view(b.value.type.numpy_dtype)
            .reshape(b.value.type.shape)
            .copy()
            for b in self.plan.outputs
        ]

    def play(self, steps: Sequence[JoinedStep], times: tuple[int, ...]) -> None:
        for step in steps:
            if not isinstance(step, JoinedPart):
                for t in range(step.count):
                    self.play(step.parts, (*times, t))
            elif not step.iterations or 0 <= times[-1] - step.iterations[0] < step.iterations[1]:
                self.part(step, times)

    def part(self, part: JoinedPart, times: Sequence[int]) -> None:
        places = [
            (self.run.arguments[a.argument].segment, self.start(a, times)) for a in part.addresses
        ]
        if part.kernel is None:
            source, target = (self.bytes(*place, part.nbytes) for place in places)
            target[:] = source
        elif part.launch == len(part.kernel.joined_launches) - 1:
            for nest, names in nests_of(part.kernel):
                at = dict(zip(names, places, strict=True))
                memory = {
                    m.name: self.bytes(*at[m.name], m.size * DTYPES[m.dtype].itemsize).view(
                        DTYPES[m.dtype]
                    )
                    for m in nest.memory
                    if m.elements is None
                }
                interpret(nest, memory)
                self.played += 1

    def start(self, address: Any, times: Sequence[int]) -> int:
        moved = sum((t % p) * s for t, (s, p, _) in zip(times, address.moves, strict=False))
        return self.run.arguments[address.argument].start + address.offset + moved

    def bytes(self, segment: str, start: int, size: int) -> Array:
        return self.memory[segment][start : start + size]


def nests_of(kernel: Kernel) -> list[tuple[Any, tuple[str, ...]]]:
    """The nests of a kernel's last launch, with the names of its arguments."""
    assert kernel.device_functions is not None
    function = kernel.device_functions.functions[-1]
    assert isinstance(function, BlockFunction) and not isinstance(function.body, Sequence)
    return [(nest, function.signature.names()) for nest in function.body.nests]


@pytest.mark.parametrize("fn", [loop, chain], ids=lambda fn: fn.__name__)
def test_nests_of_the_parts_have_the_bits_of_the_launch(
    fn: Callable[..., Any], joins: pytest.MonkeyPatch
) -> None:
    found: list[Sequence[JoinedStep]] = []

    def joined(name: str, parts: Sequence[JoinedStep], arguments: int) -> Kernel:
        found.append(parts)
        return lowering.joined_kernel(name, parts, arguments)

    joins.setattr(join_launches, "joined_kernel", joined)
    joins.setenv("GRAPHC_DENORMALS", "keep")
    program = graphc.compile(fn, *SPECS, device="sim", streams=1)
    assert program.plan is not None
    (steps,) = found
    played = Played(program.plan, steps)
    random = np.random.default_rng(3)
    inputs = [random.standard_normal(s.shape).astype(np.float32) for s in SPECS]
    want = program(*inputs)
    for got, expected in zip(played(inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert played.played > 3


def kernels_of(fn: Callable[..., Any], *specs: Any) -> list[Kernel]:
    program = graphc.compile(fn, *specs, device="reference")
    return [lower(node, CUDA) for node in kernels_in(program.graph)]


def test_parts_of_equal_nests_on_equal_arguments_share_a_function() -> None:
    x, y, wide = graphc.spec((8, 16)), graphc.spec((8, 16)), graphc.spec((8, 20))

    def forms(*functions: Callable[..., Any], specs: Sequence[Any] = (x, y)) -> int:
        return len({k.part_form for fn in functions for k in kernels_of(fn, *specs)})

    assert forms(lambda a, b: a * b + a, lambda p, q: p * q + p) == 1
    assert forms(lambda a, b: a * b - a, lambda a, b: a * b - b) == 2
    assert forms(lambda a, b: a * 2 + b, lambda a, b: a * 3 + b) == 2
    assert forms(lambda a, b: normed(a) + b, lambda p, q: normed(p) + q) == 1
    assert forms(lambda a, b: normed(a * b) + a, lambda a, b: normed(a * b) + b) == 2
    assert forms(lambda a, b: graphc.reshape(a * b, (16, 8)), lambda a, b: a * b) == 1
    one, other = (kernels_of(lambda a: a + 1, spec)[0] for spec in (x, wide))
    assert one.part_form != other.part_form


def test_functions_in_a_file_are_text(joins: pytest.MonkeyPatch) -> None:
    plan = graphc.compile(loop, *SPECS, device="cuda", streams=1).plan
    assert plan is not None and plan.joined
    found = decoded_plan(encoded(plan))
    assert found == plan and found.verify() == plan.verify()
    for name, kernel in plan.kernels.items():
        assert found.kernels[name].device_text == kernel.device_text
    assert encoded(found) == encoded(plan)
