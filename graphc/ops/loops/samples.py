"""The loop of many samples some of which skip an iteration that others run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from graphc.ir import Graph, Value
from graphc.ir.vocabulary import Tensor, Tensors, Vocabulary
from graphc.ops.axes import repeated
from graphc.ops.base import Flags

_T = TypeVar("_T")


class GuardedLoop(Protocol):
    """A scan, as far as this module knows it; see `scan.py`."""

    @property
    def body(self) -> Graph: ...
    @property
    def length(self) -> int: ...
    @property
    def carries(self) -> int: ...
    @property
    def reverse(self) -> bool: ...
    @property
    def recompute(self) -> bool: ...
    @property
    def guard(self) -> Value | None: ...
    @property
    def results(self) -> tuple[Value, ...]: ...
    def split_inputs(
        self, items: Sequence[_T]
    ) -> tuple[Sequence[_T], Sequence[_T], Sequence[_T]]: ...
    def split_outputs(self, items: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]: ...


def guarded_samples(
    f: Vocabulary, op: GuardedLoop, inputs: Tensors, varies: Flags, size: int
) -> tuple[Tensors, Tensors]:
    """Return the last carries of all samples, and what they stack, for a guard that `varies`.

    An iteration runs if it does for any sample. A sample that skips it keeps its carries and stacks
    zeros. It computes what another sample does, so that nothing that it would make of its own
    values, such as NaN, gets into gradients.

    Args:
        f: The tensor operations.
        op: A guarded scan.
        inputs: Those of the scan; elements of what is scanned have the samples' axis first.
        varies: Which inputs of the body have an axis of samples; all carries have.
        size: The number of samples.
    """
    assert op.guard is not None, "it is guarded"
    constants, initial, xs = (tuple(part) for part in op.split_inputs(inputs))
    place = op.body.inputs.index(op.guard)
    carry, element = place - len(constants), place - len(constants) - len(initial)
    if element >= 0:
        xs = (*xs, f.any(xs[element], axis=1))
    elif carry >= 0:
        initial = (*initial, f.any(initial[carry]))
    else:
        any_runs = f.any(constants[place])

    def step(carries: Tensors, elements: Tensors) -> tuple[Tensors, Tensors, Tensor]:
        if element >= 0:
            *elements, some = elements
        elif carry >= 0:
            *carries, some = carries
        else:
            some = any_runs
        read = [*constants, *carries, *elements]
        runs = read[place]
        found = f.samples(op.body, _of_others(f, read, place, varies), varies, size)
        wide = [x if own else repeated(f, x, size) for x, own in found[: len(op.results)]]
        ends, made = op.split_outputs(wide)
        new = [_select(f, runs, x, old) for x, old in zip(ends, carries, strict=True)]
        stacks = [_select(f, runs, x, f.zeros_like(x)) for x in made]
        flags = [f.any(new[carry])] if element < 0 <= carry else []
        return (*new, *flags), tuple(stacks), some

    ends, stacks = f.guarded_scan(step, initial, xs, op.reverse, op.length, op.recompute)
    return ends[: op.carries], stacks


def _of_others(f: Vocabulary, read: Tensors, place: int, varies: Flags) -> list[Tensor]:
    """Return what a body reads, with that of a sample that runs for those that do not."""
    runs = read[place]
    one = f.argmax(f.astype(runs, "i32"))
    return [
        _select(f, runs, x, f.stop_gradient(f.take(x, one, axis=0))) if own and n != place else x
        for n, (x, own) in enumerate(zip(read, varies, strict=True))
    ]


def _select(f: Vocabulary, runs: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return `new` for the samples that run, else `old`."""
    return f.where(f.reshape(runs, (*runs.shape, *(1,) * (new.ndim - 1))), new, old)
