"""Functions that move elements: other shapes, orders, parts, repetitions, whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import functions as f
from tests.torch.subject import SUBJECTS, Case, Draw, subject


def _moved(name: str, draw: Any, low: int = 1, high: int = 4) -> None:
    """`draw(d, shape)` gives our function of x, PyTorch's of torch and x, and a note."""

    def drawn(d: Draw) -> Case:
        shape = d.shape(low, high)
        ours, theirs, note = draw(d, shape)
        x = d.floats(shape) if d.integer(0, 3) else d.integers(shape, -9, 9, d.pick(("i4", "i8")))
        return Case(ours, theirs, (x,), note)

    SUBJECTS[name] = drawn


def _reshape(d: Draw, s: tuple[int, ...]) -> Any:
    to = (*s[:-2], -1) if d.flag() else (s[-1], *s[:-1])
    return lambda x: f.reshape(x, to), lambda t, x: t.reshape(x, to), f"{to}"


def _flatten(d: Draw, s: tuple[int, ...]) -> Any:
    a = d.integer(0, len(s) - 1)
    b = d.integer(a, len(s) - 1)
    return lambda x: f.flatten(x, a, b), lambda t, x: t.flatten(x, a, b), f"{a} {b}"


def _permute(d: Draw, s: tuple[int, ...]) -> Any:
    order = tuple(int(a) for a in d.random.permutation(len(s)))
    return lambda x: f.permute_dims(x, order), lambda t, x: t.permute(x, order), f"{order}"


def _swap(d: Draw, s: tuple[int, ...]) -> Any:
    a, b = d.axis(s), d.axis(s)
    return lambda x: f.swapaxes(x, a, b), lambda t, x: t.swapaxes(x, a, b), f"{a} {b}"


def _moveaxis(d: Draw, s: tuple[int, ...]) -> Any:
    a, b = d.axis(s), d.axis(s)
    return lambda x: f.moveaxis(x, a, b), lambda t, x: t.moveaxis(x, a, b), f"{a} {b}"


def _flip(d: Draw, s: tuple[int, ...]) -> Any:
    axes = d.axes(s)
    return lambda x: f.flip(x, axes), lambda t, x: t.flip(x, axes), f"{axes}"


def _roll(d: Draw, s: tuple[int, ...]) -> Any:
    by, axis = d.integer(-9, 9), d.pick((d.axis(s), None))
    return lambda x: f.roll(x, by, axis), lambda t, x: t.roll(x, by, axis), f"{by} {axis}"


def _rot90(d: Draw, s: tuple[int, ...]) -> Any:
    k, axes = d.integer(-3, 4), d.pick(((0, 1), (1, 0), (0, -1)))
    return lambda x: f.rot90(x, k, axes), lambda t, x: t.rot90(x, k, axes), f"{k} {axes}"


def _tile(d: Draw, s: tuple[int, ...]) -> Any:
    times = tuple(d.integer(1, 3) for _ in range(d.integer(1, len(s) + 1)))
    return lambda x: f.tile(x, times), lambda t, x: t.tile(x, times), f"{times}"


def _repeat(d: Draw, s: tuple[int, ...]) -> Any:
    n, axis = d.integer(1, 3), d.pick((d.axis(s), None))
    theirs = lambda t, x: t.repeat_interleave(x, n, dim=axis)  # noqa: E731
    return lambda x: f.repeat(x, n, axis), theirs, f"{n} {axis}"


def _expand_dims(d: Draw, s: tuple[int, ...]) -> Any:
    axis = d.integer(-len(s) - 1, len(s))
    return lambda x: f.expand_dims(x, axis), lambda t, x: t.unsqueeze(x, axis), f"{axis}"


def _broadcast(d: Draw, s: tuple[int, ...]) -> Any:
    to = (d.integer(1, 3), *s)
    return lambda x: f.broadcast_to(x, to), lambda t, x: t.broadcast_to(x, to), f"{to}"


def _expand(d: Draw, s: tuple[int, ...]) -> Any:
    to = (d.integer(1, 3), *(-1 for _ in s))
    return lambda x: f.expand(x, to), lambda t, x: x.expand(to), f"{to}"


def _slice(d: Draw, s: tuple[int, ...]) -> Any:
    key = []
    for n in s:
        start = d.integer(0, n - 1)
        key.append(
            d.pick((slice(start, None, d.integer(1, 3)), start, slice(None), Ellipsis, None))
        )
    if key.count(Ellipsis) > 1:
        key = [slice(None) if k is Ellipsis else k for k in key]
    items = tuple(key)
    return lambda x: f.getitem(x, items), lambda t, x: x[items], f"{items}"


def _split(d: Draw, s: tuple[int, ...]) -> Any:
    n, axis = d.integer(1, 4), d.axis(s)
    return lambda x: f.split(x, n, axis), lambda t, x: t.split(x, n, axis), f"{n} {axis}"


def _chunk(d: Draw, s: tuple[int, ...]) -> Any:
    n, axis = d.integer(1, 4), d.axis(s)
    return lambda x: f.chunk(x, n, axis), lambda t, x: t.chunk(x, n, axis), f"{n} {axis}"


def _tensor_split(d: Draw, s: tuple[int, ...]) -> Any:
    axis = d.axis(s)
    cuts = d.pick((d.integer(1, 4), (d.integer(0, 2), d.integer(2, 4))))
    ours = lambda x: f.tensor_split(x, cuts, axis)  # noqa: E731
    return ours, lambda t, x: t.tensor_split(x, cuts, axis), f"{cuts} {axis}"


def _unstack(d: Draw, s: tuple[int, ...]) -> Any:
    axis = d.axis(s)
    return lambda x: f.unstack(x, axis), lambda t, x: t.unbind(x, axis), f"{axis}"


def _narrow(d: Draw, s: tuple[int, ...]) -> Any:
    axis = d.axis(s)
    start = d.integer(0, s[axis] - 1)
    n = d.integer(1, s[axis] - start)
    ours = lambda x: f.narrow(x, axis, start, n)  # noqa: E731
    return ours, lambda t, x: t.narrow(x, axis, start, n), f"{axis} {start} {n}"


def _select(d: Draw, s: tuple[int, ...]) -> Any:
    axis = d.axis(s)
    i = d.integer(-s[axis], s[axis] - 1)
    return lambda x: f.select(x, axis, i), lambda t, x: t.select(x, axis, i), f"{axis} {i}"


def _unflatten(d: Draw, s: tuple[int, ...]) -> Any:
    axis = d.axis(s)
    return (
        lambda x: f.unflatten(x, axis, (1, -1)),
        lambda t, x: t.unflatten(x, axis, (1, -1)),
        f"{axis}",
    )


def _squeeze(d: Draw, s: tuple[int, ...]) -> Any:
    axis = tuple(a for a, n in enumerate(s) if n == 1) if d.flag() else None
    theirs = lambda t, x: t.squeeze(x) if axis is None else t.squeeze(x, axis)  # noqa: E731
    return lambda x: f.squeeze(x, axis), theirs, f"{axis}"


def _diagonal(d: Draw, s: tuple[int, ...]) -> Any:
    offset, axes = d.integer(-2, 2), d.pick(((0, 1), (-1, 0), (1, 0)))
    offset = max(min(offset, s[axes[1]] - 1), 1 - s[axes[0]])
    ours = lambda x: f.diagonal(x, offset, *axes)  # noqa: E731
    return ours, lambda t, x: t.diagonal(x, offset, *axes), f"{offset} {axes}"


def _diag_embed(d: Draw, s: tuple[int, ...]) -> Any:
    offset = d.integer(-2, 2)
    ours = lambda x: f.diag_embed(x, offset)  # noqa: E731
    return ours, lambda t, x: t.diag_embed(x, offset), f"{offset}"


def _triangle(name: str) -> Any:
    def draw(d: Draw, s: tuple[int, ...]) -> Any:
        k = d.integer(-3, 3)
        return lambda x: getattr(f, name)(x, k), lambda t, x: getattr(t, name)(x, k), f"{k}"

    return draw


def _plain(name: str) -> Any:
    return lambda d, s: (getattr(f, name), lambda t, x: getattr(t, name)(x), "")


def _pad(d: Draw, s: tuple[int, ...]) -> Any:
    widths = [(d.integer(0, 3), d.integer(0, 3)) for _ in s]
    value = d.integer(-2, 2)
    flat = [n for pair in widths[::-1] for n in pair]
    ours = lambda x: f.pad(x, widths, value)  # noqa: E731
    return ours, lambda t, x: t.nn.functional.pad(x, flat, value=value), f"{widths} {value}"


for _name, _draw, _low, _high in (
    ("reshape", _reshape, 2, 4),
    ("flatten", _flatten, 1, 4),
    ("permute_dims", _permute, 1, 5),
    ("swapaxes", _swap, 1, 4),
    ("moveaxis", _moveaxis, 1, 4),
    ("flip", _flip, 1, 4),
    ("roll", _roll, 1, 3),
    ("rot90", _rot90, 2, 3),
    ("tile", _tile, 1, 3),
    ("repeat", _repeat, 1, 3),
    ("expand_dims", _expand_dims, 0, 4),
    ("broadcast_to", _broadcast, 1, 3),
    ("expand", _expand, 1, 3),
    ("getitem", _slice, 1, 4),
    ("split", _split, 1, 3),
    ("chunk", _chunk, 1, 3),
    ("tensor_split", _tensor_split, 1, 3),
    ("unstack", _unstack, 1, 3),
    ("narrow", _narrow, 1, 3),
    ("select", _select, 1, 3),
    ("unflatten", _unflatten, 1, 3),
    ("squeeze", _squeeze, 1, 4),
    ("diagonal", _diagonal, 2, 3),
    ("diag_embed", _diag_embed, 1, 2),
    ("tril", _triangle("tril"), 2, 4),
    ("triu", _triangle("triu"), 2, 4),
    ("fliplr", _plain("fliplr"), 2, 3),
    ("flipud", _plain("flipud"), 1, 3),
    ("ravel", _plain("ravel"), 0, 3),
    ("atleast_2d", _plain("atleast_2d"), 0, 3),
    ("atleast_3d", _plain("atleast_3d"), 0, 3),
    ("diag", _plain("diag"), 1, 2),
    ("matrix_transpose", lambda d, s: (f.matrix_transpose, lambda t, x: x.mT, ""), 2, 4),
    ("pad", _pad, 1, 3),
):
    _moved(_name, _draw, _low, _high)


@subject("trace")
def _trace(d: Draw) -> Case:
    return Case(f.trace, lambda t, x: t.trace(x), (d.floats(d.shape(2, 2)),), growth=2)


@subject("vander")
def _vander(d: Draw) -> Case:
    n, up = d.integer(1, 4), d.flag()
    return Case(
        lambda x: f.vander(x, n, up),
        lambda t, x: t.vander(x, n, up),
        (d.floats((d.integer(1, 6),)),),
    )


@subject("combinations")
def _combinations(d: Draw) -> Case:
    r, again = d.integer(1, 3), d.flag()
    return Case(
        lambda x: f.combinations(x, r, again),
        lambda t, x: t.combinations(x, r, again),
        (d.floats((d.integer(3, 5),)),),
    )


def _joined(name: str, shapes: Any) -> None:
    def draw(d: Draw) -> Case:
        drawn, axis = shapes(d)
        arrays = tuple(d.floats(s) for s in drawn)
        theirs = {"concat": "cat"}.get(name, name)
        places = () if axis is None else (axis,)
        return Case(
            lambda *x: getattr(f, name)(x, *places),
            lambda t, *x: getattr(t, theirs)(x, *places),
            arrays,
            f"axis={axis}",
        )

    SUBJECTS[name] = draw


def _along(d: Draw) -> Any:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    place = axis % len(shape)
    parts = [(*shape[:place], d.integer(0, 4), *shape[place + 1 :]) for _ in range(d.integer(1, 4))]
    return parts, axis


def _alike(low: int) -> Any:
    return lambda d: ([d.shape(low, 3)] * d.integer(1, 3), None)


_joined("concat", _along)
_joined("stack", lambda d: ([s := d.shape(1, 3)] * d.integer(1, 3), d.integer(-len(s) - 1, len(s))))
for _name in ("hstack", "vstack", "dstack", "column_stack"):
    _joined(_name, _alike(1))


@subject("block_diag")
def _block_diag(d: Draw) -> Case:
    arrays = tuple(d.floats(d.shape(1, 2)) for _ in range(d.integer(1, 3)))
    return Case(f.block_diag, lambda t, *x: t.block_diag(*x), arrays)


@subject("cartesian_prod")
def _cartesian_prod(d: Draw) -> Case:
    arrays = tuple(d.floats((d.integer(1, 4),)) for _ in range(d.integer(1, 3)))
    return Case(f.cartesian_prod, lambda t, *x: t.cartesian_prod(*x), arrays)


@subject("meshgrid")
def _meshgrid(d: Draw) -> Case:
    arrays = tuple(d.floats((d.integer(1, 4),)) for _ in range(d.integer(1, 3)))
    order = d.pick(("ij", "xy"))
    return Case(
        lambda *x: f.meshgrid(*x, indexing=order),
        lambda t, *x: t.meshgrid(*x, indexing=order),
        arrays,
        order,
    )


@subject("broadcast_arrays")
def _broadcast_arrays(d: Draw) -> Case:
    a, b = d.pair()
    arrays = d.floats(a), d.floats(b)
    return Case(f.broadcast_arrays, lambda t, *x: t.broadcast_tensors(*x), arrays)


@subject("pad modes")
def _pad_modes(d: Draw) -> Case:
    shape = (d.integer(1, 3), d.integer(1, 3), d.integer(4, 9))
    mode, before, after = (
        d.pick(("reflect", "replicate", "circular")),
        d.integer(0, 3),
        d.integer(0, 3),
    )
    return Case(
        lambda x: f.pad(x, ((0, 0), (0, 0), (before, after)), mode=mode),
        lambda t, x: t.nn.functional.pad(x, (before, after), mode=mode),
        (d.floats(shape),),
        f"{mode} {before} {after}",
    )


@subject("creation")
def _creation(d: Draw) -> Case:
    n, m, k = d.integer(1, 6), d.integer(1, 6), d.integer(-2, 2)
    low, high = d.number(-3, 0), d.number(0.5, 3)
    return Case(
        lambda x: (
            f.eye(n, m) + x,
            f.linspace(low, high, n) * x,
            f.logspace(low, high, n) * x,
            f.arange(n) * x,
            f.tril_indices(n, m, k),
            f.triu_indices(n, m, k),
            f.full((n, m), low) * x,
        ),
        lambda t, x: (
            t.eye(n, m) + x,
            t.linspace(low, high, n) * x,
            t.logspace(low, high, n) * x,
            t.arange(n) * x,
            t.tril_indices(n, m, k),
            t.triu_indices(n, m, k),
            t.full((n, m), low) * x,
        ),
        (np.float32(d.number(1, 2)).reshape(()),),
        growth=4,
    )
