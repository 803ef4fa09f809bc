"""Gradients that are computed while a function is traced: of micro-batches, or as results.

With `accumulate=n` the batch, the first axis of every array, is cut into n micro-batches. One loop
goes over them; an iteration computes the loss of a micro-batch, and its gradients, which it adds to
those before, in float32. So nothing but a micro-batch's values is in memory at a time. The loop is
marked to be left as it is (`recompute`), since hoisting would compute all micro-batches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from graphc import functions
from graphc.base.source_lines import error
from graphc.functions.array.looping import BodyBuilder
from graphc.gradients.reverse import check_scalar_loss, gradients, one_like
from graphc.ir import FLOATS, NARROW, Type, Where, tree
from graphc.ir.state import StateBuffer
from graphc.nn.parameter import Parameter
from graphc.nn.selection import Selection
from graphc.optim.loss_scale import scaled_seed, unscaled
from graphc.program.tracing import Traced
from graphc.program.update import refuse_closures
from graphc.trace import Builder, Tensor

Gradients = dict[str, Tensor]
"""The gradient of each parameter that the loss depends on, by the parameter's name."""


class Differentiates(Protocol):
    """What computes the gradients of one micro-batch."""

    @property
    def parts(self) -> int:
        """The number of micro-batches."""

    @property
    def apart(self) -> bool:
        """Whether the micro-batches' gradients and losses are kept apart, each of its own loss.

        They are stacked along a new first axis; else they are added.
        """

    def once(
        self,
        builder: Builder,
        fn: Callable[..., Any],
        args: Sequence[Any],
        parameters: Mapping[str, Parameter],
    ) -> tuple[Any, Gradients]:
        """Call `fn` on a micro-batch; return its results, and what is added of its gradients."""


@dataclass(frozen=True)
class Differentiation:
    """How `compile` differentiates a function while it is traced."""

    parts: int
    scales: bool
    """Whether the loss is scaled."""
    selection: Selection | None
    """The parameters; None for all that are trainable."""
    returns: bool
    """Whether the gradients are results; else `update` takes them."""
    apart: bool = False

    def __call__(self, traced: Traced, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the results of `fn`, and the gradients or not; the first result is the loss."""
        parameters = noted(traced, self.selection)
        result, found = by_parts(self, traced.builder, fn, args, parameters)
        if self.scales:
            found = {name: unscaled(traced.builder, grad) for name, grad in found.items()}
        if self.selection is None and self.returns:
            refuse_closures(traced, "gradients=")
        if not found:
            raise error("the loss depends on none of the trainable parameters of the arguments")
        traced.gradients += [(parameters[name], grad, name) for name, grad in found.items()]
        if self.returns:
            return result, found
        traced.builder.applied += [(parameters[name], grad) for name, grad in found.items()]
        return result

    def once(
        self,
        builder: Builder,
        fn: Callable[..., Any],
        args: Sequence[Any],
        parameters: Mapping[str, Parameter],
    ) -> tuple[Any, Gradients]:
        """Call `fn` and differentiate its loss, divided by the number of micro-batches."""
        result = fn(*args)
        loss = result[0] if isinstance(result, tuple) else result
        check_scalar_loss(loss)
        loss = functions.astype(loss, "f32") if loss.dtype in NARROW else loss
        read = [n for n, p in parameters.items() if is_read(builder, p.state)]
        weights = [builder.read_state(parameters[name].state) for name in read]
        with builder.at(Where(derived=True)):
            seed = scaled_seed(builder, loss) if self.scales else one_like(loss)
            seed = seed if self.parts == 1 or self.apart else seed * (1 / self.parts)
        grads = gradients([loss], [seed], weights, builder)
        return result, {n: g for n, g in zip(read, grads, strict=True) if g is not None}


def by_parts(
    how: Differentiates,
    builder: Builder,
    fn: Callable[..., Any],
    args: Sequence[Any],
    parameters: Mapping[str, Parameter],
) -> tuple[Any, Gradients]:
    """Return the results of `fn` for the whole batch, and its gradients, added or apart."""
    if how.parts == 1 and not how.apart:
        return how.once(builder, fn, args, parameters)
    return _Loop(how, builder, args).run(fn, parameters)


def noted(traced: Traced, selection: Selection | None) -> dict[str, Parameter]:
    """Return the trainable parameters by name, which calls of the program check to be so."""
    whole = traced.parameters
    allowed = whole if selection is None else selection.of(whole)
    seen = traced.builder.trainable_read
    seen += [(name, p, p.trainable) for name, p in allowed.items()]
    return {name: p for name, p in allowed.items() if p.trainable}


def joined(element: Type, stack: Tensor) -> Tensor:
    """Return a result for the whole batch from those of its parts, stacked.

    Arrays are joined along their first axes; of scalars, floats are averaged, integers added, and
    booleans give whether any is true.
    """
    if element.shape:
        return functions.reshape(stack, (-1, *element.shape[1:]))
    if element.dtype in FLOATS:
        return functions.mean(functions.astype(stack, "f32") if _narrow(stack) else stack)
    return functions.any(stack) if element.dtype == "bool" else functions.sum(stack)


def is_read(builder: Builder, buffer: StateBuffer) -> bool:
    """Whether the program under construction has read a piece of state."""
    while isinstance(builder, BodyBuilder):
        builder = builder.outer
    return any(known is buffer for known in builder.buffers.values())


class _Loop(BodyBuilder):
    """The loop over micro-batches."""

    def __init__(self, how: Differentiates, outer: Builder, args: Sequence[Any]) -> None:
        super().__init__(outer, how.parts, "micro_batches")
        self.how = how
        self.size = size_of(args, how.parts, "shards of a rank" if how.apart else "accumulate")
        self.args = [tree.map_leaves(self._part, arg) for arg in args]
        """The arguments of an iteration."""

    def _part(self, _: str, leaf: Any) -> Any:
        """One micro-batch of an array; anything else as it is."""
        if not isinstance(leaf, Tensor) or not leaf.ndim:
            return leaf
        shape = (self.length, self.size, *leaf.shape[1:])
        return self.element(leaf.value.name, functions.reshape(leaf, shape))

    def run(
        self, fn: Callable[..., Any], parameters: Mapping[str, Parameter]
    ) -> tuple[Any, Gradients]:
        """Append the loop; return the results for the whole batch, and the gradients."""
        with self.building():
            result, found = self.how.once(self, fn, self.args, parameters)
            result = tree.map_leaves(lambda _, leaf: self.own(functions.as_tensor(leaf)), result)
            stacks = [leaf for _, leaf in tree.leaves(result)]
            grads = [functions.astype(g, "f32") if _narrow(g) else g for g in found.values()]
            if self.how.apart:
                sums, stacks = [], [*stacks, *grads]
            else:
                sums = [self._sum(*pair) for pair in zip(found, grads, strict=True)]
        outputs = self.emit_scan(sums, stacks, False, True)
        if self.how.apart:
            own = len(stacks) - len(grads)
            outputs = (*outputs[own:], *outputs[:own])
        whole = iter(outputs[len(grads) :])
        first = iter([self.how.apart])

        def of_batch(_: str, leaf: Tensor) -> Tensor:
            stack = next(whole)
            return stack if next(first, False) else joined(leaf.value.type, stack)

        result = tree.map_leaves(of_batch, result)
        return result, dict(zip(found, outputs, strict=False))

    def _sum(self, name: str, grad: Tensor) -> Tensor:
        """The sum of the gradients up to this iteration, from a carry that begins as zeros."""
        with self.outer.building():
            zeros = functions.zeros(grad.shape, grad.dtype)
        return self.carry(f"d.{name}", zeros) + grad


def _narrow(tensor: Tensor) -> bool:
    return tensor.dtype in NARROW


def size_of(args: Sequence[Any], parts: int, said: str) -> int:
    """Return the size of a micro-batch, or raise GraphError; `said` is what asked for them."""
    arrays = [leaf for arg in args for _, leaf in tree.leaves(arg) if isinstance(leaf, Tensor)]
    sizes = {leaf.value.name: leaf.shape[0] for leaf in arrays if leaf.ndim}
    if not sizes:
        raise error(f"{said}={parts}: expected arrays whose first axis is the batch, got none")
    shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
    if len({*sizes.values()}) > 1:
        raise error(f"{said}={parts}: expected one size of first axes, the batch, got {shown}")
    size = next(iter(sizes.values()))
    if size % parts or not size:
        raise error(f"{said}={parts}: expected a batch of {parts} equal parts, got {shown}")
    return size // parts
