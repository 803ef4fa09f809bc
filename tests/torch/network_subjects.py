"""Functions of neural networks: convolutions, pooling, images, normalisation."""

from __future__ import annotations

from typing import Any

from graphc import functions as f
from tests.torch.subject import SUBJECTS, Case, Draw, subject


def _convolved(rank: int, transposed: bool) -> None:
    name = f"conv{'_transpose' if transposed else ''}{rank}d"

    def draw(d: Draw) -> Case:
        n, groups, each, out = d.integer(1, 3), d.integer(1, 2), d.integer(1, 3), d.integer(1, 3)
        kernel = tuple(d.integer(1, 3) for _ in range(rank))
        dilation, padding = d.integer(1, 2), d.integer(0, 1)
        stride = d.integer(1, 2)
        least = dilation * 2 + 1
        x = d.floats((n, groups * each, *(d.integer(least, least + 4) for _ in range(rank))), -1, 1)
        first, second = (groups * each, out) if transposed else (groups * out, each)
        weight, bias = d.floats((first, second, *kernel), -1, 1), d.floats((groups * out,))
        settings: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
        settings["groups"] = groups
        if transposed:
            settings["output_padding"] = d.integer(0, stride - 1)
        arrays = (x, weight, bias)[: d.integer(2, 3)]
        return Case(
            lambda *a: getattr(f, name)(*a, **settings),
            lambda t, *a: getattr(t.nn.functional, name)(*a, **settings),
            arrays,
            f"{settings}",
            growth=4,
        )

    SUBJECTS[name] = draw


for _rank in (1, 2, 3):
    _convolved(_rank, False)
    _convolved(_rank, True)


def _pooled(kind: str, rank: int) -> None:
    name = f"{kind}_pool{rank}d"

    def draw(d: Draw) -> Case:
        shape = (d.integer(1, 2), d.integer(1, 3), *(d.integer(4, 8) for _ in range(rank)))
        kernel, stride = d.integer(2, 4), d.integer(1, 3)
        padding = d.integer(0, kernel // 2)
        settings: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "padding": padding}
        if kind == "avg":
            settings["count_include_pad"] = d.flag()
        return Case(
            lambda x: getattr(f, name)(x, **settings),
            lambda t, x: getattr(t.nn.functional, name)(x, **settings),
            (d.floats(shape),),
            f"{settings}",
            growth=2,
        )

    SUBJECTS[name] = draw


def _adaptive(kind: str, rank: int) -> None:
    name = f"adaptive_{kind}_pool{rank}d"

    def draw(d: Draw) -> Case:
        shape = (d.integer(1, 2), d.integer(1, 3), *(d.integer(3, 9) for _ in range(rank)))
        size: Any = tuple(d.integer(1, n) for n in shape[2:])
        size = size[0] if rank == 1 else size
        return Case(
            lambda x: getattr(f, name)(x, size),
            lambda t, x: getattr(t.nn.functional, name)(x, size),
            (d.floats(shape),),
            f"{size}",
            growth=2,
        )

    SUBJECTS[name] = draw


for _rank in (1, 2, 3):
    for _kind in ("avg", "max"):
        _pooled(_kind, _rank)
        _adaptive(_kind, _rank)


@subject("lp_pool2d")
def _lp_pool2d(d: Draw) -> Case:
    p, k = d.pick((1.0, 2.0, 3.0)), d.integer(1, 3)
    x = d.floats((2, 2, d.integer(3, 8), d.integer(3, 8)), 0.2, 2)
    return Case(
        lambda x: f.lp_pool2d(x, p, k),
        lambda t, x: t.nn.functional.lp_pool2d(x, p, k),
        (x,),
        f"{p} {k}",
        growth=4,
    )


@subject("interpolate")
def _interpolate(d: Draw) -> Case:
    mode, rank = d.pick(
        (
            ("nearest", 1),
            ("nearest", 2),
            ("nearest-exact", 2),
            ("area", 2),
            ("linear", 1),
            ("bilinear", 2),
            ("bicubic", 2),
            ("trilinear", 3),
        )
    )
    shape = (d.integer(1, 2), d.integer(1, 3), *(d.integer(2, 7) for _ in range(rank)))
    settings: dict[str, Any] = {"size": tuple(d.integer(2, 9) for _ in range(rank)), "mode": mode}
    if mode.endswith(("linear", "cubic")):
        settings["align_corners"] = d.flag()
    return Case(
        lambda x: f.interpolate(x, **settings),
        lambda t, x: t.nn.functional.interpolate(x, **settings),
        (d.floats(shape),),
        f"{settings}",
        growth=2,
    )


def _windows(d: Draw) -> tuple[tuple[int, int], dict[str, Any], int, int]:
    size = d.integer(5, 8), d.integer(5, 8)
    kernel = d.integer(1, 3), d.integer(1, 3)
    settings = {"dilation": d.integer(1, 2), "padding": d.integer(0, 1), "stride": d.integer(1, 2)}
    count = 1
    for n, k in zip(size, kernel, strict=True):
        span = n + 2 * settings["padding"] - settings["dilation"] * (k - 1) - 1
        count *= span // settings["stride"] + 1
    return size, {"kernel_size": kernel, **settings}, kernel[0] * kernel[1], count


@subject("unfold")
def _unfold(d: Draw) -> Case:
    size, settings, _, _ = _windows(d)
    return Case(
        lambda x: f.unfold(x, **settings),
        lambda t, x: t.nn.functional.unfold(x, **settings),
        (d.floats((2, d.integer(1, 3), *size)),),
        f"{settings}",
    )


@subject("fold")
def _fold(d: Draw) -> Case:
    size, settings, taps, count = _windows(d)
    return Case(
        lambda x: f.fold(x, size, **settings),
        lambda t, x: t.nn.functional.fold(x, size, **settings),
        (d.floats((2, d.integer(1, 3) * taps, count)),),
        f"{size} {settings}",
        growth=2,
    )


@subject("pixel_shuffle")
def _pixel_shuffle(d: Draw) -> Case:
    r = d.integer(1, 3)
    x = d.floats((*d.shape(0, 1), d.integer(1, 3) * r * r, d.integer(1, 4), d.integer(1, 4)))
    return Case(
        lambda x: f.pixel_shuffle(x, r), lambda t, x: t.nn.functional.pixel_shuffle(x, r), (x,)
    )


@subject("pixel_unshuffle")
def _pixel_unshuffle(d: Draw) -> Case:
    r = d.integer(1, 3)
    x = d.floats((*d.shape(0, 1), d.integer(1, 3), d.integer(1, 4) * r, d.integer(1, 4) * r))
    return Case(
        lambda x: f.pixel_unshuffle(x, r), lambda t, x: t.nn.functional.pixel_unshuffle(x, r), (x,)
    )


@subject("channel_shuffle")
def _channel_shuffle(d: Draw) -> Case:
    groups = d.integer(1, 3)
    x = d.floats((2, groups * d.integer(1, 3), *d.shape(1, 2)))
    return Case(
        lambda x: f.channel_shuffle(x, groups),
        lambda t, x: t.nn.functional.channel_shuffle(x, groups),
        (x,),
    )


@subject("affine_grid")
def _affine_grid(d: Draw) -> Case:
    n, size, corners = d.integer(1, 3), (d.integer(2, 5), d.integer(2, 5)), d.flag()
    return Case(
        lambda x: f.affine_grid(x, (n, 1, *size), corners),
        lambda t, x: t.nn.functional.affine_grid(x, [n, 1, *size], align_corners=corners),
        (d.floats((n, 2, 3)),),
        f"{corners}",
        growth=2,
    )


@subject("grid_sample")
def _grid_sample(d: Draw) -> Case:
    n, c = d.integer(1, 2), d.integer(1, 3)
    settings = {
        "mode": d.pick(("bilinear", "nearest")),
        "padding_mode": d.pick(("zeros", "border", "reflection")),
        "align_corners": d.flag(),
    }
    grid = d.floats((n, d.integer(1, 5), d.integer(1, 5), 2), -1.6, 1.6)
    arrays = d.floats((n, c, d.integer(2, 6), d.integer(2, 6))), grid
    return Case(
        lambda x, g: f.grid_sample(x, g, **settings),
        lambda t, x, g: t.nn.functional.grid_sample(x, g, **settings),
        arrays,
        f"{settings}",
        growth=8,
    )


@subject("layer_norm")
def _layer_norm(d: Draw) -> Case:
    shape = tuple(n + 3 for n in d.shape(2, 3))
    inner = shape[d.integer(1, len(shape) - 1) :]
    arrays = (d.floats(shape), d.floats(inner), d.floats(inner))
    return Case(
        lambda x, w, b: f.layer_norm(x, inner, w, b),
        lambda t, x, w, b: t.nn.functional.layer_norm(x, inner, w, b),
        arrays,
        growth=16,
    )


@subject("rms_norm")
def _rms_norm(d: Draw) -> Case:
    shape = tuple(n + 3 for n in d.shape(2, 3))
    inner = shape[-1:]
    return Case(
        lambda x, w: f.rms_norm(x, inner, w, eps=1e-5),
        lambda t, x, w: t.nn.functional.rms_norm(x, inner, w, eps=1e-5),
        (d.floats(shape), d.floats(inner)),
        growth=16,
    )


@subject("group_norm")
def _group_norm(d: Draw) -> Case:
    groups, each = d.integer(1, 3), d.integer(1, 3)
    c = groups * each
    arrays = d.floats((2, c, *(n + 2 for n in d.shape(1, 2)))), d.floats((c,)), d.floats((c,))
    return Case(
        lambda x, w, b: f.group_norm(x, groups, w, b),
        lambda t, x, w, b: t.nn.functional.group_norm(x, groups, w, b),
        arrays,
        growth=16,
    )


@subject("instance_norm")
def _instance_norm(d: Draw) -> Case:
    x = d.floats((2, d.integer(1, 3), *(n + 2 for n in d.shape(1, 2))))
    return Case(f.instance_norm, lambda t, x: t.nn.functional.instance_norm(x), (x,), growth=16)


@subject("local_response_norm")
def _local_response_norm(d: Draw) -> Case:
    size = d.integer(1, 4)
    x = d.floats((2, d.integer(2, 6), *d.shape(1, 2)))
    return Case(
        lambda x: f.local_response_norm(x, size),
        lambda t, x: t.nn.functional.local_response_norm(x, size),
        (x,),
        f"{size}",
        growth=4,
    )


@subject("scaled_dot_product_attention")
def _attention(d: Draw) -> Case:
    batch, t, s, width = d.shape(0, 2), d.integer(1, 9), d.integer(1, 9), d.integer(1, 9)
    causal = d.flag()
    s = t if causal else s
    arrays = (
        d.floats((*batch, t, width)),
        d.floats((*batch, s, width)),
        d.floats((*batch, s, width)),
    )
    return Case(
        lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        arrays,
        f"causal={causal}",
        growth=8,
    )
