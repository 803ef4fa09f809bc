"""Branches and loops.

Their conditions are known when the model is traced; otherwise both branches are computed, and a
loop becomes a `scan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from graphc import functions as f
from graphc.onnx.operators.rules import UnsupportedError, Values, number, operator
from graphc.trace import Tensor

MOST = 1000
"""The most iterations that are written out one by one."""


class Body(Protocol):
    """A graph within a node: a function of its inputs."""

    def __call__(self, *values: Values) -> list[Values]: ...

    @property
    def keeps_condition(self) -> bool:
        """Whether its first result is its second input, or true."""

    @property
    def counts(self) -> bool:
        """Whether its first input must be known."""


@operator("If", raw=True)
def if_(condition: Values, then_branch: Body, else_branch: Body) -> Any:
    if isinstance(condition, np.ndarray):
        return tuple((then_branch if number(condition, False) else else_branch)())
    pairs = list(zip(then_branch(), else_branch(), strict=True))
    if any(isinstance(v, list | None) for pair in pairs for v in pair):
        raise UnsupportedError("the condition of branches with sequences must be known")
    tensors = [(f.as_tensor(a), f.as_tensor(b)) for a, b in pairs]
    if any(a.value.type != b.value.type for a, b in tensors):
        raise UnsupportedError("the condition of branches with results of two shapes must be known")
    choice = f.reshape(f.as_tensor(condition), ())
    return tuple(f.where(choice, a, b) for a, b in tensors)


@operator("Loop", raw=True, static="trips condition")
def loop(trips: Values, condition: Values, *carried: Values, body: Body, outputs: int = 1) -> Any:
    """Unroll a loop if something in it must be known; else make it a `scan`."""
    going = bool(number(condition, True))
    if trips is not None and going and body.keeps_condition and not body.counts:
        fixed = [v for v in carried if isinstance(v, list | None)]
        if not fixed:
            return _scanned(int(number(trips, 0)), carried, body)
    most = None if trips is None else int(number(trips, 0))
    values = list(carried)
    stacks: list[list[Values]] = [[] for _ in range(outputs - len(carried))]
    step = 0
    while going and (most is None or step < most):
        if step >= MOST:
            raise UnsupportedError(f"a loop that is written out has {MOST} iterations at most")
        new = body(np.array(step, np.int64), np.array(going), *values)
        if not isinstance(new[0], np.ndarray):
            raise UnsupportedError("the condition of a loop must be known when the model is traced")
        going = bool(number(new[0], True))
        values = new[1 : 1 + len(carried)]
        for stack, value in zip(stacks, new[1 + len(carried) :], strict=True):
            stack.append(value)
        step += 1
    if any(not stack for stack in stacks):
        raise UnsupportedError("a loop without iterations has nothing to stack")
    return (*values, *(f.stack([f.as_tensor(v) for v in stack], 0) for stack in stacks))


def _scanned(trips: int, carried: Sequence[Values], body: Body) -> Any:
    first = tuple(f.as_tensor(v) for v in carried)

    def step(carry: tuple[Tensor, ...], i: Tensor) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        new = [f.as_tensor(v) for v in body(i, np.array(True), *carry)[1:]]
        return tuple(new[: len(carry)]), new[len(carry) :]

    last, stacks = f.scan(step, first, f.as_tensor(np.arange(trips)))
    return (*last, *stacks)


@operator("Scan", raw=True)
def scan(
    *values: Values,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Any = None,
    scan_input_directions: Any = None,
    scan_output_axes: Any = None,
    scan_output_directions: Any = None,
    directions: Any = None,
    opset: int = 9,
) -> Any:
    """Scan sequences along their axes, those that run backwards after a flip.

    Before version 9 there is a batch, and the scan is done for each sample.
    """
    if opset < 9:
        return _batched_scan(values, body, num_scan_inputs, directions)
    tensors = [f.as_tensor(v) for v in values]
    count = len(tensors) - num_scan_inputs
    states, sequences = tuple(tensors[:count]), tensors[count:]
    elements = []
    for i, x in enumerate(sequences):
        axis = scan_input_axes[i] if scan_input_axes else 0
        x = f.moveaxis(x, axis, 0)
        backwards = scan_input_directions and scan_input_directions[i]
        elements.append(f.flip(x, 0) if backwards else x)

    def step(carry: Any, parts: Any) -> tuple[Any, Any]:
        new = [f.as_tensor(v) for v in body(*carry, *parts)]
        return tuple(new[:count]), tuple(new[count:])

    last, stacks = f.scan(step, states, tuple(elements))
    found = []
    for i, y in enumerate(stacks):
        y = f.flip(y, 0) if scan_output_directions and scan_output_directions[i] else y
        axis = scan_output_axes[i] if scan_output_axes else 0
        found.append(f.moveaxis(y, 0, axis))
    return (*last, *found)


def _batched_scan(values: Sequence[Values], body: Body, sequences: int, directions: Any) -> Any:
    """The first input, the lengths, is left out."""
    if values[0] is not None:
        raise UnsupportedError("Scan: lengths of sequences are not offered")
    tensors = [f.as_tensor(v) for v in values[1:]]
    samples = [
        scan(
            *(f.select(t, 0, i) for t in tensors),
            body=body,
            num_scan_inputs=sequences,
            scan_input_directions=directions,
        )
        for i in range(tensors[0].shape[0])
    ]
    return tuple(f.stack(list(parts), 0) for parts in zip(*samples, strict=True))


@operator("SequenceMap", raw=True)
def sequence_map(sequence: Values, *more: Values, body: Body) -> Any:
    """The body of each element, with that of the other sequences or all of another tensor."""
    found = [
        body(value, *(m[i] if isinstance(m, list) else m for m in more))
        for i, value in enumerate(sequence)
    ]
    return tuple(list(parts) for parts in zip(*found, strict=True))
