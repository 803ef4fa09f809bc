"""Jacobians and second derivatives, by the names of JAX.

One gradient, or the derivative in one direction, is vectorized over a basis. The function itself is
traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc import functions
from graphc.gradients.derivatives import Linearized
from graphc.gradients.reverse import numbers_of
from graphc.ir import tree
from graphc.program.vmap import vmap
from graphc.trace import Tensor

Argnums = int | Sequence[int]


def jacrev(fn: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `fn` by rows, vectorized over all of them.

    It takes about the time of `fn` and a gradient for each element of the outputs, and is the one
    to use where there are fewer of them than of the arguments; else `jacfwd`.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them, to the same.
        argnums: The number of the argument to differentiate, or several.

    Returns:
        A function that returns, in place of each output, a tensor of its shape followed by that of
        the argument. An argument of several tensors has its structure there, a module a dict of
        trainable parameters by name; several `argnums` give a tuple.

    Raises:
        GraphError: `argnums` does not fit, or an output or argument is not of a float dtype.

    Example:
        >>> f = graphc.jacrev(lambda x: x**2)
        >>> graphc.compile(f, graphc.spec(2))(np.array([1, 3], np.float32))
        array([[2., 0.],
               [0., 6.]], dtype=float32)
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        function = Linearized(fn, args, numbers_of(argnums, args), kwargs)
        function.check_floats("jacrev")

        def rows(_: str, output: Tensor) -> Any:
            def row(seed: Tensor) -> list[Any]:
                return function.pull([(output, seed)])

            made = _of_basis(row, output, 0)
            stacks = made or [_nothing(t, (0,), ()) for t in function.wanted]
            found = [_reshaped(stack, output.shape, 1) for stack in stacks]
            return found[0] if isinstance(argnums, int) else tuple(found)

        return tree.map_leaves(rows, function.outputs)

    return wrapped


def jacfwd(fn: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `fn` by columns, vectorized over all of them.

    It takes about the time of `fn` and two for each element of the arguments, see `jvp`.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them, to the same.
        argnums: The number of the argument to differentiate, or several.

    Returns:
        A function that returns what that of `jacrev` does.

    Raises:
        GraphError: `argnums` does not fit, or an output or argument is not of a float dtype.

    Example:
        >>> f = graphc.jacfwd(lambda x: x**2)
        >>> graphc.compile(f, graphc.spec(2))(np.array([1, 3], np.float32))
        array([[2., 0.],
               [0., 6.]], dtype=float32)
    """

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        function = Linearized(fn, args, numbers_of(argnums, args), kwargs)
        function.check_floats("jacfwd")

        def columns(leaf: Tensor) -> list[Tensor]:
            def column(tangent: Tensor) -> Any:
                return function.push([(leaf, tangent)])

            made = _of_basis(column, leaf, -1)
            stacks = _nothing(function.outputs, (), (0,)) if made is None else made
            return [
                functions.reshape(stack, (*output.shape, *leaf.shape))
                for (_, output), (_, stack) in zip(
                    tree.leaves(function.outputs), tree.leaves(stacks), strict=True
                )
            ]

        found = {leaf.value: columns(leaf) for t in function.wanted for _, leaf in tree.leaves(t)}
        numbers = iter(range(len(list(tree.leaves(function.outputs)))))

        def of_output(_: str, __: Tensor) -> Any:
            number = next(numbers)
            parts = [
                tree.map_leaves(lambda _, leaf: found[leaf.value][number], t)
                for t in function.wanted
            ]
            return parts[0] if isinstance(argnums, int) else tuple(parts)

        return tree.map_leaves(of_output, function.outputs)

    return wrapped


def hessian(fn: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the second derivatives of `fn`, as `jacrev(jacrev(fn))`.

    Args:
        fn: A function of tensors, modules, and tuples, lists and dicts of them, to the same.
        argnums: The number of the argument to differentiate, or several.

    Returns:
        A function that returns, in place of each output, what `jacrev` gives for the Jacobian: for
        a scalar of a tensor [n] a tensor [n, n]; for several `argnums` a tuple of tuples.

    Raises:
        GraphError: `argnums` does not fit, or an output or argument is not of a float dtype.

    Example:
        >>> f = graphc.hessian(lambda x: graphc.prod(x))
        >>> graphc.compile(f, graphc.spec(2))(np.array([2, 3], np.float32))
        array([[0., 1.],
               [1., 0.]], dtype=float32)
    """
    return jacrev(jacrev(fn, argnums), argnums)


def _of_basis(fn: Callable[[Tensor], Any], leaf: Tensor, out_axis: int) -> Any:
    """Return `fn` of each tensor of `leaf`'s type with one 1, stacked; None if there is none."""
    size = leaf.value.type.size
    if not size:
        return None
    basis = functions.reshape(functions.eye(size, dtype=leaf.dtype), (size, *leaf.shape))
    return vmap(fn, out_axes=out_axis)(basis)


def _nothing(held: Any, before: tuple[int, ...], behind: tuple[int, ...]) -> Any:
    """Return zeros with more axes for each tensor of a tree."""

    def zeros(_: str, leaf: Tensor) -> Tensor:
        return functions.zeros((*before, *leaf.shape, *behind), leaf.dtype)

    return tree.map_leaves(zeros, held)


def _reshaped(held: Any, shape: tuple[int, ...], first: int) -> Any:
    """Return a tree with `shape` in place of the first axes of each tensor."""
    return tree.map_leaves(
        lambda _, leaf: functions.reshape(leaf, (*shape, *leaf.shape[first:])), held
    )
