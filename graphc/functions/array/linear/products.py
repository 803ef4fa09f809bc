"""Sums of products over named axes, computed as matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.functions.array.elementwise.elementwise import multiply
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.reductions import sum
from graphc.functions.array.shape.rearrange import diagonal
from graphc.functions.array.shape.shapes import broadcast_to, expand_dims, permute_dims, reshape
from graphc.functions.array.tensors import axis_of, error, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor

Named = tuple[Tensor, str]
"""A tensor and a letter for each of its axes."""


def einsum(equation: str, *operands: TensorLike) -> Tensor:
    """Evaluate the Einstein summation of operands, as numpy.einsum.

    Operands are contracted from left to right, each pair by one matrix product.

    Args:
        equation: Letters for the axes of each operand, separated by commas, then "->" and those of
            the result; "..." stands for axes that broadcast. Without "->" the result has the
            letters that occur once, in alphabetical order.
        *operands: The tensors.

    Raises:
        GraphError: The equation does not fit the operands.

    Example:
        >>> graphc.compile(lambda: graphc.einsum("ij,j->i", [[1, 2], [3, 4]], [1, 10]))()
        array([21, 43])
    """
    tensors = promoted(*operands)
    terms, result = _parsed(equation, tensors)
    extents: dict[str, int] = {}
    for tensor, letters in zip(tensors, terms, strict=True):
        for letter, n in zip(letters, tensor.shape, strict=True):
            if extents.setdefault(letter, n) not in (n, 1) and n != 1:
                raise error(
                    f'einsum: "{equation}" gives {letter} the extents {extents[letter]} and {n}'
                )
            extents[letter] = max(extents[letter], n)
    named = [_without_twins(t, letters) for t, letters in zip(tensors, terms, strict=True)]
    named = [(broadcast_to(t, tuple(extents[c] for c in letters)), letters) for t, letters in named]
    whole = named[0]
    for i, other in enumerate(named[1:], 2):
        later = {c for _, letters in named[i:] for c in letters} | set(result)
        whole = _joined(
            _summed(whole, later | set(other[1])), _summed(other, later | set(whole[1])), later
        )
    tensor, letters = _summed(whole, set(result))
    return _ordered(tensor, letters, result)


def _parsed(equation: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; axes under "..." get capital Greek ones."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise error(f'einsum: "{equation}" has {len(terms)} operands, got {len(tensors)}')
    filled, most = [], ""
    for term, tensor in zip(terms, tensors, strict=True):
        missing = tensor.ndim - len(term.replace("...", ""))
        if missing < 0 or (missing and "..." not in term):
            raise error(f'einsum: "{term}" does not name the axes of {tensor.value.type}')
        hidden = "".join(chr(0x391 + i) for i in range(missing))[::-1]
        most = max(most, hidden, key=len)
        filled.append(term.replace("...", hidden))
    if arrow:
        result = right.replace("...", most)
    else:
        named = [c for c in left if c not in ".,"]
        result = most + "".join(sorted(c for c in set(named) if named.count(c) == 1))
    if not set(result) <= set("".join(filled)) or len(set(result)) != len(result):
        raise error(f'einsum: "{equation}" names axes of the result twice or nowhere else')
    return filled, result


def _without_twins(tensor: Tensor, letters: str) -> Named:
    """Axes of one letter as their diagonal."""
    for letter in letters:
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            tensor = diagonal(tensor, 0, first, second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + letter
    return tensor, letters


def _summed(named: Named, kept: set[str]) -> Named:
    tensor, letters = named
    axes = tuple(a for a, c in enumerate(letters) if c not in kept)
    if not axes:
        return named
    return sum(tensor, axes, dtype=tensor.dtype), "".join(c for c in letters if c in kept)


def _ordered(tensor: Tensor, letters: str, wanted: str) -> Tensor:
    order = tuple(letters.index(c) for c in wanted)
    return tensor if order == tuple(range(len(order))) else permute_dims(tensor, order)


def _joined(a: Named, b: Named, kept: set[str]) -> Named:
    """The product of two tensors, summed over the letters of both that are not kept."""
    (x, left), (y, right) = a, b
    batch = "".join(c for c in left if c in right and c in kept)
    inner = "".join(c for c in left if c in right and c not in kept)
    rows = "".join(c for c in left if c not in right)
    columns = "".join(c for c in right if c not in left)
    x, y = _ordered(x, left, batch + rows + inner), _ordered(y, right, batch + inner + columns)
    n = len(batch)
    shape = (*x.shape[: n + len(rows)], *y.shape[n + len(inner) :])
    if not inner:
        outer_x = reshape(x, (*x.shape, *(1,) * len(columns)))
        outer_y = reshape(y, (*y.shape[:n], *(1,) * len(rows), *y.shape[n:]))
        return multiply(outer_x, outer_y), batch + rows + columns
    depth = math.prod(y.shape[n : n + len(inner)])
    matrix = reshape(x, (*x.shape[:n], math.prod(x.shape[n : n + len(rows)]), depth))
    other = reshape(y, (*y.shape[:n], depth, math.prod(y.shape[n + len(inner) :])))
    return reshape(matmul(matrix, other), shape), batch + rows + columns


def tensordot(x1: TensorLike, x2: TensorLike, axes: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Sum products over pairs of axes.

    Args:
        x1: The first tensor.
        x2: The second tensor.
        axes: The number of last axes of `x1` to pair with the first of `x2`, or two lists of axes.

    Returns:
        A tensor with the other axes of `x1`, then those of `x2`.

    Raises:
        GraphError: The paired axes differ in size.

    Example:
        >>> graphc.compile(lambda: graphc.tensordot([[1, 2], [3, 4]], [1, 10], axes=1))()
        array([21, 43])
    """
    a, b = promoted(x1, x2)
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    first = [axis_of("tensordot", i, a) for i in axes[0]]
    second = [axis_of("tensordot", i, b) for i in axes[1]]
    if [a.shape[i] for i in first] != [b.shape[i] for i in second]:
        raise error(
            f"tensordot: axes {tuple(first)} of {a.value.type} and {tuple(second)} of "
            f"{b.value.type} differ in extent"
        )
    left = [chr(ord("a") + i) for i in range(a.ndim)]
    right = [chr(ord("A") + i) for i in range(b.ndim)]
    for i, j in zip(first, second, strict=True):
        right[j] = left[i]
    result = [c for i, c in enumerate(left) if i not in first]
    result += [c for j, c in enumerate(right) if j not in second]
    return einsum(f"{''.join(left)},{''.join(right)}->{''.join(result)}", a, b)


def outer(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the outer product of two vectors: y[i, j] = x1[i] * x2[j].

    Args:
        x1: A vector [m].
        x2: A vector [n].

    Raises:
        GraphError: An argument is not a vector.

    Example:
        >>> graphc.compile(lambda: graphc.outer([1, 2], [3, 4]))()
        array([[3, 4],
               [6, 8]])
    """
    a, b = promoted(x1, x2)
    if a.ndim != 1 or b.ndim != 1:
        raise error(f"outer: expected 1 axis each, got {a.value.type} and {b.value.type}")
    return multiply(expand_dims(a, 1), b)


def vecdot(x1: TensorLike, x2: TensorLike, axis: int = -1) -> Tensor:
    """Return the dot products of vectors along an axis.

    Args:
        x1: The first vectors.
        x2: The second vectors; the other axes broadcast.
        axis: The axis of the vectors' elements.

    Example:
        >>> graphc.compile(lambda: graphc.vecdot([[1, 2], [3, 4]], [1, 10]))()
        array([21, 43])
    """
    product = multiply(*promoted(x1, x2))
    return sum(product, axis, dtype=product.dtype)
