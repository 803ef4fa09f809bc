"""Functions that read and write places named by indices; products of matrices."""

from __future__ import annotations

import itertools
from typing import Any

from graphc import functions as f
from tests.torch.subject import SUBJECTS, Case, Draw, Shape, subject


def _indexed(d: Draw, shape: Shape, axis: int, dtype: str = "i8") -> Any:
    """Indices for `gather`: of the rank of x, no larger than it on the other axes."""
    place = axis % len(shape)
    extents = tuple(d.integer(1, 5) if a == place else d.integer(1, n) for a, n in enumerate(shape))
    return d.integers(extents, 0, shape[place] - 1, dtype)


@subject("gather")
def _gather(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    arrays = d.floats(shape), _indexed(d, shape, axis)
    return Case(
        lambda x, i: f.gather(x, axis, i), lambda t, x, i: t.gather(x, axis, i), arrays, f"{axis}"
    )


@subject("take_along_axis")
def _take_along_axis(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    place = axis % len(shape)
    extents = (*shape[:place], d.integer(1, 5), *shape[place + 1 :])
    arrays = d.floats(shape), d.integers(extents, 0, shape[place] - 1)
    return Case(
        lambda x, i: f.take_along_axis(x, i, axis),
        lambda t, x, i: t.take_along_dim(x, i, axis),
        arrays,
        f"{axis}",
    )


@subject("index_select")
def _index_select(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    arrays = (
        d.floats(shape),
        d.integers((d.integer(0, 5),), 0, shape[axis] - 1, d.pick(("i4", "i8"))),
    )
    return Case(
        lambda x, i: f.index_select(x, axis, i),
        lambda t, x, i: t.index_select(x, axis, i),
        arrays,
        f"{axis}",
    )


@subject("take")
def _take(d: Draw) -> Case:
    n = d.extent()
    arrays = d.floats((n,)), d.integers(d.shape(0, 2), 0, n - 1)
    return Case(f.take, lambda t, x, i: t.take(x, i), arrays)


@subject("embedding")
def _embedding(d: Draw) -> Case:
    rows, features = d.extent(), d.extent()
    arrays = d.integers(d.shape(0, 2), 0, rows - 1), d.floats((rows, features))
    return Case(f.embedding, lambda t, i, w: t.nn.functional.embedding(i, w), arrays)


@subject("one_hot")
def _one_hot(d: Draw) -> Case:
    n = d.integer(1, 6)
    x = d.integers(d.shape(0, 3), 0, n - 1)
    return Case(lambda x: f.one_hot(x, n), lambda t, x: t.nn.functional.one_hot(x, n), (x,))


def _scattered(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = d.shape(1, 3)
        axis = d.axis(shape)
        index = _indexed(d, shape, axis)
        if name == "scatter":
            place = axis % len(shape)
            whole = (*index.shape[:place], shape[place], *index.shape[place + 1 :])
            orders = d.floats(whole).argsort(place)
            index = orders.take(range(d.integer(1, shape[place])), place)
        arrays = d.floats(shape), index, d.floats(index.shape)
        return Case(
            lambda x, i, s: getattr(f, name)(x, axis, i, s),
            lambda t, x, i, s: getattr(t, name)(x, axis, i, s),
            arrays,
            f"{axis}",
            growth=2,
        )

    SUBJECTS[name] = draw


for _name in ("scatter", "scatter_add"):
    _scattered(_name)


@subject("scatter_reduce")
def _scatter_reduce(d: Draw) -> Case:
    shape = d.shape(1, 2)
    axis = d.axis(shape)
    index = _indexed(d, shape, axis)
    how, own = d.pick(("sum", "prod", "mean", "amax", "amin")), d.flag()
    arrays = d.floats(shape, 0.5, 2), index, d.floats(index.shape, 0.5, 2)
    return Case(
        lambda x, i, s: f.scatter_reduce(x, axis, i, s, how, own),
        lambda t, x, i, s: t.scatter_reduce(x, axis, i, s, how, include_self=own),
        arrays,
        f"{axis} {how} {own}",
        growth=2,
    )


def _sliced(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = d.shape(1, 3)
        axis = d.axis(shape)
        place, extent = axis % len(shape), shape[axis]
        if name == "index_copy":
            index = d.random.permutation(extent)[: d.integer(1, extent)]
        else:
            index = d.integers((d.integer(1, 5),), 0, extent - 1)
        source = d.floats((*shape[:place], len(index), *shape[place + 1 :]))
        more = (d.number(-2, 2),) if name == "index_add" else ()
        return Case(
            lambda x, i, s: getattr(f, name)(x, axis, i, s, *more),
            lambda t, x, i, s: getattr(t, name)(
                x, axis, i, s, **({"alpha": more[0]} if more else {})
            ),
            (d.floats(shape), index.astype("i8"), source),
            f"{axis}",
            growth=2,
        )

    SUBJECTS[name] = draw


for _name in ("index_add", "index_copy"):
    _sliced(_name)


@subject("index_fill")
def _index_fill(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, value = d.axis(shape), d.number(-2, 2)
    arrays = d.floats(shape), d.integers((d.integer(1, 4),), 0, shape[axis] - 1)
    return Case(
        lambda x, i: f.index_fill(x, axis, i, value),
        lambda t, x, i: t.index_fill(x, axis, i, value),
        arrays,
        f"{axis}",
    )


@subject("select_scatter")
def _select_scatter(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    place, i = axis % len(shape), d.integer(-shape[axis], shape[axis] - 1)
    arrays = d.floats(shape), d.floats((*shape[:place], *shape[place + 1 :]))
    return Case(
        lambda x, s: f.select_scatter(x, s, axis, i),
        lambda t, x, s: t.select_scatter(x, s, axis, i),
        arrays,
        f"{axis} {i}",
    )


@subject("slice_scatter")
def _slice_scatter(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, step = d.axis(shape), d.integer(1, 3)
    place, start = axis % len(shape), d.integer(0, shape[axis] - 1)
    end = d.integer(start, shape[axis])
    count = len(range(start, end, step))
    arrays = d.floats(shape), d.floats((*shape[:place], count, *shape[place + 1 :]))
    return Case(
        lambda x, s: f.slice_scatter(x, s, axis, start, end, step),
        lambda t, x, s: t.slice_scatter(x, s, axis, start, end, step),
        arrays,
        f"{axis} {start}:{end}:{step}",
    )


@subject("matmul")
def _matmul(d: Draw) -> Case:
    m, k, n = d.extent(), d.extent(), d.extent()
    batch = d.pair() if d.flag() else ((), ())
    a, b = (*batch[0][-2:], m, k), (*batch[1][-2:], k, n)
    if d.integer(0, 4) == 0:
        a = a[-1:]
    if d.integer(0, 4) == 0:
        b = b[-2:-1]
    arrays = d.floats(a), d.floats(b)
    return Case(f.matmul, lambda t, a, b: t.matmul(a, b), arrays, growth=2)


@subject("linear")
def _linear(d: Draw) -> Case:
    features, out = d.extent(), d.extent()
    x = d.floats((*d.shape(0, 2), features))
    arrays = (x, d.floats((out, features)), d.floats((out,)))[: d.integer(2, 3)]
    return Case(f.linear, lambda t, *a: t.nn.functional.linear(*a), arrays, growth=2)


@subject("einsum")
def _einsum(d: Draw) -> Case:
    equation = d.pick(
        (
            "ij,jk->ik",
            "bij,bjk->bik",
            "ij,ij->",
            "i,j->ij",
            "ijk,k->ij",
            "bi,bij,bj->b",
            "ii->i",
            "ij->ji",
        )
    )
    extents = {c: d.extent(4) for c in "abijk"}
    terms = equation.split("->")[0].split(",")
    arrays = tuple(d.floats(tuple(extents[c] for c in term)) for term in terms)
    return Case(
        lambda *x: f.einsum(equation, *x),
        lambda t, *x: t.einsum(equation, *x),
        arrays,
        equation,
        growth=4,
    )


@subject("tensordot")
def _tensordot(d: Draw) -> Case:
    i, j, k, n = (d.integer(1, 5) for _ in range(4))
    arrays, axes = (d.floats((i, j, k)), d.floats((k, j, n))), ((2, 1), (0, 1))
    return Case(
        lambda a, b: f.tensordot(a, b, axes),
        lambda t, a, b: t.tensordot(a, b, axes),
        arrays,
        growth=2,
    )


@subject("bilinear")
def _bilinear(d: Draw) -> Case:
    n, a, b, out = (d.integer(1, 5) for _ in range(4))
    arrays = d.floats((n, a)), d.floats((n, b)), d.floats((out, a, b)), d.floats((out,))
    return Case(f.bilinear, lambda t, *x: t.nn.functional.bilinear(*x), arrays, growth=4)


def _vectors(name: str, ours: Any, theirs: Any) -> None:
    def draw(d: Draw) -> Case:
        arrays = d.floats((d.extent(),)), d.floats((d.extent(),))
        return Case(ours, theirs, arrays)

    SUBJECTS[name] = draw


_vectors("outer", f.outer, lambda t, a, b: t.outer(a, b))


@subject("inner")
def _inner(d: Draw) -> Case:
    n = d.extent()
    arrays = d.floats((*d.shape(0, 2), n)), d.floats((*d.shape(0, 2), n))
    return Case(f.inner, lambda t, a, b: t.inner(a, b), arrays, growth=2)


@subject("vecdot")
def _vecdot(d: Draw) -> Case:
    shape = d.shape(1, 3)
    arrays = d.floats(shape), d.floats(shape)
    return Case(f.vecdot, lambda t, a, b: t.linalg.vecdot(a, b), arrays, growth=2)


@subject("kron")
def _kron(d: Draw) -> Case:
    arrays = d.floats(d.shape(1, 2)), d.floats(d.shape(1, 2))
    return Case(f.kron, lambda t, a, b: t.kron(a, b), arrays)


@subject("cross")
def _cross(d: Draw) -> Case:
    shape = (*d.shape(0, 2), 3)
    arrays = d.floats(shape), d.floats(shape)
    return Case(f.cross, lambda t, a, b: t.linalg.cross(a, b), arrays)


@subject("matrix_power")
def _matrix_power(d: Draw) -> Case:
    n, power = d.integer(1, 4), d.integer(0, 4)
    x = d.floats((*d.shape(0, 1), n, n), -1, 1)
    return Case(
        lambda x: f.matrix_power(x, power),
        lambda t, x: t.matrix_power(x, power),
        (x,),
        f"{power}",
        growth=4,
    )


@subject("multi_dot")
def _multi_dot(d: Draw) -> Case:
    sizes = [d.integer(1, 5) for _ in range(d.integer(3, 5))]
    arrays = tuple(d.floats(pair) for pair in itertools.pairwise(sizes))
    return Case(lambda *x: f.multi_dot(x), lambda t, *x: t.linalg.multi_dot(x), arrays, growth=8)


def _plus(name: str) -> None:
    def draw(d: Draw) -> Case:
        m, k, n, b = (d.integer(1, 6) for _ in range(4))
        shapes = {
            "addmm": ((m, n), (m, k), (k, n)),
            "addmv": ((m,), (m, k), (k,)),
            "addr": ((m, n), (m,), (n,)),
            "baddbmm": ((b, m, n), (b, m, k), (b, k, n)),
        }[name]
        beta, alpha = d.number(-1, 2), d.number(-1, 2)
        return Case(
            lambda *x: getattr(f, name)(*x, beta, alpha),
            lambda t, *x: getattr(t, name)(*x, beta=beta, alpha=alpha),
            tuple(d.floats(s) for s in shapes),
            growth=2,
        )

    SUBJECTS[name] = draw


for _name in ("addmm", "addmv", "addr", "baddbmm"):
    _plus(_name)


@subject("cdist")
def _cdist(d: Draw) -> Case:
    k, p, batch = d.integer(1, 5), d.pick((1.0, 2.0, 3.0)), d.shape(0, 1)
    arrays = d.floats((*batch, d.integer(1, 5), k)), d.floats((*batch, d.integer(1, 5), k))
    exact = "donot_use_mm_for_euclid_dist"
    return Case(
        lambda a, b: f.cdist(a, b, p),
        lambda t, a, b: t.cdist(a, b, p, compute_mode=exact),
        arrays,
        f"p={p}",
        growth=4,
    )


@subject("pdist")
def _pdist(d: Draw) -> Case:
    p, x = d.pick((1.0, 2.0, 3.0)), d.floats((d.integer(2, 6), d.integer(1, 5)))
    return Case(
        lambda x: f.pdist(x, p), lambda t, x: t.nn.functional.pdist(x, p), (x,), f"{p}", growth=4
    )


@subject("dist")
def _dist(d: Draw) -> Case:
    shape, p = d.shape(1, 3), d.pick((1.0, 2.0, 3.0))
    arrays = d.floats(shape), d.floats(shape)
    return Case(lambda a, b: f.dist(a, b, p), lambda t, a, b: t.dist(a, b, p), arrays, growth=4)
