"""Each operator of PyTorch that graphc has a rule for, forward and backward, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tools import need_command, need_module

torch = need_module("torch")
F = torch.nn.functional

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def whole(high: int, *shape: int) -> Any:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


X, Y, P = normal(3, 5), normal(3, 5, seed=1), normal(3, 5).abs() + 0.5
Q = whole(7, 3, 5) + 1
IMAGES = normal(2, 4, 7, 6)

UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 "
    "floor frac isinf isnan lgamma log log10 log1p log2 logical_not neg positive reciprocal relu "
    "round rsqrt sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc nan_to_num logit i0 "
    "isfinite deg2rad flatten ravel t tril triu amax amin max min mean sum prod std var any all "
    "argmax argmin"
).split()
slow = pytest.mark.slow
INSIDE = {"acos", "asin", "atanh", "erfinv", "logit"}

CASES: dict[str, Case] = {
    name: (getattr(torch, name), ((P / 4 if name in INSIDE else P + 1),)) for name in UNARY
}
CASES |= {
    f"activation {name}": (getattr(F, name), (X,))
    for name in (
        "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 "
        "selu silu softplus softshrink softsign tanhshrink"
    ).split()
}
CASES |= {
    f"binary {name}": (getattr(torch, name), (X, Y))
    for name in (
        "add sub mul atan2 copysign maximum minimum fmax fmin hypot eq ne lt le gt ge logaddexp "
        "logical_and logical_or logical_xor nextafter"
    ).split()
}
CASES |= {
    f"positive {name}": (getattr(torch, name), (P, P.flip(0) + 0.1))
    for name in ("div pow fmod remainder xlogy true_divide float_power").split()
}
CASES |= {
    f"integers {name}": (getattr(torch, name), (Q - 4, Q.flip(0)))
    for name in (
        "add mul floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor div gcd "
        "bitwise_left_shift maximum"
    ).split()
}
CASES |= {
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.3), (X, Y)),
    "addcdiv": (lambda x, y: torch.addcdiv(x, x, y, value=0.3), (X, P)),
    "alpha": (lambda x, y: torch.add(x, y, alpha=3) - torch.rsub(x, y, alpha=2), (X, Y)),
    "clamp": (lambda x, y: x.clamp(-0.5, 0.7) + x.clamp(y, None), (X, Y)),
    "div trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), (X, P)),
    "div trunc of integers": (lambda x: torch.div(x, 3, rounding_mode="trunc"), (Q - 4,)),
    "div floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, P)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (X,)),
    "glu": (lambda x: F.glu(x, 0), (normal(4, 5),)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, x), (X, Y)),
    "unfold of a number": (lambda x: x.sum().unfold(0, 1, 1), (X,)),
    "polygamma": (lambda x: torch.polygamma(1, x.detach()), (X,)),
    "prelu": (F.prelu, (X, normal(5))),
    "numbers with signs": (lambda x: torch.copysign(x, -0.0) + torch.angle(x), (X,)),
    "ldexp": (lambda x, i: torch.ldexp(x.detach(), i - 3), (X, Q)),
    "modified Bessel functions": (
        lambda x: torch.special.modified_bessel_i0(x) + torch.special.modified_bessel_i1(x),
        (X.detach(),),
    ),
    "round decimals": (lambda x: torch.round(x, decimals=2), (X,)),
    "threshold": (lambda x: F.threshold(x, 0.1, -3.0), (X,)),
    "where": (lambda x, y: torch.where(x > 0, y, 2.0), (X, Y)),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), (X,)),
    "to": (lambda x: x.to(torch.float64) + x.to(torch.int32), (X,)),
    "numbers": (lambda x: torch.full_like(x, 2) * torch.ones_like(x) + torch.zeros(5), (X,)),
    "arange": (lambda x: x + torch.arange(5) + torch.arange(1, 10, 2) + torch.eye(5)[0], (X,)),
    "linspace": (lambda x: x * torch.linspace(0, 1, 5), (X,)),
    "sum axes": (lambda x: x.sum((0, 2), keepdim=True) + x.mean(-1, True), (normal(2, 3, 4),)),
    "sum dtype": (lambda x: x.sum(dtype=torch.float64), (X,)),
    "sum of booleans": (lambda x: (x > 0).sum(1), (X,)),
    "prod axis": (lambda x: x.prod(1), (X,)),
    "var axes": (lambda x: x.var((0, 1)) + x.std(2, correction=0).sum(), (normal(2, 3, 4),)),
    "var_mean": (lambda x: torch.var_mean(x, 1, keepdim=True), (X,)),
    "extrema": (lambda x: x.amax(1) - x.amin(1) + x.max(1)[0] * x.min(1).values, (X,)),
    "places of extrema": (lambda x: (x.max(1)[1], x.min(0)[1], x.argmax(), x.argmin(1)), (X,)),
    "any all": (lambda x: ((x > 0).any(1), (x > 0).all(0), (x > 0).any()), (X,)),
    "logsumexp": (lambda x: torch.logsumexp(x, 1), (X,)),
    "softmax": (lambda x: F.softmax(x, 0) * F.log_softmax(x, 1), (X,)),
    "cumulative": (lambda x: x.cumsum(1) + x.cumprod(0) + torch.logcumsumexp(x, 1), (X,)),
    "sort": (lambda x: torch.sort(x, 1, descending=True), (X,)),
    "stable sort": (lambda x: torch.sort(x, dim=0, stable=True), (X,)),
    "argsort": (lambda x: torch.argsort(x, 0), (X,)),
    "topk": (lambda x: torch.topk(x, 3, 1), (X,)),
    "running extrema": (lambda x: (*x.cummax(1), *x.cummin(0)), (X,)),
    "kthvalue": (lambda x: torch.kthvalue(x, 2, 1), (X,)),
    "medians": (lambda x: (x.median(), *x.median(1), x.nanmedian(), *x.nanmedian(0, True)), (X,)),
    "mode": (lambda x: torch.mode(x, 1), (X,)),
    "dist": (lambda x, y: torch.dist(x, y) + torch.dist(x, y, 3), (X.detach(), Y.detach())),
    "histc": (lambda x: torch.histc(x.detach(), 4, -1, 1), (X,)),
    "norm": (lambda x: torch.linalg.vector_norm(x, 2, 1) + x.norm(), (X,)),
    "shapes": (lambda x: x.view(5, 3).t().unsqueeze(1).expand(3, 2, 5).squeeze(0), (X,)),
    "permute": (lambda x: x.permute(2, 0, 1).transpose(0, 1), (normal(2, 3, 4),)),
    "flip roll": (lambda x: x.flip(0, 1).roll(2, 1) + x.roll(1), (X,)),
    "repeat": (lambda x: x.repeat(2, 1, 3), (X,)),
    "cat stack": (lambda x, y: torch.cat([x, torch.stack([y, x])[0], x[:1]], 0), (X, Y)),
    "split": (lambda x: [p * i for i, p in enumerate(x.split([1, 3, 1], 1), 1)], (X,)),
    "chunk unbind": (lambda x: x.chunk(2, 1)[1].sum() + x.unbind(0)[2], (X,)),
    "slices": (lambda x: x[1:, ::2] * x[-1, -2] + x[:2, 1:4], (X,)),
    "diagonal": (lambda x: x.diagonal(1) + torch.diagonal(x, 0, 1, 0)[:2], (normal(3, 3),)),
    "unfold": (lambda x: x.unfold(1, 3, 2), (normal(2, 8),)),
    "pad": (lambda x: F.pad(x, (1, -2, 0, 3), value=2.0), (X,)),
    "pad modes": (
        lambda x: F.pad(x, (2, 1, 1, 2), "reflect") + F.pad(x, (2, 1, 1, 2), "replicate"),
        (IMAGES,),
    ),
    "as_strided": (lambda x: x.as_strided((2, 3), (4, 1), 2) * 2 + x.as_strided((3,), (0,)), (X,)),
    "as_strided of what lies otherwise": (lambda x: (x * 2).t().as_strided((4, 2), (3, 1)), (X,)),
    "as_strided that overlaps": (lambda x: x.sin().as_strided((3, 4), (2, 1), 1).sum(0), (X,)),
    "as_strided of one pixel": (
        lambda x: F.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), 1).flatten(1), (IMAGES,),
    ),
    "writes": (lambda x, y: written(x, y), (X, Y)),
    "matmul": (lambda x, y: x @ y.t() + torch.einsum("ij,ij->i", x, y), (X, Y)),
    "batched matmul": (torch.matmul, (normal(2, 3, 4), normal(4, 5))),
    "addmm": (lambda x, y, z: torch.addmm(z, x, y.t(), beta=2, alpha=3), (X, Y, normal(3, 3))),
    "baddbmm": (
        lambda x, y, z: torch.baddbmm(z, x, y, alpha=0.5),
        (normal(2, 3, 4), normal(2, 4, 5), normal(2, 3, 5)),
    ),
    "addmv": (lambda x, a, b: torch.addmv(x, a, b, beta=2, alpha=3), (normal(3), X, normal(5))),
    "addbmm": (
        lambda x, a, b: torch.addbmm(x, a, b, beta=2, alpha=3) + torch.addbmm(x, a, b, beta=0),
        (normal(3, 5), normal(2, 3, 4), normal(2, 4, 5)),
    ),
    "distances of rows": (
        lambda x, y: torch.cdist(x, y).sum() + F.pdist(x, 1), (X.detach(), Y[:2].detach()),
    ),
    "linear": (F.linear, (X, normal(4, 5), normal(4))),
    "bilinear": (F.bilinear, (normal(2, 3), normal(2, 4), normal(5, 3, 4))),
    "conv1d": (
        lambda x, w: F.conv1d(x, w, stride=2, padding=1, groups=2),
        (normal(2, 4, 9), normal(6, 2, 3)),
    ),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(1, 0), dilation=2),
        (IMAGES, normal(5, 4, 2, 2), normal(5)),
    ),
    "conv3d": (F.conv3d, (normal(1, 2, 4, 4, 3), normal(3, 2, 2, 2, 2), normal(3))),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2),
        (IMAGES, normal(4, 3, 3, 3), normal(6)),
    ),
    "conv_transpose3d": (
        lambda x, w: F.conv_transpose3d(x, w, None, 2, 1, 1),
        (normal(1, 2, 3, 2, 2), normal(2, 3, 3, 2, 2)),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGES,)),
    "max_pool places": (lambda x: F.max_pool2d(x, 2, return_indices=True), (IMAGES,)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2), (normal(2, 3, 9),)),
    "avg_pool2d": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, False) + F.avg_pool2d(x, 2, 2).sum(),
        (IMAGES,),
    ),
    "adaptive_avg_pool2d": (
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)) + F.adaptive_avg_pool2d(x, 1),
        (IMAGES,),
    ),
    "adaptive_max_pool3d": (
        lambda x: F.adaptive_max_pool3d(x, (2, 3, 2), True), (normal(1, 2, 4, 5, 4),),
    ),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (IMAGES,)),
    "batch_norm": (lambda x, w: F.batch_norm(x, None, None, w, w, True), (IMAGES, normal(4))),
    "layer_norm": (lambda x, w: F.layer_norm(x, (5,), w, w), (X, normal(5))),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w, w), (IMAGES, normal(4))),
    "instance_norm": (F.instance_norm, (IMAGES,)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (5,), w), (X, normal(5))),
    "weight_norm": (lambda v, g: torch._weight_norm(v, g, 2), (normal(3, 4, 2), normal(1, 1, 2))),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=2.0)
        + F.interpolate(x, (14, 12), mode="bilinear")
        + F.interpolate(x, (14, 12), mode="bicubic", align_corners=True),
        (IMAGES,),
    ),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (IMAGES,)),
    "fold": (lambda x: F.fold(F.unfold(x, 2), (7, 6), 2), (IMAGES,)),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
        (IMAGES, normal(2, 3, 3, 2)),
    ),
    "embedding": (lambda w, i: F.embedding(i, w, padding_idx=2), (X, whole(3, 4, 2))),
    "gather": (lambda x, i: x.gather(1, i), (X, whole(5, 3, 2))),
    "index_select": (lambda x, i: x.index_select(1, i), (X, whole(5, 4))),
    "subscripts": (lambda x, i: x[i, 1:][:, None] + x[:, i - 1][i].sum(), (X, whole(3, 4))),
    "subscripts apart": (lambda x, i: x[i, :, i], (normal(3, 4, 3), whole(3, 5))),
    "scatter": (
        lambda x, i: x.scatter(1, i, 2.0).scatter_add(1, i, x[:, :2]),
        (X, torch.tensor([[0, 3], [1, 2], [4, 0]])),
    ),
    "scatter_reduce": (
        lambda x, i: x.scatter_reduce(1, i, x[:, :2], "amax"),
        (X, whole(5, 3, 2)),
    ),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2] * 2), (X, whole(3, 2))),
    "index_put": (
        lambda x, i: x.index_put((i, i + 1), torch.ones(2)),
        (X, torch.tensor([0, 2])),
    ),
    "index_copy": (
        lambda x, i: x.index_copy(1, i, x[:, :2] + 1), (X, torch.tensor([3, 1])),
    ),
    "gather of a number": (lambda x: x.sum().gather(0, torch.tensor([0, 0])), (X,)),
    "scatter of a number": (
        lambda x: x.sum().scatter(0, torch.tensor(0), x[0, 0])
        + x.sum().scatter_add(0, torch.tensor([0]), x[0, :1])
        + x.sum().scatter_reduce(0, torch.tensor(0), x[1, 1], "amax"),
        (X,),
    ),
    "index_reduce": (
        lambda x, i: torch.index_reduce(x, 1, i, x[:, :2] + 1, "amax"),
        (X.detach(), torch.tensor([3, 1])),
    ),
    "put take": (
        lambda x, i: x.put(i, x[0, :3], True) + x.put(i - 9, x[1, :3]) + x.take(i).sum(),
        (X, torch.tensor([1, 8, 4])),
    ),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > y, y * 2), (X, Y)),
    "copies of views": (
        lambda x: torch.narrow_copy(x, 1, -3, 2).sum() + torch.unbind_copy(x)[1]
        + torch.as_strided_copy(x, (5,), (2,), 1),
        (X.detach(),),
    ),
    "bucketize": (lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), (X,)),
    "attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        (normal(2, 2, 5, 4),),
    ),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), (X, whole(5, 3))),
    "losses": (
        lambda x, y: F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y)
        + F.binary_cross_entropy_with_logits(x, y.sigmoid()) + F.kl_div(x, y, reduction="sum"),
        (X, Y),
    ),
}  # fmt: skip


def written(x: Any, y: Any) -> Any:
    """Writes into a copy: what PyTorch makes functional before graphc sees it."""
    z = x.clone()
    z[1:, 2] = 3.0
    z[0] += y[1]
    z.mul_(2)
    z[z > 1] = 0.0
    return z


@pytest.fixture(autouse=True)
def fresh() -> None:
    need_command("g++", "clang++")
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if i % 5 == 0 else slow) for i, n in enumerate(CASES)]
)
def test_an_operator_and_its_gradient_are_those_of_pytorch(name: str) -> None:
    from graphc.torch.backend import with_compiler

    refused: list[str] = []
    backend = with_compiler(lambda _, offered: refused.extend(map(str, offered.refused.values())))
    function, arguments = CASES[name]
    compiled = torch.compile(lambda *given: function(*given), backend=backend)
    own, eager = results(compiled, arguments), results(function, arguments)
    assert refused == []
    assert len(own) == len(eager)
    for got, expected in zip(own, eager, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(
            got.detach().numpy(), expected.detach().numpy(), rtol=2e-4, atol=2e-5
        )


def test_the_sign_of_nan_is_0_as_in_pytorch() -> None:
    x = torch.tensor([np.nan, np.inf, -np.inf, 0.0, -2.0])
    own, slopes = results(torch.compile(lambda x: torch.sgn(x) + x.abs(), backend="graphc"), (x,))
    eager, expected = results(lambda x: torch.sgn(x) + x.abs(), (x,))
    np.testing.assert_array_equal(own.detach().numpy(), eager.detach().numpy())
    np.testing.assert_array_equal(slopes.numpy(), expected.numpy())
    assert slopes[0] == 0
    own, eager = results(torch.compile(torch.sign, backend="graphc"), (x,))[0], torch.sign(x)
    np.testing.assert_array_equal(own.detach().numpy(), eager.numpy())


def test_the_mean_of_a_group_with_an_infinity_is_not_a_number() -> None:
    """PyTorch finds it with the variance."""
    x = torch.linspace(-1, 1, 18).reshape(1, 6, 3)
    x[0, 0, 1], x[0, 5, 0] = np.inf, np.nan
    for norm in (
        lambda x: torch.native_group_norm(x, None, None, 1, 6, 3, 3, 0.5),
        lambda x: torch.native_layer_norm(x, (3,), None, None, 0.5),
    ):
        torch._dynamo.reset()
        for got, expected in zip(torch.compile(norm, backend="graphc")(x), norm(x), strict=True):
            np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ["kthvalue", "median"])
def test_places_among_integers_are_left_to_pytorch(name: str) -> None:
    from graphc.torch import report

    function = {"kthvalue": lambda x: torch.kthvalue(x, 2, 1), "median": lambda x: x.median(1)}
    refused = [reason for _, reason in report(function[name], whole(3, 2, 9)).refused]
    assert [r.partition(" (")[0] for r in refused] == [
        f"{name}: which of equal elements is meant is PyTorch's choice"
    ]


def test_parts_of_images_without_nan_have_means() -> None:
    x = torch.ones(1, 1, 8, 8)
    x[0, 0, 0, 0], x[0, 0, 7, 0] = np.nan, np.inf
    pooled = torch.compile(lambda x: F.adaptive_avg_pool2d(x, (5, 7)), backend="graphc")
    np.testing.assert_allclose(pooled(x).numpy(), F.adaptive_avg_pool2d(x, (5, 7)).numpy())


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, -3.0, 1e30, -1e30, 1e-30,
           89.5, -104.0, 1.5, -2.5)  # fmt: skip
BINARY = (
    "add sub mul atan2 copysign maximum minimum fmax fmin hypot eq lt ge logaddexp logaddexp2 "
    "nextafter div pow xlogy floor_divide heaviside float_power"
).split()


@slow
def test_special_numbers_are_as_in_eager() -> None:
    """All functions of one element or two, in one program."""
    s = torch.tensor(SPECIAL)
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(s, s, indexing="ij"))
    rest = "sgn rad2deg isposinf isneginf softmax log_softmax"
    shapes = (
        "flatten ravel t tril triu amax amin max min mean sum prod std var any all argmax argmin"
    )
    shapes += " i0"  # of 89.5 it is less than the largest float32, but not in eager
    names = [n for n in [*UNARY, *rest.split()] if n not in shapes.split()]
    acts = [n.split()[1] for n in CASES if n.startswith("activation") and "gelu" not in n]

    def every(x: Any, a: Any, b: Any) -> list[Any]:
        found = [
            getattr(torch, n)(x, -1) if "softmax" in n else getattr(torch, n)(x) for n in names
        ]
        found += [getattr(F, n)(x) for n in acts]
        return found + [getattr(torch, n)(a, b) for n in BINARY]

    own, eager = torch.compile(every, backend="graphc")(s, a, b), every(s, a, b)
    for name, x, y in zip([*names, *acts, *BINARY], own, eager, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-4, atol=1e-30, err_msg=name)


def results(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
    """What the function gives, and the gradient of a weighted sum of it by each float argument."""
    given = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]
    found = function(*given)
    found = list(found) if isinstance(found, tuple | list) else [found]
    smooth = [y for y in found if y.requires_grad]
    if smooth:
        loss = sum((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() for y in smooth)
        loss.backward()
    return found + [x.grad for x in given if x.grad is not None]
