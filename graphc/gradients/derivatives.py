"""Derivatives of functions of tensors to tensors, by the names of JAX.

All are made of reverse mode. A gradient is linear in what it is seeded with, so its own gradient
with respect to the seed is the derivative in a direction; what of the first gradient the second
does not read is removed as dead code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc.base.source_lines import error
from graphc.functions import as_tensor, zeros_like
from graphc.gradients.pairing import paired
from graphc.gradients.reverse import differentiable, entered, gradients, value_and_grad
from graphc.ir import FLOATS, tree
from graphc.ops.view import Reshape
from graphc.trace import Tensor, current_builder


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Compute `fn(*primals)`, and return a function that multiplies by its Jacobian from the left.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them, to the same.
        *primals: Its arguments.

    Returns:
        `(outputs, pullback)`. `pullback` takes the gradient of some loss by the outputs, in their
        structure, with None for zeros, and returns a tuple with that by each argument, as `grad`
        does. It may be called several times, also in the function of a `vmap` or `scan`.

    Raises:
        GraphError: What `pullback` gets does not fit the outputs.

    Example:
        >>> def f(x):
        ...     y, pullback = graphc.vjp(lambda x: x**2, x)
        ...     return y, pullback(graphc.ones_like(y))[0]
        ...
        >>> graphc.compile(f, graphc.spec(2))(np.array([1, 3], np.float32))
        (array([1., 9.], dtype=float32), array([2., 6.], dtype=float32))
    """
    function = Linearized(fn, primals, range(len(primals)))

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        fail = _fail("vjp: the gradient of the output")
        return tuple(function.pull(list(paired(function.outputs, cotangents, "", fail))))

    return function.outputs, pullback


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Compute `fn(*primals)` and its derivative in a direction.

    That is the gradient of a gradient, which takes the time of two or three of `fn`; ops without a
    second gradient raise.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them, to the same.
        primals: Its arguments.
        tangents: The direction: for each argument its change, of the same structure, shapes and
            dtypes, with None for zeros; for a module a dict by the names of its parameters.

    Returns:
        `(outputs, derivative)`, both of one structure. The derivative is None for outputs that are
        not of a float dtype.

    Raises:
        GraphError: The tangents do not fit the arguments.

    Example:
        >>> f = lambda x, v: graphc.jvp(lambda x: x**2, (x,), (v,))[1]
        >>> specs = graphc.spec(2), graphc.spec(2)
        >>> graphc.compile(f, *specs)(np.array([1, 3], np.float32), np.array([1, 2], np.float32))
        array([ 2., 12.], dtype=float32)
    """
    outputs, push = linearize(fn, *_tuple("jvp: primals", primals))
    return outputs, push(*_tuple("jvp: tangents", tangents))


def linearize(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Compute `fn(*primals)`, and return a function that multiplies by its Jacobian from the right.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them, to the same.
        *primals: Its arguments.

    Returns:
        `(outputs, push)`. `push` takes tangents, one for each argument, and returns the derivative,
        as `jvp` does. It may be called several times, also in the function of a `vmap` or `scan`.

    Raises:
        GraphError: The tangents do not fit the arguments.

    Example:
        >>> def f(x):
        ...     y, push = graphc.linearize(lambda x: x**2, x)
        ...     return push(graphc.ones_like(x))
        ...
        >>> graphc.compile(f, graphc.spec(2))(np.array([1, 3], np.float32))
        array([2., 6.], dtype=float32)
    """
    function = Linearized(fn, primals, range(len(primals)))

    def push(*tangents: Any) -> Any:
        if len(tangents) != len(function.wanted):
            count = len(function.wanted)
            raise error(
                f"jvp: expected {count} tangents, one for each argument, got {len(tangents)}"
            )
        pairs = [
            pair
            for number, (own, given) in enumerate(zip(function.wanted, tangents, strict=True))
            for pair in paired(own, given, str(number), _fail("jvp: the tangent"))
        ]
        return function.push(pairs)

    return function.outputs, push


def hvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """Compute the product of the second derivatives of a scalar function and a direction.

    It is the gradient of the derivative in that direction, in about twice the time of a gradient.

    Args:
        fn: A function that returns a scalar tensor, or a tuple whose first item is one.
        primals: Its arguments.
        tangents: The direction, as for `jvp`.

    Returns:
        A tuple with the product for each argument, of the structure that `grad` has.

    Raises:
        GraphError: The tangents do not fit the arguments, or the result of `fn` is no scalar.

    Example:
        >>> f = lambda x, v: graphc.hvp(lambda x: graphc.sum(x**3), (x,), (v,))[0]
        >>> specs = graphc.spec(2), graphc.spec(2)
        >>> graphc.compile(f, *specs)(np.array([1, 2], np.float32), np.array([1, 1], np.float32))
        array([ 6., 12.], dtype=float32)
    """
    arguments = _tuple("hvp: primals", primals)
    directions = _tuple("hvp: tangents", tangents)
    numbers = tuple(range(len(arguments)))

    def slopes(*args: Any) -> Any:
        return value_and_grad(fn, numbers)(*args)[1]

    function = Linearized(slopes, arguments, numbers)
    if len(directions) != len(arguments):
        count = len(arguments)
        raise error(f"hvp: expected {count} tangents, one for each argument, got {len(directions)}")
    seeded = list(paired(function.outputs, directions, "", _fail("hvp: the tangent")))
    return tuple(function.pull(seeded))


class Linearized:
    """A function that was traced on arguments some of which are differentiated by."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        numbers: Sequence[int],
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.builder = current_builder()
        self.first = len(self.builder.nodes)
        own = [entered(a) if n in numbers else a for n, a in enumerate(args)]
        self.wanted = [differentiable(own[n]) for n in numbers]
        """Of each argument the tree of its tensors."""
        result = fn(*own, **(kwargs or {}))
        self.outputs = tree.map_leaves(lambda _, x: self.builder.own(as_tensor(x)), result)
        self._seeds: list[Tensor] | None = None
        self._pulled: list[Tensor | None] = []

    def check_floats(self, name: str) -> None:
        """Raise GraphError unless all outputs and arguments are floats."""
        for what, held in (("outputs", self.outputs), ("arguments", self.wanted)):
            for _, leaf in tree.leaves(held):
                if leaf.dtype not in FLOATS:
                    raise error(f"{name}: expected {what} of a float dtype, got {leaf.value.type}")

    def pull(self, seeded: Sequence[tuple[Tensor, Tensor]]) -> list[Any]:
        """Return the gradient of each argument, given those of some outputs."""
        found = iter(self._gradients(seeded))

        def pick(_: str, leaf: Tensor) -> Tensor:
            grad = next(found)
            return zeros_like(leaf) if grad is None else grad

        return [tree.map_leaves(pick, t) for t in self.wanted]

    def push(self, changes: Sequence[tuple[Tensor, Tensor]]) -> Any:
        """Return the change of each output, given those of some tensors of the arguments."""
        if self._seeds is None:
            with self.builder.building():
                self._linearize()
        assert self._seeds is not None
        given = {leaf.value: change for leaf, change in changes}
        leaves = [leaf for t in self.wanted for _, leaf in tree.leaves(t)]
        pairs = [
            (grad, given[leaf.value])
            for leaf, grad in zip(leaves, self._pulled, strict=True)
            if grad is not None and leaf.value in given
        ]
        found = iter(
            gradients(
                [g for g, _ in pairs], [c for _, c in pairs], self._seeds, self.builder, self.second
            )
        )

        def pick(_: str, output: Tensor) -> Tensor | None:
            if output.dtype not in FLOATS:
                return None
            change = next(found)
            return zeros_like(output) if change is None else change

        return tree.map_leaves(pick, self.outputs)

    def _linearize(self) -> None:
        """Compute gradients of seeds that stand for any: what is linear has one derivative."""
        self.second = len(self.builder.nodes)
        outputs = [t for _, t in tree.leaves(self.outputs) if t.dtype in FLOATS]
        self._seeds = [self.builder.emit(Reshape(t.shape), zeros_like(t))[0] for t in outputs]
        self._pulled = self._gradients(list(zip(outputs, self._seeds, strict=True)))

    def _gradients(self, seeded: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor | None]:
        flat = [leaf for t in self.wanted for _, leaf in tree.leaves(t)]
        outputs, seeds = [o for o, _ in seeded], [s for _, s in seeded]
        return gradients(outputs, seeds, flat, self.builder, self.first)


def _fail(what: str) -> Callable[[str], Exception]:
    def fail(message: str) -> Exception:
        return error(f"{what} {message}" if message[0] != ":" else f"{what}{message}")

    return fail


def _tuple(name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, tuple | list):
        raise error(
            f"{name} expected a tuple, one item for each argument, got {type(given).__name__}"
        )
    return tuple(given)
