"""Products of groups of rows with a matrix per group.

The number of rows of a group depends on data, so rows are laid out in tiles of a fixed number of
rows, each of which belongs to one group. Unused rows are zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc import ops
from graphc.functions.array.creation import arange
from graphc.functions.array.cumulative import cumsum
from graphc.functions.array.elementwise.elementwise import where
from graphc.functions.array.indexing.indices import integer_indices
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.reductions import sum
from graphc.functions.array.shape.shapes import expand_dims, matrix_transpose, reshape
from graphc.functions.array.tensors import as_tensor, astype, error, promoted
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor, emit

MOST_ROWS = 128
"""Of a tile."""


def grouped_mm(
    mat_a: TensorLike,
    mat_b: TensorLike,
    *,
    offs: TensorLike | None = None,
    bias: TensorLike | None = None,
    out_dtype: DTypeLike | None = None,
) -> Tensor:
    """Multiply groups of rows with one matrix each, as in a mixture of experts.

    Group e ends before row offs[e] and begins where group e - 1 ends. Rows after the last group
    give zeros. The cases are:

        [rows, k] and [experts, k, n] give [rows, n]: each row times its group's matrix;
        [experts, m, k] and [k, columns] give [m, columns]: the same, transposed;
        [m, k] and [k, n] give [experts, m, n]: the groups divide k;
        [experts, m, k] and [experts, k, n], without `offs`, give [experts, m, n].

    Args:
        mat_a: The left matrix, or one per group.
        mat_b: The right matrix, or one per group.
        offs: The ends of the groups, i32 or i64 [experts], ascending.
        bias: Must be None, as in PyTorch.
        out_dtype: The dtype of the result.

    Raises:
        GraphError: The ranks, sizes or `offs` do not fit.

    Example:
        >>> a, b = np.ones((3, 2), np.float32), np.stack([np.eye(2), 2 * np.eye(2)])
        >>> graphc.compile(lambda: graphc.grouped_mm(a, b.astype(np.float32), offs=[1, 3]))()
        array([[1., 1.],
               [2., 2.],
               [2., 2.]], dtype=float32)
    """
    a, b = promoted(mat_a, mat_b)
    if bias is not None:
        raise error("grouped_mm: bias expected None: add it to the result")
    ranks = a.ndim, b.ndim
    if ranks not in ((2, 3), (3, 2), (2, 2), (3, 3)) or (ranks == (3, 3)) != (offs is None):
        given = "no offs" if offs is None else f"offs {as_tensor(offs).value.type}"
        raise error(
            "grouped_mm: expected two matrices, or stacks of one per group, and offs unless both "
            f"are stacks, got {a.value.type}, {b.value.type} and {given}"
        )
    if a.shape[-1] != b.shape[-2]:
        raise error(f"grouped_mm: {a.value.type} and {b.value.type} differ in what is summed")
    if offs is None:
        y = matmul(a, b)
    else:
        ends = integer_indices("grouped_mm", offs)
        stack = next((x for x in (a, b) if x.ndim == 3), None)
        if ends.ndim != 1 or (stack is not None and stack.shape[:1] != ends.shape):
            raise error(
                f"grouped_mm: offs {ends.value.type} expected one end for each group of "
                f"{a.value.type} and {b.value.type}"
            )
        y = _grouped(a, b, astype(ends, "i64"))
    return y if out_dtype is None else astype(y, out_dtype)


def _grouped(a: Tensor, b: Tensor, ends: Tensor) -> Tensor:
    if b.ndim == 3:
        groups = _Tiles.of(ends, a.shape[0])
        return groups.rows(matmul(groups.tiles(a), groups.matrices(b)))
    if a.ndim == 3:
        return matrix_transpose(_grouped(matrix_transpose(b), matrix_transpose(a), ends))
    groups = _Tiles.of(ends, b.shape[0])
    products = matmul(matrix_transpose(groups.tiles(matrix_transpose(a))), groups.tiles(b))
    return emit(ops.TakeGrad(0, ends.shape[0]), groups.group, products)


@dataclass(frozen=True)
class _Tiles:
    """Where rows that belong to groups lie in tiles."""

    group: Tensor
    """The group of each tile; that of unused ones does not exist."""
    row: Tensor
    """[tiles, rows of a tile]: the row that lies there; an unused place has -1."""
    place: Tensor
    """The place of each row, counted through all tiles; -1 of one in no group."""

    @classmethod
    def of(cls, ends: Tensor, count: int) -> _Tiles:
        """The tiles of `count` rows in groups with these ends."""
        experts = ends.shape[0]
        height = 1
        while height < MOST_ROWS and 2 * height * experts <= count:
            height *= 2
        # Of the groups that have rows at all, each fills its last tile in part.
        begun = min(experts, count)
        tiles = begun + max(count - begun, 0) // height
        starts = _before(ends)
        last = cumsum((ends - starts + (height - 1)) // height, 0)
        first = _before(last)
        number = arange(tiles, dtype="i64")
        group = _group_of(number, last)
        begin = _at(starts, group) + (number - _at(first, group)) * height
        row = expand_dims(begin, 1) + arange(height, dtype="i64")
        row = where(row < expand_dims(_at(ends, group), 1), row, -1)
        rows = arange(count, dtype="i64")
        own = _group_of(rows, ends)
        place = _at(first, own) * height + rows - _at(starts, own)
        return cls(group, row, where(own < experts, place, -1))

    def tiles(self, x: Tensor) -> Tensor:
        """The rows of x in tiles: [tiles, rows of a tile, ...]."""
        return emit(ops.Take(0), x, self.row)

    def matrices(self, stack: Tensor) -> Tensor:
        """For each tile the matrix of its group."""
        return emit(ops.Take(0), stack, self.group)

    def rows(self, tiles: Tensor) -> Tensor:
        """The rows that lie in tiles, in their order; zeros of those in no group."""
        return emit(ops.Take(0), reshape(tiles, (-1, *tiles.shape[2:])), self.place)


def _before(x: Tensor) -> Tensor:
    """The elements each one place later, 0 first."""
    return emit(ops.Pad((1,), (0,), (0,)), x[:-1])


def _at(table: Tensor, places: Tensor) -> Tensor:
    return emit(ops.Take(0), table, places)


def _group_of(x: Tensor, ends: Tensor) -> Tensor:
    """How many of the ends are not above each x: the number of its group."""
    return sum(astype(ends <= expand_dims(x, 1), "i64"), 1)
