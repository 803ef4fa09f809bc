"""Reverse-mode differentiation on the graph under construction.

The gradient is ordinary nodes behind the forward ones. Each op's `grad` writes its part; this file
walks the nodes backwards, sums what several consumers contribute and undoes broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from graphc import functions
from graphc.base.source_lines import error
from graphc.gradients.scan import scan_gradient
from graphc.gradients.vocabulary import Vocabulary
from graphc.ir import FLOATS, Node, Value, tree
from graphc.ops.loops.scan import Scan
from graphc.ops.view import Reshape
from graphc.trace import Builder, Operand, Tensor, current_builder

_RULES = Vocabulary()


def gradients(
    outputs: Sequence[Tensor],
    seeds: Sequence[Tensor],
    wanted: Sequence[Tensor],
    builder: Builder,
    first: int = 0,
) -> list[Tensor | None]:
    """The gradient of sum(outputs[i] * seeds[i]) with respect to each of `wanted`.

    Each has the shape and dtype of the tensor it belongs to; None where no output depends on it.
    Nodes before number `first` count as constants. Outside a scan's body its tensors go by other
    values than inside; here all are as `builder` knows them.
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
    for node in reversed(nodes):
        if not any(v in grads for v in node.outputs):
            continue
        where = replace(node.where, derived=True)
        with builder.at(where):
            inputs = [Tensor(v, builder) for v in node.inputs]
            results = [Tensor(v, builder) for v in node.outputs]
            known = [grads.get(v) for v in node.outputs]
            parts = _parts(node, inputs, results, known, where.lines)
            for value, part in zip(node.inputs, parts, strict=True):
                if part is not None and value in active:
                    contribute(value, part)
    return [grads.get(t.value) for t in wanted]


def _parts(
    node: Node,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    grads: Sequence[Tensor | None],
    lines: tuple[str, ...],
) -> Sequence[Tensor | None]:
    """What a node contributes to the gradients of its inputs. A scan has no rule of its own: its
    gradient is a scan over this walk of its body."""
    if isinstance(node.op, Scan):
        return scan_gradient(node.op, inputs, outputs, grads, gradients)
    parts = node.op.differentiate(_RULES, inputs, outputs, grads, lines)
    return cast("Sequence[Tensor | None]", parts)


def _active(nodes: Sequence[Node], wanted: set[Value]) -> set[Value]:
    """The float values that depend on `wanted`."""
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
    """A function that returns `(fn(...), gradient)` in a traced function.

    `fn` returns a scalar tensor, or a tuple whose first item is one. The gradient has the structure
    of argument `argnums`, a module standing for a dict of its trainable parameters by name; a
    tuple of them for several `argnums`. It is that of the argument alone: a tensor that `fn` reads
    otherwise as well, from outside or as another argument, is constant there. Parameters are the
    same wherever they are read.
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        builder = current_builder()
        first = len(builder.nodes)
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        for number in numbers:
            if not isinstance(number, int) or not 0 <= number < len(args):
                raise error(f"argnums: expected 0 to {len(args) - 1}, got {number!r}")
        entered = [_entered(a) if n in numbers else a for n, a in enumerate(args)]
        wanted = [_differentiable(entered[n]) for n in numbers]
        result = fn(*entered, **kwargs)
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
    """A function that returns the gradient of `fn`'s scalar result; see `value_and_grad`."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return value_and_grad(fn, argnums)(*args, **kwargs)[1]

    return wrapped


def check_scalar_loss(loss: Any) -> None:
    """GraphError unless `loss` is a float tensor of one element without axes."""
    if not isinstance(loss, Tensor):
        raise error(f"the loss is a scalar tensor, got {type(loss).__name__}")
    if loss.shape != () or loss.dtype not in FLOATS:
        raise error(f"the loss is a scalar of a float dtype, got {loss.value.type}")


def one_like(tensor: Tensor) -> Tensor:
    """A scalar 1 of the tensor's dtype."""
    return functions.as_tensor(1.0, tensor.dtype)


def zeros_like(tensor: Tensor) -> Tensor:
    """Zeros of the tensor's shape and dtype."""
    zero = functions.as_tensor(0.0, tensor.dtype)
    return functions.broadcast_to(zero, tensor.shape)


def _entered(argument: Any) -> Any:
    """What the function gets for an argument: values of its own, but for state."""

    def own(_: str, leaf: Any) -> Any:
        is_state = isinstance(leaf, Operand) and not isinstance(leaf, Tensor)
        if is_state or hasattr(leaf, "named_parameters"):
            return leaf
        tensor = functions.as_tensor(leaf)
        op, name = Reshape(tensor.shape), tensor.value.name
        return current_builder().emit(op, tensor, name=name)[0]

    return tree.map_leaves(own, argument)


def _differentiable(argument: Any) -> Any:
    """The tree of tensors that an argument stands for."""
    if hasattr(argument, "named_parameters"):
        read = current_builder().trainable_read
        read += [(name, p, p.trainable) for name, p in argument.named_parameters()]
        pairs = [(n, p) for n, p in argument.named_parameters() if p.trainable]
        return {name: _differentiable(p) for name, p in pairs}
    if isinstance(argument, Operand):
        return functions.as_tensor(argument)
    return tree.map_leaves(lambda _, leaf: _differentiable(leaf), argument)
