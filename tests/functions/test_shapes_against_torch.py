"""Rearranged axes, einsum, convolutions of other ranks, pooling and resizing against PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.functions.comparison import Case, Function, compare, normal
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    CASES.append(Case(name, ours, theirs, inputs))


X, CUBE, SQUARE = normal(3, 5), normal(2, 3, 4), normal(4, 4)
IMAGE, VOLUME = normal(2, 4, 7, 6), normal(2, 4, 5, 6, 4)

VIEWS: dict[str, tuple[Function, Function]] = {
    "moveaxis": (lambda x: f.moveaxis(x, 0, -1), lambda t, x: t.moveaxis(x, 0, -1)),
    "moveaxis of two": (
        lambda x: f.moveaxis(x, (0, 2), (1, 0)),
        lambda t, x: t.moveaxis(x, (0, 2), (1, 0)),
    ),
    "swapaxes": (lambda x: f.swapaxes(x, 0, 2), lambda t, x: t.swapaxes(x, 0, 2)),
    "expand": (
        lambda x: f.expand(x[:, None], 2, 5, -1, 4),
        lambda t, x: x[:, None].expand(2, 5, -1, 4),
    ),
    "tile": (lambda x: f.tile(x, (2, 1, 3)), lambda t, x: t.tile(x, (2, 1, 3))),
    "tile by fewer": (lambda x: f.tile(x, 2), lambda t, x: t.tile(x, (2,))),
    "tile to more axes": (lambda x: f.tile(x, (2, 1, 1, 2)), lambda t, x: t.tile(x, (2, 1, 1, 2))),
    "repeat": (lambda x: f.repeat(x, 3, 1), lambda t, x: t.repeat_interleave(x, 3, 1)),
    "repeat flat": (lambda x: f.repeat(x, 2), lambda t, x: t.repeat_interleave(x, 2)),
    "roll": (lambda x: f.roll(x, (1, -2), (0, 2)), lambda t, x: t.roll(x, (1, -2), (0, 2))),
    "roll flat": (lambda x: f.roll(x, 5), lambda t, x: t.roll(x, 5)),
    "split": (lambda x: f.split(x, 3, 2), lambda t, x: t.split(x, 3, 2)),
    "split by sizes": (lambda x: f.split(x, [1, 0, 2], 1), lambda t, x: t.split(x, [1, 0, 2], 1)),
    "unstack": (lambda x: f.unstack(x, 1), lambda t, x: t.unbind(x, 1)),
    "unflatten": (lambda x: f.unflatten(x, 2, (2, -1)), lambda t, x: x.unflatten(2, (2, -1))),
    "diagonal": (lambda x: f.diagonal(x, 1, 2, 1), lambda t, x: t.diagonal(x, 1, 2, 1)),
    "diagonal below": (lambda x: f.diagonal(x, -1, 1, 2), lambda t, x: t.diagonal(x, -1, 1, 2)),
    "diag of a matrix": (lambda x: f.diag(x[0], 1), lambda t, x: t.diag(x[0], 1)),
    "diag of a vector": (lambda x: f.diag(x[0, 0], -2), lambda t, x: t.diag(x[0, 0], -2)),
    "meshgrid": (
        lambda x: f.meshgrid(x[0, 0], x[0, :, 0], x[1, 1]),
        lambda t, x: t.meshgrid(x[0, 0], x[0, :, 0], x[1, 1], indexing="xy"),
    ),
    "meshgrid ij": (
        lambda x: f.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
        lambda t, x: t.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    ),
}
for name, (ours, theirs) in VIEWS.items():

    def squared(found: Any) -> Any:
        return tuple(y * y for y in found) if isinstance(found, tuple | list) else found * found

    case(
        name,
        lambda x, g=ours, s=squared: s(g(x)),
        lambda t, x, g=theirs, s=squared: s(g(t, x)),
        CUBE,
    )
case(
    "eye and linspace",
    lambda x: f.eye(3, 5, 1) * x + f.linspace(0, 1, 5),
    lambda t, x: t.eye(5, dtype=x.dtype)[1:4] * x + t.linspace(0, 1, 5),
    X,
)
for mode in ("reflect", "replicate", "circular"):
    case(
        f"pad {mode}",
        lambda x, m=mode: f.pad(x, [(0, 0), (0, 0), (2, 1), (0, 3)], mode=m) ** 2,
        lambda t, x, m=mode: t.nn.functional.pad(x, (0, 3, 2, 1), m) ** 2,
        IMAGE,
    )

for equation, shapes in {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "ij,jk": ((3, 4), (4, 5)),
    "bij,bkj->bik": ((2, 3, 4), (2, 5, 4)),
    "bhqd,bhkd->bhqk": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 2)),
    "i,j->ij": ((3,), (4,)),
    "ij->": ((3, 4),),
    "ij->ji": ((3, 4),),
    "ii->i": ((4, 4),),
    "ii": ((4, 4),),
    "ij,ij->i": ((3, 4), (3, 4)),
    "ijk,l,kl->il": ((2, 3, 4), (5,), (4, 5)),
    "ba,cad,be->cde": ((2, 3), (4, 3, 5), (2, 6)),
    "i...->...": ((3, 4, 5),),
}.items():
    case(
        f"einsum {equation}",
        lambda *x, e=equation: f.einsum(e, *x),
        lambda t, *x, e=equation: t.einsum(e, *x),
        *(normal(*s, seed=i) for i, s in enumerate(shapes)),
    )
case("tensordot", f.tensordot, lambda t, a, b: t.tensordot(a, b, 2), CUBE, normal(3, 4, 5))
case(
    "tensordot of axes",
    lambda a, b: f.tensordot(a, b, ([2, 0], [0, 1])),
    lambda t, a, b: t.tensordot(a, b, ([2, 0], [0, 1])),
    CUBE,
    normal(4, 2, 3),
)
case("outer", f.outer, lambda t, a, b: t.outer(a, b), normal(3), normal(4))
case("vecdot", f.vecdot, lambda t, a, b: t.linalg.vecdot(a, b), CUBE, normal(3, 4))
case(
    "bilinear",
    f.bilinear,
    lambda t, a, b, w, c: t.nn.functional.bilinear(a, b, w, c),
    normal(2, 3, 4),
    normal(2, 3, 5),
    normal(6, 4, 5),
    normal(6),
)

for settings in (
    {},
    {"stride": (2, 1, 2), "padding": (1, 0, 1)},
    {"dilation": (2, 1, 1)},
    {"groups": 2},
):
    w = normal(6, 4 // settings.get("groups", 1), 2, 3, 3, seed=1)
    case(
        f"conv3d {settings}",
        lambda x, w, b, s=settings: f.conv3d(x, w, b, **s),
        lambda t, x, w, b, s=settings: t.nn.functional.conv3d(x, w, b, **s),
        VOLUME,
        w,
        normal(6),
    )
for settings in (
    {},
    {"stride": 2, "padding": (1, 0, 1), "output_padding": (1, 0, 1)},
    {"padding": 1, "groups": 2},
    {"dilation": 2},
):
    case(
        f"conv_transpose3d {settings}",
        lambda x, w, b, s=settings: f.conv_transpose3d(x, w, b, **s),
        lambda t, x, w, b, s=settings: t.nn.functional.conv_transpose3d(x, w, b, **s),
        normal(2, 4, 3, 4, 3),
        normal(4, 3, 2, 3, 2, seed=1),
        normal(3 * settings.get("groups", 1)),
    )
case(
    "conv_transpose1d",
    lambda x, w, b: f.conv_transpose1d(x, w, b, 2, 1, 1, 2, 2),
    lambda t, x, w, b: t.nn.functional.conv_transpose1d(x, w, b, 2, 1, 1, 2, 2),
    normal(2, 4, 7),
    normal(4, 3, 3),
    normal(6),
)
case(
    "depthwise conv2d",
    lambda x, w: f.conv2d(x, w, padding=1, groups=4),
    lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1, groups=4),
    IMAGE,
    normal(4, 1, 3, 3),
)
case(
    "unfold",
    lambda x: f.unfold(x, (3, 2), (1, 2), (1, 0), 2) ** 2,
    lambda t, x: t.nn.functional.unfold(x, (3, 2), (1, 2), (1, 0), 2) ** 2,
    IMAGE,
)

case(
    "fold",
    lambda x: f.fold(x, (7, 5), (3, 2), (1, 2), (1, 0), 2) ** 2,
    lambda t, x: t.nn.functional.fold(x, (7, 5), (3, 2), (1, 2), (1, 0), 2) ** 2,
    normal(2, 12, 8),
)

POSITIVE = np.abs(VOLUME) + 0.1
POOLS: list[tuple[str, np.ndarray, tuple[Any, ...]]] = [
    ("max_pool1d", CUBE, (3, 1, 1)),
    ("max_pool1d", CUBE, (2, 3, 0, 2, True)),
    ("max_pool2d", IMAGE, (2, 2, 1, 1, True)),
    ("max_pool2d", IMAGE, ((3, 2), (2, 3), 1, (2, 1), False)),
    ("max_pool3d", VOLUME, ((2, 3, 2), (1, 2, 2), (1, 1, 0))),
    ("max_pool3d", VOLUME, (2, 2, 1, (2, 1, 1), True)),
    ("avg_pool1d", CUBE, (2, 2)),
    ("avg_pool1d", CUBE, (3, 2, 1, True, False)),
    ("avg_pool2d", IMAGE, (3, 2, 1, True)),
    ("avg_pool2d", IMAGE, (3, 2, 1, True, False)),
    ("avg_pool2d", IMAGE, (2, 4, 0, True)),
    ("avg_pool2d", IMAGE, (3, 2, 1, False, True, 5)),
    ("avg_pool3d", VOLUME, (3, 2, 1)),
    ("avg_pool3d", VOLUME, (2, 2, 1, True, False)),
    ("avg_pool3d", VOLUME, (2, 1, 0, False, True, 3)),
    ("lp_pool1d", POSITIVE[0, 0], (2.0, 3, 2)),
    ("lp_pool2d", POSITIVE[:, 0], (3.0, (2, 3), 2)),
    ("lp_pool2d", POSITIVE[:, 0], (2.0, 3, 2, True)),
    ("lp_pool3d", POSITIVE, (2.0, 2)),
    ("adaptive_avg_pool2d", IMAGE, ((3, 4),)),
    ("adaptive_avg_pool1d", CUBE, (3,)),
    ("adaptive_avg_pool1d", CUBE, (2,)),
    ("adaptive_avg_pool2d", IMAGE, ((None, 4),)),
    ("adaptive_avg_pool3d", VOLUME, ((2, 4, 3),)),
    ("adaptive_avg_pool3d", VOLUME, (1,)),
    ("adaptive_max_pool1d", CUBE, (3,)),
    ("adaptive_max_pool3d", VOLUME, ((2, None, 3),)),
    ("adaptive_max_pool3d", VOLUME, ((1, 2, 2),)),
    ("adaptive_max_pool2d", IMAGE, ((3, 4),)),
]
for name, x, settings in POOLS:
    case(
        f"{name} {settings}",
        lambda x, n=name, s=settings: getattr(f, n)(x, *s) ** 2,
        lambda t, x, n=name, s=settings: getattr(t.nn.functional, n)(x, *s) ** 2,
        x,
    )
for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
    case(
        f"{name} of equal parts",
        lambda x, n=name: getattr(f, n)(x, (7, 2)) ** 2,
        lambda t, x, n=name: getattr(t.nn.functional, n)(x, (7, 2)) ** 2,
        IMAGE,
    )
for settings in (
    {"size": (9, 4)},
    {"scale_factor": 2},
    {"scale_factor": (0.6, 1.7)},
    {"size": (9, 4), "mode": "bilinear"},
    {"scale_factor": 2, "mode": "bilinear"},
    {"scale_factor": (0.6, 1.7), "mode": "bilinear"},
    {"size": (9, 1), "mode": "bilinear", "align_corners": True},
    {"size": (2, 3), "mode": "bilinear", "antialias": True},
    {"size": (9, 3), "mode": "bicubic", "antialias": True},
    {"size": (3, 2), "mode": "bilinear", "antialias": True, "align_corners": True},
    {"scale_factor": (0.4, 0.7), "mode": "bicubic", "antialias": True},
):
    case(
        f"interpolate {settings}",
        lambda x, s=settings: f.interpolate(x, **s) ** 2,
        lambda t, x, s=settings: t.nn.functional.interpolate(x, **s) ** 2,
        IMAGE,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)


def test_the_cpu_computes_what_numpy_does() -> None:
    def every(x: Any, v: Any, w: Any) -> tuple[Any, ...]:
        return (
            f.roll(x, 2, 3),
            f.pad(x, [(0, 0), (0, 0), (1, 2), (2, 0)], mode="reflect"),
            f.einsum("nchw,nkhw->nck", x, x),
            f.conv3d(v, w, padding=1),
            f.unfold(x, 3),
            f.adaptive_avg_pool2d(x, 3),
            f.interpolate(x, (9, 11), mode="bilinear"),
            f.interpolate(x, scale_factor=2),
            f.max_pool3d(v, 2),
            f.diagonal(x, 0, 2, 3),
        )

    arrays = [a.astype(np.float32) for a in (IMAGE, VOLUME, normal(3, 4, 3, 3, 3))]
    specs = [graphc.spec(a.shape) for a in arrays]
    expected = graphc.compile(every, *specs, device="reference")(*arrays)
    found = graphc.compile(every, *specs, device="cpu")(*arrays)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, strict=True)
