"""Functions along axes: reductions, running results, orders, statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc import functions as f
from tests.torch.subject import SUBJECTS, Case, Draw, subject


def _reduced(name: str, theirs: str = "", whole: bool = True) -> None:
    """A reduction over one axis, several, or (if torch can) all of them."""

    def draw(d: Draw) -> Case:
        shape = d.shape(1, 4)
        axis: Any = d.pick((d.axis(shape), d.axes(shape), None if whole else d.axis(shape)))
        keep = d.flag()
        x = d.floats(shape)
        if name.startswith("nan") and min(shape) > 1:
            x.flat[d.integer(0, x.size - 1)] = np.nan
        return Case(
            lambda x: getattr(f, name)(x, axis, keepdims=keep),
            lambda t, x: getattr(t, theirs or name)(x, dim=axis, keepdim=keep),
            (x,),
            f"axis={axis} keepdims={keep}",
            growth=2,
        )

    SUBJECTS[name] = draw


for _name in ("sum", "mean", "nansum", "nanmean"):
    _reduced(_name)
_reduced("logsumexp", whole=False)


def _extreme(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = d.shape(1, 4)
        axis, keep = d.axes(shape), d.flag()
        return Case(
            lambda x: getattr(f, name)(x, axis, keepdims=keep),
            lambda t, x: getattr(t, f"a{name}")(x, dim=axis, keepdim=keep),
            (d.floats(shape),),
            f"axis={axis}",
        )

    SUBJECTS[name] = draw


def _spread(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = tuple(n + 1 for n in d.shape(1, 3))
        axis, keep, correction = d.axes(shape), d.flag(), d.integer(0, 1)
        return Case(
            lambda x: getattr(f, name)(x, axis, correction=correction, keepdims=keep),
            lambda t, x: getattr(t, name)(x, dim=axis, correction=correction, keepdim=keep),
            (d.floats(shape),),
            f"axis={axis} correction={correction}",
            growth=4,
        )

    SUBJECTS[name] = draw


def _place(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = d.shape(1, 4)
        axis, keep = d.axis(shape), d.flag()
        x = d.floats(shape) if name.startswith("arg") else d.integers(shape, 0, 1, "f4")
        return Case(
            lambda x: getattr(f, name)(x, axis, keepdims=keep),
            lambda t, x: getattr(t, name)(x, dim=axis, keepdim=keep),
            (x,),
            f"axis={axis}",
            slopes=False,
        )

    SUBJECTS[name] = draw


def _running(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = d.shape(1, 3)
        axis = d.axis(shape)
        x = d.floats(shape, 0.5, 1.5) if name == "cumprod" else d.floats(shape)
        return Case(
            lambda x: getattr(f, name)(x, axis),
            lambda t, x: tuple(r) if isinstance(r := getattr(t, name)(x, axis), tuple) else r,
            (x,),
            f"axis={axis}",
            growth=4,
        )

    SUBJECTS[name] = draw


for _name in ("max", "min"):
    _extreme(_name)
for _name in ("var", "std", "var_mean", "std_mean"):
    _spread(_name)
for _name in ("argmax", "argmin", "all", "any"):
    _place(_name)
for _name in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
    _running(_name)


@subject("prod")
def _prod(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, keep = d.axis(shape), d.flag()
    x = d.floats(shape, 0.5, 1.5) * d.integers(shape, -1, 1, "f4") ** d.integer(0, 1)
    return Case(
        lambda x: f.prod(x, axis, keepdims=keep),
        lambda t, x: t.prod(x, axis, keepdim=keep),
        (x,),
        f"axis={axis}",
        growth=4,
    )


@subject("count_nonzero")
def _count_nonzero(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.axes(shape)
    return Case(
        lambda x: f.count_nonzero(x, axis),
        lambda t, x: t.count_nonzero(x, dim=axis),
        (d.integers(shape, 0, 2, "f4"),),
        slopes=False,
    )


@subject("norm")
def _norm(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, order = d.axes(shape), d.pick((1, 2, 3, math.inf, -math.inf))
    return Case(
        lambda x: f.norm(x, order, axis),
        lambda t, x: t.linalg.vector_norm(x, order, dim=axis),
        (d.floats(shape),),
        f"ord={order} axis={axis}",
        growth=4,
    )


@subject("aminmax")
def _aminmax(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    theirs = lambda t, x: tuple(t.aminmax(x, dim=axis))  # noqa: E731
    return Case(lambda x: f.aminmax(x, axis), theirs, (d.floats(shape),))


def _soft(name: str) -> None:
    def draw(d: Draw) -> Case:
        shape = d.shape(1, 4)
        axis = d.axis(shape)
        return Case(
            lambda x: getattr(f, name)(x, axis),
            lambda t, x: getattr(t.nn.functional, name)(x, dim=axis),
            (d.floats(shape, -6, 6),),
            f"axis={axis}",
            growth=4,
        )

    SUBJECTS[name] = draw


for _name in ("softmax", "log_softmax", "softmin"):
    _soft(_name)


@subject("glu")
def _glu(d: Draw) -> Case:
    shape = tuple(2 * n for n in d.shape(1, 3))
    axis = d.axis(shape)
    return Case(
        lambda x: f.glu(x, axis), lambda t, x: t.nn.functional.glu(x, axis), (d.floats(shape),)
    )


@subject("sort")
def _sort(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, down = d.axis(shape), d.flag()
    return Case(
        lambda x: f.sort(x, axis, descending=down),
        lambda t, x: t.sort(x, dim=axis, descending=down)[0],
        (d.floats(shape),),
        f"axis={axis}",
    )


@subject("argsort")
def _argsort(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, down = d.axis(shape), d.flag()
    return Case(
        lambda x: f.argsort(x, axis, descending=down),
        lambda t, x: t.argsort(x, dim=axis, descending=down, stable=True),
        (d.integers(shape, -2, 2, "f4"),),
        f"axis={axis}",
        slopes=False,
    )


@subject("topk")
def _topk(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, largest = d.axis(shape), d.flag()
    k = d.integer(1, shape[axis])
    return Case(
        lambda x: f.topk(x, k, axis, largest),
        lambda t, x: tuple(t.topk(x, k, dim=axis, largest=largest)),
        (d.floats(shape),),
        f"k={k} axis={axis}",
    )


@subject("diff")
def _diff(d: Draw) -> Case:
    shape = tuple(n + 2 for n in d.shape(1, 3))
    axis, n = d.axis(shape), d.integer(1, 2)
    return Case(
        lambda x: f.diff(x, n, axis), lambda t, x: t.diff(x, n, dim=axis), (d.floats(shape),)
    )


@subject("trapezoid")
def _trapezoid(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, dx = d.axis(shape), d.number(0.1, 2)
    y = d.floats(shape)
    if d.flag():
        return Case(
            lambda y: f.trapezoid(y, dx=dx, axis=axis),
            lambda t, y: t.trapezoid(y, dx=dx, dim=axis),
            (y,),
        )
    places = d.floats(shape[axis : axis + 1 or None])
    return Case(
        lambda y, x: f.trapezoid(y, x, axis=axis),
        lambda t, y, x: t.trapezoid(y, x, dim=axis),
        (y, places),
    )


@subject("bincount")
def _bincount(d: Draw) -> Case:
    n, length = d.extent(), d.integer(1, 9)
    x = d.integers((n,), 0, length - 1, d.pick(("i4", "i8")))
    if d.flag():
        return Case(
            lambda x: f.bincount(x, minlength=length),
            lambda t, x: t.bincount(x, minlength=length),
            (x,),
        )
    return Case(
        lambda x, w: f.bincount(x, w, length),
        lambda t, x, w: t.bincount(x, w, minlength=length),
        (x, d.floats((n,))),
        slopes=False,
    )


@subject("histc")
def _histc(d: Draw) -> Case:
    bins, x = d.integer(1, 9), d.floats(d.shape(1, 2))
    return Case(
        lambda x: f.histc(x, bins, -2, 2),
        lambda t, x: t.histc(x, bins, -2, 2),
        (x,),
        single=True,
    )


@subject("cov")
def _cov(d: Draw) -> Case:
    x = d.floats((d.integer(2, 5), d.integer(3, 9)))
    return Case(f.cov, lambda t, x: t.cov(x), (x,), growth=4)


@subject("corrcoef")
def _corrcoef(d: Draw) -> Case:
    x = d.floats((d.integer(2, 5), d.integer(4, 9)))
    return Case(f.corrcoef, lambda t, x: t.corrcoef(x), (x,), growth=8)


@subject("normalize")
def _normalize(d: Draw) -> Case:
    shape = d.shape(1, 3)
    axis, p = d.axis(shape), d.pick((1.0, 2.0, 3.0))
    return Case(
        lambda x: f.normalize(x, p, axis),
        lambda t, x: t.nn.functional.normalize(x, p, dim=axis),
        (d.floats(shape),),
        f"p={p} axis={axis}",
        growth=4,
    )
