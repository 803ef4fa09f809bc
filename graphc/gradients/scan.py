"""The gradient of a scan: one scan in the other direction.

An iteration of it computes the forward values again from what the forward iteration read, then the
gradients of that iteration: those of the new carries come in as its carries, those of the stacks as
elements. The gradients of the constants begin at zero and are added up as carries. What the forward
scan should rather store is decided later, by the pass store_or_recompute. An iteration that the
forward scan skipped is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from graphc.functions import zeros_like
from graphc.functions.array.looping import BodyBuilder
from graphc.gradients.copying import repeat
from graphc.ir import FLOATS, Value
from graphc.ops.loops.scan import Scan, stacked
from graphc.trace import Builder, Tensor, current_builder


def scan_gradient(
    op: Scan,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    active: Sequence[bool],
    gradients: Callable[..., list[Tensor | None]],
) -> list[Tensor | None]:
    """Return the gradient of each input of a scan; None for inputs that are not floats.

    Constants that are not `active` have none. `gradients` is
    `graphc.gradients.reverse.gradients`, which differentiates the body.
    """
    outer = current_builder()
    old, runs = _stack_old_carries(outputs)
    constants, _, scanned = op.split_inputs(inputs)
    body = BodyBuilder(outer, op.length)
    with body.building():
        before = [body.element(f"old.{i}", stack) for i, stack in enumerate(old)]
        elements = [body.element(f"x.{i}", x) for i, x in enumerate(scanned)]
        read = [*map(body.own, constants), *before, *elements]
        known = dict(zip(op.body.inputs, read, strict=True))
        repeat(body, op.body.nodes, known)
        results = [known[v] for v in op.results]
        seeds = _seeds(body, op, outputs, grads)
        seeded = [i for i, s in enumerate(seeds) if s is not None]
        wanted = [t for n, t in enumerate(read) if n >= len(constants) or active[n]]
        made = gradients(
            [results[i] for i in seeded], [s for s in seeds if s is not None], wanted, body
        )
        found = dict(zip((t.value for t in wanted), made, strict=True))
        to_constants, to_old, to_elements = op.split_inputs([found.get(t.value) for t in read])
        carries = [
            zeros_like(t) if g is None else g
            for t, g in zip(before, to_old, strict=True)
            if t.dtype in FLOATS
        ]
        for constant, grad in zip(constants, to_constants, strict=True):
            if grad is not None:
                with outer.building():
                    zero = zeros_like(constant)
                carries.append(body.carry("sum", zero) + grad)
        stacks = [g for g in to_elements if g is not None]
        guard = None if runs is None else body.element("runs", runs)
    emitted = iter(body.emit_scan(carries, stacks, not op.reverse, op.recompute, guard))
    d_old = [next(emitted) if t.dtype in FLOATS else None for t in before]
    d_constants = [None if g is None else next(emitted) for g in to_constants]
    d_elements = [None if g is None else next(emitted) for g in to_elements]
    return [*d_constants, *d_old, *d_elements]


def _seeds(
    body: BodyBuilder, op: Scan, outputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of the body's outputs as its carries and elements; None is zero."""
    seeds: list[Tensor | None] = []
    carries, stacks = op.split_outputs([*enumerate(zip(outputs, grads, strict=True))])
    for number, (output, grad) in carries:
        if output.dtype in FLOATS:
            with body.outer.building():
                initial = zeros_like(output) if grad is None else grad
            seeds.append(body.carry(f"d.{number}", initial))
        else:
            seeds.append(None)
    for number, (_, grad) in stacks:
        seeds.append(None if grad is None else body.element(f"d.{number}", grad))
    return seeds


def _stack_old_carries(outputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor | None]:
    """Add the old carries of all iterations to the outputs of the forward scan, and its guards."""
    outer = cast(Builder, outputs[0].builder)
    number = next(n for n, node in enumerate(outer.nodes) if outputs[0].value in node.outputs)
    loop = Scan.bind(outer.nodes[number])
    added = tuple(
        (v, Value(outer.fresh(f"{v.name}.old"), stacked(v.type, loop.op.length)))
        for v in (*loop.op.old_carries, *loop.guards)
    )
    outer.nodes[number] = replace(loop, stacks=(*loop.stacks, *added)).rebuilt()
    tensors = [Tensor(v, outer) for _, v in added]
    return (tensors[:-1], tensors[-1]) if loop.guards else (tensors, None)
