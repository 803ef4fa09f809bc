"""Functions with a gradient of the user's.

The nodes of such a function are ordinary ones. Behind them stands a mark, `CustomGradient`, that
holds the graph of the user's rule; a gradient copies that graph and does not go on to the nodes
before the mark.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from graphc.base.source_lines import error
from graphc.functions import as_tensor, zeros_like
from graphc.functions.array.looping import BodyBuilder
from graphc.gradients.copying import repeat
from graphc.gradients.pairing import described, paired
from graphc.ir import FLOATS, Type, Value, tree
from graphc.ops.custom_gradient import CustomGradient
from graphc.ops.view import Reshape
from graphc.trace import Operand, Tensor, current_builder

STATIC = (bool, int, float, complex, str, bytes, type)
"""What stays as it is among arguments and residuals."""


def custom_vjp(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with a gradient of its own, for use in a traced function.

    Both functions are traced at each call. Gradients of higher order differentiate `backward`, and
    `forward` as far as residuals depend on it.

    Args:
        forward: A function of tensors, or tuples, lists and dicts of them, that returns
            `(outputs, residuals)`: what the function returns, and what `backward` needs of it.
            Parameters and arrays arrive as tensors, other Python values as they are.
        backward: A function of the residuals and of the gradient of each output that returns a
            tuple with the gradient of each argument, of the same shape and dtype; None for an
            argument, or a part of it, that has none. Outputs in a tuple or list are one argument
            each; a gradient is None for an output that is not of a float dtype.

    Returns:
        A function of the arguments of `forward` that returns its outputs.

    Raises:
        GraphError: A result or a gradient does not fit; an argument is a module; or something is
            differentiated with respect to a tensor that `forward` reads from outside.

    Example:
        >>> def forward(x):
        ...     return graphc.round(x), None
        ...
        >>> def backward(residuals, dy):
        ...     return (dy,)
        ...
        >>> rounded = graphc.custom_vjp(forward, backward)
        >>> f = graphc.grad(lambda x: graphc.sum(rounded(x) ** 2))
        >>> graphc.compile(f, graphc.spec(2))(np.array([1.2, 2.6], np.float32))
        array([2., 6.], dtype=float32)
    """
    for name, given in (("forward", forward), ("backward", backward)):
        if not callable(given) or isinstance(given, type):
            raise error(f"custom_vjp: expected {name} to be a function, got {given!r}")

    @functools.wraps(forward, updated=())
    def function(*args: Any) -> Any:
        return _Call(forward, backward, args).outputs

    return function


def custom_gradient(
    op: CustomGradient, inputs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradient of each input of a mark, by the user's rule."""
    residuals, outside, _, results = op.split(inputs)
    builder = current_builder()
    seeds = [zeros_like(r) if g is None else g for r, g in zip(results, grads, strict=True)]
    read = map(builder.own, [*residuals, *seeds])
    known = dict(zip(op.body.inputs, read, strict=True))
    repeat(builder, op.body.nodes, known)
    found = [known[v] for v in op.body.outputs]
    return [*[None] * len([*residuals, *outside]), *found, *[None] * len(results)]


class _Call:
    """One call: the nodes of `forward`, the graph of `backward`, and the mark."""

    def __init__(
        self, forward: Callable[..., Any], backward: Callable[..., Any], args: Sequence[Any]
    ) -> None:
        self.forward, self.backward = forward, backward
        self.builder = current_builder()
        self.entered = [tree.map_leaves(self._entered, a, str(n)) for n, a in enumerate(args)]
        first = len(self.builder.nodes)
        result = forward(*self.entered)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise self._error("forward", f"expected (outputs, residuals), got {described(result)}")
        outputs = tree.map_leaves(lambda _, leaf: self.builder.own(as_tensor(leaf)), result[0])
        residuals = tree.map_leaves(self._residual, result[1])
        floats = [t for _, t in tree.leaves(outputs) if t.dtype in FLOATS]
        outside = list(self._outside(first, floats))
        body = _RuleBuilder(self.builder)
        arguments = self._trace(body, outputs, residuals)
        op = CustomGradient(body.graph(body.results), len(outside), len(floats))
        read = [
            *body.residuals,
            *(Tensor(v, self.builder) for v in [*(v for v, _ in body.constants), *outside]),
        ]
        marked = iter(self.builder.emit(op, *read, *arguments, *floats) if floats else ())
        self.outputs = tree.map_leaves(
            lambda _, leaf: next(marked) if leaf.dtype in FLOATS else leaf, outputs
        )

    def _entered(self, path: str, leaf: Any) -> Any:
        """An argument's leaf as `forward` gets it: a value of its own."""
        if isinstance(leaf, STATIC):
            return leaf
        if hasattr(leaf, "named_parameters"):
            raise error(
                f"custom_vjp: argument {path} is a module: pass the parameters that have gradients"
            )
        tensor = as_tensor(leaf)
        return self.builder.emit(Reshape(tensor.shape), tensor, name=tensor.value.name)[0]

    def _residual(self, _: str, leaf: Any) -> Any:
        is_tensor = isinstance(leaf, Operand) or hasattr(leaf, "__array__")
        return self.builder.own(as_tensor(leaf)) if is_tensor else leaf

    def _outside(self, first: int, outputs: Sequence[Tensor]) -> dict[Value, None]:
        """The float values that `forward` reads and that are no arguments."""
        nodes = self.builder.nodes[first:]
        own = {v for node in nodes for v in node.outputs}
        own |= {t.value for _, t in tree.leaves(self.entered) if isinstance(t, Tensor)}
        read = [v for node in nodes for v in node.inputs] + [t.value for t in outputs]
        return dict.fromkeys(v for v in read if v not in own and v.type.dtype in FLOATS)

    def _trace(self, body: _RuleBuilder, outputs: Any, residuals: Any) -> list[Tensor]:
        """Trace `backward`; return the arguments that it gives gradients of."""
        with body.building():
            known = tree.map_leaves(body.residual, residuals)
            given = tree.map_leaves(body.gradient, outputs)
            several = isinstance(given, tuple | list)
            found = self.backward(known, *(given if several else (given,)))
            if not isinstance(found, tuple | list) or len(found) != len(self.entered):
                count = f"a tuple of {len(self.entered)} gradients, one for each argument"
                raise self._error("backward", f"expected {count}, got {described(found)}")
            pairs = [
                pair
                for number, (own, grad) in enumerate(zip(self.entered, found, strict=True))
                for pair in paired(own, grad, str(number), self._misfit)
            ]
            body.finish([grad for _, grad in pairs])
        if body.shown:
            raise self._error("backward", "show and tap do not reach into a gradient's rule")
        return [own for own, _ in pairs]

    def _misfit(self, message: str) -> Exception:
        return self._error("backward", f"gradient {message}")

    def _error(self, role: str, message: str) -> Exception:
        function = self.forward if role == "forward" else self.backward
        code = getattr(function, "__code__", None)
        place = f" in {os.path.basename(code.co_filename)}:{code.co_firstlineno}" if code else ""
        name = getattr(function, "__name__", type(function).__name__)
        return error(f"custom_vjp: {role} {name}{place}: {message}")


class _RuleBuilder(BodyBuilder):
    """The graph of a rule: its inputs are the residuals and the gradients of the outputs."""

    def __init__(self, outer: Any) -> None:
        super().__init__(outer, 0, "backward")
        self.bounds, self.mixed = None, ""
        self.residuals: list[Tensor] = []
        """Tensors of the surrounding builder."""
        self.results: list[Tensor] = []
        self._residuals: list[Value] = []
        self._gradients: list[Value] = []

    def residual(self, path: str, leaf: Any) -> Any:
        """Return what stands for a residual."""
        if not isinstance(leaf, Tensor):
            return leaf
        tensor = self._input(f"residual.{path}", leaf.value.type)
        self.residuals.append(leaf)
        self._residuals.append(tensor.value)
        return tensor

    def gradient(self, path: str, output: Tensor) -> Tensor | None:
        """Return what stands for the gradient of an output; None unless it is a float."""
        if output.dtype not in FLOATS:
            return None
        tensor = self._input(f"d.{path}", output.value.type)
        self._gradients.append(tensor.value)
        return tensor

    def _input(self, name: str, type: Type) -> Tensor:
        return self._symbol(name.rstrip("."), type)

    def finish(self, results: Sequence[Tensor]) -> None:
        """Set what the graph returns."""
        self.results = list(map(self.own, results))
        captured = [t.value for _, t in self.constants]
        self.inputs = [*self._residuals, *captured, *self._gradients]

    def random_step(self) -> tuple[int, int, Tensor]:
        with self.outer.building():
            seed, number, counter = self.outer.random_step()
        return seed, number, self.own(counter)

    def update(self, old: Tensor, new: Tensor) -> None:
        raise error("custom_vjp: expected backward to have no side effects, got an update of state")
