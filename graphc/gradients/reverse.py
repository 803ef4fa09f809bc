"""Reverse-mode differentiation of the graph under construction.

The gradient consists of ordinary nodes after the forward ones. Each op's `grad` writes its part.
This file walks the nodes backwards, sums the contributions of several consumers, and undoes
broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from graphc import functions
from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.gradients.custom import custom_gradient
from graphc.gradients.scan import scan_gradient
from graphc.gradients.vocabulary import Vocabulary
from graphc.ir import FLOATS, Node, Value, tree
from graphc.ops.custom_gradient import CustomGradient
from graphc.ops.loops.scan import Scan
from graphc.ops.view import Reshape
from graphc.trace import Builder, Operand, Tensor, current_builder
from graphc.trace.mixed import in_precision

_RULES = Vocabulary()


def gradients(
    outputs: Sequence[Tensor],
    seeds: Sequence[Tensor],
    wanted: Sequence[Tensor],
    builder: Builder,
    first: int = 0,
) -> list[Tensor | None]:
    """Return the gradient of sum(outputs[i] * seeds[i]) with respect to each of `wanted`.

    Each has the shape and dtype of its tensor, or is None where no output depends on it. Nodes
    before number `first` are constants. A scan's body and the graph around it have different values
    for the same tensor; all tensors here are those of `builder`.
    """
    outputs, wanted = list(map(builder.own, outputs)), list(map(builder.own, wanted))
    nodes = builder.nodes[first:]
    active = _active(nodes, {t.value for t in wanted})
    grads: dict[Value, Tensor] = {}

    def contribute(value: Value, grad: Tensor) -> None:
        grad = _unbroadcast(grad, value.type.shape)
        grads[value] = grads[value] + grad if value in grads else grad

    for output, seed in zip(outputs, seeds, strict=True):
        if output.value in active:
            contribute(output.value, seed)
    here = current_builder()
    for node in reversed(nodes):
        if not any(v in grads for v in node.outputs):
            continue
        where = replace(node.where, derived=True)
        with here.at(where), in_precision(here, ""):
            inputs = [Tensor(v, builder) for v in node.inputs]
            results = [Tensor(v, builder) for v in node.outputs]
            known = [grads.get(v) for v in node.outputs]
            flags = [v in active for v in node.inputs]
            parts = _parts(node, inputs, results, known, flags, where.lines)
            for value, part in zip(node.inputs, parts, strict=True):
                if part is not None and value in active:
                    contribute(value, part)
    return [grads.get(t.value) for t in wanted]


def _parts(
    node: Node,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    active: Sequence[bool],
    lines: tuple[str, ...],
) -> Sequence[Tensor | None]:
    """Return a node's contributions to the gradients of its inputs, those that are `active`.

    A scan has no rule of its own: its gradient is a scan over this walk of its body. That of a mark
    is in a graph of its own.
    """
    if isinstance(node.op, Scan):
        return scan_gradient(node.op, inputs, outputs, grads, active, gradients)
    if isinstance(node.op, CustomGradient):
        for tensor, flag in zip(node.op.split(inputs)[1], node.op.split(active)[1], strict=True):
            if flag:
                raise GraphError(
                    f"custom_vjp: forward reads {tensor.value} : {tensor.value.type} from outside, "
                    "and backward gives no gradient of it: make it an argument, or read its "
                    f"stop_gradient{''.join(f' ({line})' for line in lines)}"
                )
        return custom_gradient(node.op, inputs, grads)
    parts = node.op.differentiate(_RULES, inputs, outputs, grads, lines)
    return cast("Sequence[Tensor | None]", parts)


def _active(nodes: Sequence[Node], wanted: set[Value]) -> set[Value]:
    """Return the float values that depend on `wanted`."""
    active = {v for v in wanted if v.type.dtype in FLOATS}
    for node in nodes:
        if any(v in active for v in node.inputs):
            active.update(v for v in node.outputs if v.type.dtype in FLOATS)
    return active


def _unbroadcast(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum the axes that broadcasting to the shape of `grad` added or stretched."""
    if grad.shape == shape:
        return grad
    extra = grad.ndim - len(shape)
    padded = (1,) * extra + shape
    axes = tuple(i for i, n in enumerate(padded) if n == 1 and grad.shape[i] != 1)
    if axes:
        grad = functions.sum(grad, axis=axes, keepdims=True)
    if grad.shape != shape:
        grad = functions.reshape(grad, shape)
    return grad


def value_and_grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return a function that computes `fn` and its gradient, for use in a traced function.

    The gradient is that with respect to the argument alone: a tensor that `fn` also reads from
    outside or as another argument is constant there. Parameters are the same wherever they are
    read.

    Args:
        fn: A function that returns a scalar tensor, or a tuple whose first item is one.
        argnums: The number of the argument to differentiate, or several.

    Returns:
        A function that returns `(fn(...), gradient)`. The gradient has the structure of the
        argument, with a dict of trainable parameters by name for a module; for several `argnums` it
        is a tuple.

    Raises:
        GraphError: `argnums` or the result of `fn` does not fit.

    Example:
        >>> f = graphc.value_and_grad(lambda x: graphc.sum(x**2))
        >>> graphc.compile(f, graphc.spec(2))(np.array([1, 3], np.float32))
        (array(10., dtype=float32), array([2., 6.], dtype=float32))
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        builder = current_builder()
        first = len(builder.nodes)
        numbers = numbers_of(argnums, args)
        own = [entered(a) if n in numbers else a for n, a in enumerate(args)]
        wanted = [differentiable(own[n]) for n in numbers]
        result = fn(*own, **kwargs)
        loss = result[0] if isinstance(result, tuple) else result
        check_scalar_loss(loss)
        flat = [leaf for t in wanted for _, leaf in tree.leaves(t)]
        found = iter(gradients([loss], [one_like(loss)], flat, builder, first))

        def pick(_: str, leaf: Tensor) -> Tensor:
            grad = next(found)
            return zeros_like(leaf) if grad is None else grad

        grads = [tree.map_leaves(pick, t) for t in wanted]
        return result, (grads[0] if isinstance(argnums, int) else tuple(grads))

    return wrapped


def grad(fn: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Return a function that computes the gradient of `fn`, for use in a traced function.

    Args:
        fn: A function that returns a scalar tensor, or a tuple whose first item is one.
        argnums: The number of the argument to differentiate, or several.

    Returns:
        A function that returns the gradient, as `value_and_grad` does.

    Raises:
        GraphError: `argnums` or the result of `fn` does not fit.

    Example:
        >>> f = graphc.grad(lambda x: graphc.sum(x**2))
        >>> graphc.compile(f, graphc.spec(2))(np.array([1, 3], np.float32))
        array([2., 6.], dtype=float32)
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return value_and_grad(fn, argnums)(*args, **kwargs)[1]

    return wrapped


def numbers_of(argnums: int | Sequence[int], args: Sequence[Any]) -> tuple[int, ...]:
    """Return the numbers of the arguments to differentiate; raise GraphError unless they fit."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < len(args):
            raise error(f"argnums: expected 0 to {len(args) - 1}, got {number!r}")
    return numbers


def check_scalar_loss(loss: Any) -> None:
    """Raise GraphError unless `loss` is a float scalar."""
    if not isinstance(loss, Tensor):
        raise error(f"the loss is a scalar tensor, got {type(loss).__name__}")
    if loss.shape != () or loss.dtype not in FLOATS:
        raise error(f"the loss is a scalar of a float dtype, got {loss.value.type}")


def one_like(tensor: Tensor) -> Tensor:
    """Return a scalar 1 of the tensor's dtype."""
    return functions.as_tensor(1.0, tensor.dtype)


def zeros_like(tensor: Tensor) -> Tensor:
    """Return zeros of the tensor's shape and dtype."""
    zero = functions.as_tensor(0.0, tensor.dtype)
    return functions.broadcast_to(zero, tensor.shape)


def entered(argument: Any) -> Any:
    """Return an argument as the function gets it: with new values, except for state."""

    def own(_: str, leaf: Any) -> Any:
        is_state = isinstance(leaf, Operand) and not isinstance(leaf, Tensor)
        if is_state or hasattr(leaf, "named_parameters"):
            return leaf
        tensor = functions.as_tensor(leaf)
        op, name = Reshape(tensor.shape), tensor.value.name
        return current_builder().emit(op, tensor, name=name)[0]

    return tree.map_leaves(own, argument)


def differentiable(argument: Any) -> Any:
    """Return the tree of tensors that an argument stands for."""
    if hasattr(argument, "named_parameters"):
        read = current_builder().trainable_read
        read += [(name, p, p.trainable) for name, p in argument.named_parameters()]
        pairs = [(n, p) for n, p in argument.named_parameters() if p.trainable]
        return {name: differentiable(p) for name, p in pairs}
    if isinstance(argument, Operand):
        return functions.as_tensor(argument)
    return tree.map_leaves(lambda _, leaf: differentiable(leaf), argument)
