"""Products and parts of matrices, distances of rows, and matrices made from vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations as _pairs
from itertools import combinations_with_replacement

import numpy as np

from graphc import ops
from graphc.functions.array.creation import ones_like
from graphc.functions.array.elementwise.elementwise import add, equal, multiply, subtract, where
from graphc.functions.array.indexing.indexing import take
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.linear.products import outer, tensordot
from graphc.functions.array.reductions import norm
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.rearrange import eye, meshgrid, moveaxis, roll
from graphc.functions.array.shape.shapes import concat, expand_dims, reshape, stack
from graphc.functions.array.tensors import as_tensor, axis_of, error, floating, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def addmm(
    x: TensorLike, mat1: TensorLike, mat2: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * mat1 @ mat2, of matrices."""
    return _plus("addmm", x, mat1, mat2, (2, 2), beta, alpha)


def baddbmm(
    x: TensorLike, batch1: TensorLike, batch2: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * batch1 @ batch2, of batches of matrices."""
    return _plus("baddbmm", x, batch1, batch2, (3, 3), beta, alpha)


def addmv(
    x: TensorLike, mat: TensorLike, vec: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * mat @ vec."""
    return _plus("addmv", x, mat, vec, (2, 1), beta, alpha)


def addr(
    x: TensorLike, vec1: TensorLike, vec2: TensorLike, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * x + alpha * outer(vec1, vec2)."""
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
    """The sum of products over the last axes; the result has the other axes of both."""
    a, b = promoted(x1, x2)
    return tensordot(a, b, ((-1,), (-1,))) if a.ndim and b.ndim else multiply(a, b)


def kron(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The Kronecker product: x2 times each element of x1, as blocks in its place."""
    a, b = promoted(x1, x2)
    rank = max(a.ndim, b.ndim)
    first = (1,) * (rank - a.ndim) + a.shape
    second = (1,) * (rank - b.ndim) + b.shape
    left = reshape(a, tuple(e for n in first for e in (n, 1)))
    right = reshape(b, tuple(e for n in second for e in (1, n)))
    return reshape(multiply(left, right), tuple(n * m for n, m in zip(first, second, strict=True)))


def cross(x1: TensorLike, x2: TensorLike, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements along `axis`; the other axes broadcast."""
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
    """The product of n matrices x [..., m, m], n of 0 or more."""
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
    """The product of two or more matrices, in the order that takes the fewest multiplications; the
    first and the last may be vectors."""
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
    """[..., m, n]: the distance, in the norm of order `p`, of each row of x1 [..., m, k] from each
    row of x2 [..., n, k]."""
    a, b = (floating(t) for t in promoted(x1, x2))
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise error(f"cdist: rows of x1 {a.value.type} and x2 {b.value.type} differ in extent")
    return norm(subtract(expand_dims(a, -2), expand_dims(b, -3)), p, -1)


def pdist(x: TensorLike, p: float = 2.0) -> Tensor:
    """[n (n - 1) / 2]: the distances of rows i < j of x [n, k], in row-major order of (i, j)."""
    tensor = floating(x)
    if tensor.ndim != 2:
        raise error(f"pdist: expected x of 2 axes, got {tensor.value.type}")
    first, second = np.triu_indices(tensor.shape[0], 1)
    return norm(subtract(take(tensor, first, 0), take(tensor, second, 0)), p, -1)


def dist(x1: TensorLike, x2: TensorLike, p: float = 2.0) -> Tensor:
    """The norm of order `p` of x1 - x2, over all elements."""
    return norm(subtract(*map(floating, promoted(x1, x2))), p)


def vander(x: TensorLike, N: int | None = None, increasing: bool = False) -> Tensor:
    """[n, N]: the powers of x [n] from N - 1 down to 0, or up with `increasing`; N is n by
    default."""
    tensor = as_tensor(x)
    if tensor.ndim != 1:
        raise error(f"vander: expected x of 1 axis, got {tensor.value.type}")
    count = tensor.shape[0] if N is None else N
    powers = [ones_like(tensor)]
    for _ in range(count - 1):
        powers.append(multiply(powers[-1], tensor))
    return stack(powers[:count] if increasing else powers[:count][::-1], 1)


def tril_indices(row: int, col: int | None = None, offset: int = 0) -> Tensor:
    """[2, n]: the rows and columns of the places on and below diagonal `offset`, i64."""
    return as_tensor(np.stack(np.tril_indices(row, offset, row if col is None else col)))


def triu_indices(row: int, col: int | None = None, offset: int = 0) -> Tensor:
    """[2, n]: the rows and columns of the places on and above diagonal `offset`, i64."""
    return as_tensor(np.stack(np.triu_indices(row, offset, row if col is None else col)))


def diag_embed(x: TensorLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices on the axes `axis1` and `axis2` of the result with the last axis of x on diagonal
    `offset`, 0 elsewhere."""
    tensor = as_tensor(x)
    n = tensor.shape[-1]
    size = n + abs(offset)
    rows, columns = (emit(ops.Iota((n, n), a)) for a in (0, 1))
    square = where(equal(rows, columns), expand_dims(tensor, -1), as_tensor(0, tensor.dtype))
    widths = [(0, 0)] * (tensor.ndim - 1)
    widths += [(max(-offset, 0), max(offset, 0)), (max(offset, 0), max(-offset, 0))]
    placed = pad(square, widths) if size > n else square
    return moveaxis(placed, (-2, -1), (axis1, axis2))


def diagflat(x: TensorLike, offset: int = 0) -> Tensor:
    """The matrix with the elements of x, in row-major order, on diagonal `offset`, 0 elsewhere."""
    return diag_embed(reshape(x, (-1,)), offset)


def block_diag(*arrays: TensorLike) -> Tensor:
    """The matrices one behind the other along the diagonal, 0 elsewhere."""
    matrices = [reshape(t, (1,) * (2 - t.ndim) + t.shape) for t in promoted(*arrays)]
    width = np.cumsum([0, *(m.shape[1] for m in matrices)]).tolist()
    rows = [
        pad(m, ((0, 0), (before, width[-1] - before - m.shape[1])))
        for m, before in zip(matrices, width, strict=False)
    ]
    return concat(rows, 0)


def cartesian_prod(*arrays: TensorLike) -> Tensor:
    """[n1 n2 ..., k]: each way to take one element of each of k vectors."""
    if len(arrays) == 1:
        return as_tensor(arrays[0])
    grids = meshgrid(*promoted(*arrays), indexing="ij")
    return stack([reshape(g, -1) for g in grids], 1)


def combinations(x: TensorLike, r: int = 2, with_replacement: bool = False) -> Tensor:
    """[m, r]: each way to take r elements of x [n], in the order of their places."""
    tensor = as_tensor(x)
    if tensor.ndim != 1:
        raise error(f"combinations: expected x of 1 axis, got {tensor.value.type}")
    ways = (combinations_with_replacement if with_replacement else _pairs)(range(tensor.size), r)
    return take(tensor, np.array(list(ways), np.int64).reshape(-1, r))
