"""Products of matrices and distances of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphc.functions.array.creation import ones_like
from graphc.functions.array.elementwise.elementwise import add, multiply, subtract
from graphc.functions.array.indexing.indexing import take
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.linear.products import outer, tensordot
from graphc.functions.array.reductions import norm
from graphc.functions.array.shape.rearrange import eye, roll
from graphc.functions.array.shape.shapes import expand_dims, reshape
from graphc.functions.array.tensors import as_tensor, axis_of, error, floating, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor


def addmm(
    x: TensorLike, mat1: TensorLike, mat2: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Multiply matrices and add: beta * x + alpha * mat1 @ mat2.

    Args:
        x: A tensor that broadcasts with [m, n].
        mat1: A matrix [m, k].
        mat2: A matrix [k, n].
        beta: The factor of `x`.
        alpha: The factor of the product.

    Raises:
        GraphError: `mat1` or `mat2` is not a matrix.

    Example:
        >>> graphc.compile(lambda: graphc.addmm(1.0, [[1.0, 2.0]], [[3.0], [4.0]]))()
        array([[12.]], dtype=float32)
    """
    return _plus("addmm", x, mat1, mat2, (2, 2), beta, alpha)


def baddbmm(
    x: TensorLike, batch1: TensorLike, batch2: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Multiply batches of matrices and add: beta * x + alpha * batch1 @ batch2.

    Args:
        x: A tensor that broadcasts with [b, m, n].
        batch1: Matrices [b, m, k].
        batch2: Matrices [b, k, n].
        beta: The factor of `x`.
        alpha: The factor of the product.

    Raises:
        GraphError: `batch1` or `batch2` does not have three axes.

    Example:
        >>> graphc.compile(lambda: graphc.baddbmm(1.0, [[[1.0, 2.0]]], [[[3.0], [4.0]]]))()
        array([[[12.]]], dtype=float32)
    """
    return _plus("baddbmm", x, batch1, batch2, (3, 3), beta, alpha)


def addmv(
    x: TensorLike, mat: TensorLike, vec: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Multiply a matrix by a vector and add: beta * x + alpha * mat @ vec.

    Args:
        x: A tensor that broadcasts with [m].
        mat: A matrix [m, k].
        vec: A vector [k].
        beta: The factor of `x`.
        alpha: The factor of the product.

    Raises:
        GraphError: `mat` is not a matrix or `vec` not a vector.

    Example:
        >>> graphc.compile(lambda: graphc.addmv(1.0, [[1.0, 2.0]], [3.0, 4.0]))()
        array([12.], dtype=float32)
    """
    return _plus("addmv", x, mat, vec, (2, 1), beta, alpha)


def addr(
    x: TensorLike, vec1: TensorLike, vec2: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Add the outer product of two vectors: beta * x + alpha * outer(vec1, vec2).

    Args:
        x: A tensor that broadcasts with [m, n].
        vec1: A vector [m].
        vec2: A vector [n].
        beta: The factor of `x`.
        alpha: The factor of the product.

    Example:
        >>> graphc.compile(lambda: graphc.addr(1.0, [1.0, 2.0], [3.0, 4.0]))()
        array([[4., 5.],
               [7., 9.]], dtype=float32)
    """
    return _scaled(x, outer(vec1, vec2), beta, alpha)


def _plus(
    name: str,
    x: TensorLike,
    a: TensorLike,
    b: TensorLike,
    ranks: tuple[int, int],
    beta: float,
    alpha: float,
) -> Tensor:
    left, right = promoted(a, b)
    if (left.ndim, right.ndim) != ranks:
        raise error(
            f"{name}: expected {ranks[0]} and {ranks[1]} axes, got {left.value.type} and "
            f"{right.value.type}"
        )
    return _scaled(x, matmul(left, right), beta, alpha)


def _scaled(x: TensorLike, product: Tensor, beta: float, alpha: float) -> Tensor:
    product = product if alpha == 1 else multiply(product, alpha)
    if beta == 0:
        return product
    return add(x if beta == 1 else multiply(x, beta), product)


def inner(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Sum products over the last axes.

    Args:
        x1: A tensor [..., k].
        x2: A tensor [..., k].

    Returns:
        A tensor with the other axes of `x1`, then those of `x2`.

    Example:
        >>> graphc.compile(lambda: graphc.inner([1, 2, 3], [4, 5, 6]))()
        array(32)
    """
    a, b = promoted(x1, x2)
    return tensordot(a, b, ((-1,), (-1,))) if a.ndim and b.ndim else multiply(a, b)


def kron(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the Kronecker product: a block of `x2` times each element of `x1`.

    Example:
        >>> graphc.compile(lambda: graphc.kron([1, 2], [1, 10]))()
        array([ 1, 10,  2, 20])
    """
    a, b = promoted(x1, x2)
    rank = max(a.ndim, b.ndim)
    first = (1,) * (rank - a.ndim) + a.shape
    second = (1,) * (rank - b.ndim) + b.shape
    left = reshape(a, tuple(e for n in first for e in (n, 1)))
    right = reshape(b, tuple(e for n in second for e in (1, n)))
    return reshape(multiply(left, right), tuple(n * m for n, m in zip(first, second, strict=True)))


def cross(x1: TensorLike, x2: TensorLike, axis: int = -1) -> Tensor:
    """Return the cross product of vectors of three elements.

    Args:
        x1: The first vectors.
        x2: The second vectors; the other axes broadcast.
        axis: The axis of the vectors' elements.

    Raises:
        GraphError: The axis does not have size 3.

    Example:
        >>> graphc.compile(lambda: graphc.cross([1, 0, 0], [0, 1, 0]))()
        array([0, 0, 1])
    """
    a, b = promoted(x1, x2)
    places = [axis_of("cross", axis, t) for t in (a, b)]
    if any(t.shape[p] != 3 for t, p in zip((a, b), places, strict=True)):
        raise error(
            f"cross: expected 3 elements along axis {axis}, got {a.value.type} and {b.value.type}"
        )

    def turned(t: Tensor, by: int) -> Tensor:
        return roll(t, -by, axis)

    return subtract(multiply(turned(a, 1), turned(b, 2)), multiply(turned(a, 2), turned(b, 1)))


def matrix_power(x: TensorLike, n: int) -> Tensor:
    """Multiply a square matrix `n` times by itself.

    Args:
        x: Matrices [..., m, m].
        n: The exponent, 0 or more.

    Raises:
        GraphError: The matrices are not square or `n` is negative.

    Example:
        >>> graphc.compile(lambda: graphc.matrix_power([[1, 1], [0, 1]], 3))()
        array([[1, 3],
               [0, 1]])
    """
    tensor = as_tensor(x)
    if tensor.ndim < 2 or tensor.shape[-1] != tensor.shape[-2]:
        raise error(f"matrix_power: expected square matrices, got {tensor.value.type}")
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise error(f"matrix_power: n expected an integer of 0 or more, got {n!r}")
    if n == 0:
        return multiply(ones_like(tensor), eye(tensor.shape[-1], dtype=tensor.dtype))
    half = matrix_power(tensor, n // 2) if n > 1 else tensor
    squared = matmul(half, half) if n > 1 else tensor
    return matmul(squared, tensor) if n > 1 and n % 2 else squared


def multi_dot(arrays: Sequence[TensorLike]) -> Tensor:
    """Multiply two or more matrices in the order that takes the fewest multiplications.

    Args:
        arrays: Matrices; the first and the last may be vectors.

    Raises:
        GraphError: There are fewer than two, or one has another rank.

    Example:
        >>> graphc.compile(lambda: graphc.multi_dot([[1, 2], [[1, 0], [0, 3]], [1, 1]]))()
        array(7)
    """
    tensors = promoted(*arrays)
    if len(tensors) < 2:
        raise error(f"multi_dot: expected 2 matrices or more, got {len(tensors)}")
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    matrices = list(tensors)
    matrices[0] = expand_dims(tensors[0], 0) if first else tensors[0]
    matrices[-1] = expand_dims(tensors[-1], 1) if last else matrices[-1]
    if any(m.ndim != 2 for m in matrices):
        kinds = ", ".join(str(t.value.type) for t in tensors)
        raise error(f"multi_dot: expected matrices, got {kinds}")
    product = _chained(matrices)
    shape = product.shape[int(first) : 2 - int(last)]
    return reshape(product, shape)


def _chained(matrices: list[Tensor]) -> Tensor:
    """The product by the cheapest split, found for all ranges from the shortest up."""
    n = len(matrices)
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i + 1): (0, i) for i in range(n)}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k, j][0] + sizes[i] * sizes[k] * sizes[j], k)
                for k in range(i + 1, j)
            )

    def product(i: int, j: int) -> Tensor:
        k = best[i, j][1]
        return matrices[i] if j == i + 1 else matmul(product(i, k), product(k, j))

    return product(0, n)


def cdist(x1: TensorLike, x2: TensorLike, p: float = 2.0) -> Tensor:
    """Return the distances between the rows of two matrices.

    Args:
        x1: Matrices [..., m, k].
        x2: Matrices [..., n, k].
        p: The order of the norm.

    Returns:
        Distances [..., m, n].

    Raises:
        GraphError: The rows differ in length.

    Example:
        >>> graphc.compile(lambda: graphc.cdist([[0.0, 0.0]], [[3.0, 4.0], [0.0, 1.0]]))()
        array([[5., 1.]], dtype=float32)
    """
    a, b = (floating(t) for t in promoted(x1, x2))
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise error(f"cdist: rows of x1 {a.value.type} and x2 {b.value.type} differ in extent")
    return norm(subtract(expand_dims(a, -2), expand_dims(b, -3)), p, -1)


def pdist(x: TensorLike, p: float = 2.0) -> Tensor:
    """Return the distances between all pairs of rows i < j, in row-major order of (i, j).

    Args:
        x: A matrix [n, k].
        p: The order of the norm.

    Returns:
        Distances [n (n - 1) / 2].

    Raises:
        GraphError: `x` is not a matrix.

    Example:
        >>> graphc.compile(lambda: graphc.pdist([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))()
        array([5.       , 1.       , 4.2426405], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim != 2:
        raise error(f"pdist: expected x of 2 axes, got {tensor.value.type}")
    first, second = np.triu_indices(tensor.shape[0], 1)
    return norm(subtract(take(tensor, first, 0), take(tensor, second, 0)), p, -1)


def dist(x1: TensorLike, x2: TensorLike, p: float = 2.0) -> Tensor:
    """Return the norm of x1 - x2 over all elements.

    Args:
        x1: The first input.
        x2: The second input; it broadcasts with `x1`.
        p: The order of the norm.

    Example:
        >>> graphc.compile(lambda: graphc.dist([0.0, 0.0], [3.0, 4.0]))()
        array(5., dtype=float32)
    """
    return norm(subtract(*map(floating, promoted(x1, x2))), p)
