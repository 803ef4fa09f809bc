"""Helpers of test_layers_against_torch.py and of tests beside it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn
from tests.nn.running import play, random, traced
from tests.tools import need_module

Make = Callable[[Any], Any]


IMAGE, VOLUME = (3, 4, 9, 7), (2, 4, 5, 6, 4)


# fmt: off
LAYERS: list[tuple[Make, tuple[int, ...]]] = [
    (lambda nn: nn.Linear(6, 5), (3, 6)),
    (lambda nn: nn.Linear(6, 1, bias=False), (2, 3, 6)),
    (lambda nn: nn.Conv2d(4, 6, 3), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, 3, dilation=2, groups=2, padding=2), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, 3, padding="same"), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, (4, 3), dilation=(1, 2), padding="same"), IMAGE),
    (lambda nn: nn.Conv2d(4, 4, 1, groups=4, padding="valid"), IMAGE),
    (lambda nn: nn.Conv1d(4, 6, 3), (3, 4, 9)),
    (lambda nn: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2, bias=False), (3, 4, 9)),
    (lambda nn: nn.Conv1d(4, 6, 3, padding="same", dilation=2), (3, 4, 9)),
    (lambda nn: nn.ConvTranspose2d(4, 6, 3), IMAGE),
    (lambda nn: nn.ConvTranspose2d(4, 6, (3, 2), stride=2, padding=1, output_padding=1, groups=2,
                                   bias=False, dilation=(2, 1)), IMAGE),
    (lambda nn: nn.Conv3d(4, 6, 3, padding=1), VOLUME),
    (lambda nn: nn.Conv3d(4, 6, (2, 3, 1), (2, 1, 2), (1, 0, 0), (1, 2, 1), 2, bias=False),
     VOLUME),
    (lambda nn: nn.ConvTranspose1d(4, 6, 3), (3, 4, 9)),
    (lambda nn: nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2, bias=False, dilation=2), (3, 4, 9)),
    (lambda nn: nn.Conv1d(4, 6, 4, padding="same", padding_mode="circular"), (3, 4, 9)),
    (lambda nn: nn.Conv2d(4, 6, 3, 2, 1, padding_mode="reflect"), IMAGE),
    (lambda nn: nn.Conv2d(4, 6, (4, 3), padding="same", padding_mode="replicate"), IMAGE),
    (lambda nn: nn.Conv3d(4, 2, (2, 3, 3), padding="same"), VOLUME),
    (lambda nn: nn.ConvTranspose3d(4, 6, (2, 3, 1), 2, (0, 1, 0), 1, 2, dilation=(1, 2, 1)),
     VOLUME),
    (lambda nn: nn.MaxPool2d(2), IMAGE),
    (lambda nn: nn.MaxPool2d((3, 2), 2, 1, (2, 1), ceil_mode=True), IMAGE),
    (lambda nn: nn.MaxPool1d(2, 3, dilation=2), (3, 4, 9)),
    (lambda nn: nn.MaxPool3d((2, 3, 2), 2, 1), VOLUME),
    (lambda nn: nn.AvgPool1d(3, 2, 1, True, False), (3, 4, 9)),
    (lambda nn: nn.AvgPool2d(3, 2, 1, True, True), IMAGE),
    (lambda nn: nn.AvgPool2d(3, divisor_override=4), IMAGE),
    (lambda nn: nn.AvgPool3d((2, 3, 2), (1, 2, 1), (1, 0, 1)), VOLUME),
    (lambda nn: nn.LPPool1d(2, 3), (3, 4, 9)),
    (lambda nn: nn.LPPool2d(2, (2, 3), 2), IMAGE),
    (lambda nn: nn.LPPool3d(2, 2, 1, True), VOLUME),
    (lambda nn: nn.AdaptiveAvgPool2d((None, 3)), IMAGE),
    (lambda nn: nn.AdaptiveAvgPool3d((2, 3, 1)), VOLUME),
    (lambda nn: nn.AdaptiveMaxPool1d(4), (3, 4, 9)),
    (lambda nn: nn.AdaptiveMaxPool3d((2, 3, 1)), VOLUME),
    (lambda nn: nn.ConstantPad1d((1, 2), 0.5), (3, 4, 9)),
    (lambda nn: nn.ConstantPad2d((1, 2, 0, 3), -1.0), IMAGE),
    (lambda nn: nn.ConstantPad3d(1, 2.0), VOLUME),
    (lambda nn: nn.ZeroPad1d(2), (3, 4, 9)),
    (lambda nn: nn.ZeroPad2d((1, 2, 0, 3)), IMAGE),
    (lambda nn: nn.ZeroPad3d((1, 0, 2, 0, 0, 1)), VOLUME),
    (lambda nn: nn.ReflectionPad1d((1, 2)), (3, 4, 9)),
    (lambda nn: nn.ReflectionPad2d((1, 2, 0, 3)), IMAGE),
    (lambda nn: nn.ReflectionPad3d(1), VOLUME),
    (lambda nn: nn.ReplicationPad1d(3), (3, 4, 9)),
    (lambda nn: nn.ReplicationPad2d((1, 2, 0, 3)), IMAGE),
    (lambda nn: nn.ReplicationPad3d((1, 0, 2, 0, 0, 1)), VOLUME),
    (lambda nn: nn.CircularPad1d(3), (3, 4, 9)),
    (lambda nn: nn.CircularPad2d((1, 2, 0, 3)), IMAGE),
    (lambda nn: nn.CircularPad3d((1, 0, 2, 0, 0, 1)), VOLUME),
    (lambda nn: nn.MaxPool2d((3, 2), stride=2, padding=1), IMAGE),
    (lambda nn: nn.AvgPool2d(2), IMAGE),
    (lambda nn: nn.AvgPool2d(3, stride=(2, 1), padding=1), IMAGE),
    (lambda nn: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    (lambda nn: nn.MaxPool1d(3, 2, 1), (3, 4, 9)),
    (lambda nn: nn.AvgPool1d(3), (3, 4, 9)),
    (lambda nn: nn.AvgPool1d(3, 2, 1, count_include_pad=False), (3, 4, 9)),
    (lambda nn: nn.AdaptiveAvgPool2d(1), IMAGE),
    (lambda nn: nn.AdaptiveAvgPool2d((4, 3)), IMAGE),
    (lambda nn: nn.AdaptiveMaxPool2d((4, 3)), IMAGE),
    (lambda nn: nn.AdaptiveAvgPool1d(4), (3, 4, 9)),
    (lambda nn: nn.Upsample(scale_factor=2), IMAGE),
    (lambda nn: nn.Upsample(size=(12, 10), mode="bilinear"), IMAGE),
    (lambda nn: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), IMAGE),
    (lambda nn: nn.Upsample(scale_factor=2, mode="linear"), (3, 4, 9)),
    (lambda nn: nn.Upsample(size=(4, 9, 5), mode="trilinear"), VOLUME),
    (lambda nn: nn.UpsamplingNearest2d(scale_factor=3), IMAGE),
    (lambda nn: nn.UpsamplingBilinear2d((12, 5)), IMAGE),
    (lambda nn: nn.LocalResponseNorm(3, 0.1), IMAGE),
    (lambda nn: nn.GroupNorm(2, 4, bias=False), IMAGE),
    (lambda nn: nn.InstanceNorm3d(4), VOLUME),
    (lambda nn: nn.LayerNorm(7), IMAGE),
    (lambda nn: nn.LayerNorm((9, 7), eps=1e-3), IMAGE),
    (lambda nn: nn.LayerNorm([7], elementwise_affine=False), IMAGE),
    (lambda nn: nn.LayerNorm(7, bias=False), IMAGE),
    (lambda nn: nn.GroupNorm(2, 4), IMAGE),
    (lambda nn: nn.GroupNorm(4, 4, eps=1e-3, affine=False), IMAGE),
    (lambda nn: nn.InstanceNorm1d(4), (3, 4, 9)),
    (lambda nn: nn.InstanceNorm2d(4, eps=1e-3, affine=True), IMAGE),
    (lambda nn: nn.RMSNorm(7), IMAGE),
    (lambda nn: nn.RMSNorm((9, 7), eps=1e-3, elementwise_affine=False), IMAGE),
    (lambda nn: nn.Identity(), (3, 4)),
    (lambda nn: nn.ReLU(), (3, 4)),
    (lambda nn: nn.Sigmoid(), (3, 4)),
    (lambda nn: nn.Tanh(), (3, 4)),
    (lambda nn: nn.SiLU(), (3, 4)),
    (lambda nn: nn.GELU(), (3, 4)),
    (lambda nn: nn.GELU(approximate="tanh"), (3, 4)),
    (lambda nn: nn.LeakyReLU(0.2), (3, 4)),
    (lambda nn: nn.ELU(alpha=0.5), (3, 4)),
    (lambda nn: nn.Softplus(beta=2.0, threshold=1.0), (3, 4)),
    (lambda nn: nn.ReLU6(), (3, 4)),
    (lambda nn: nn.Hardtanh(-0.3, 0.5), (3, 4)),
    (lambda nn: nn.Hardsigmoid(), (3, 4)),
    (lambda nn: nn.Hardswish(), (3, 4)),
    (lambda nn: nn.Hardshrink(0.7), (3, 4)),
    (lambda nn: nn.Softshrink(0.7), (3, 4)),
    (lambda nn: nn.Tanhshrink(), (3, 4)),
    (lambda nn: nn.Threshold(0.2, -3.0), (3, 4)),
    (lambda nn: nn.Softsign(), (3, 4)),
    (lambda nn: nn.LogSigmoid(), (3, 4)),
    (lambda nn: nn.Mish(), (3, 4)),
    (lambda nn: nn.SELU(), (3, 4)),
    (lambda nn: nn.CELU(alpha=0.5), (3, 4)),
    (lambda nn: nn.PReLU(), (3, 4)),
    (lambda nn: nn.PReLU(4, init=0.1), IMAGE),
    (lambda nn: nn.GLU(dim=1), IMAGE),
    (lambda nn: nn.Softmax(dim=1), IMAGE),
    (lambda nn: nn.LogSoftmax(dim=-1), (3, 4)),
    (lambda nn: nn.Softmin(dim=1), IMAGE),
    (lambda nn: nn.Softmax2d(), IMAGE),
    (lambda nn: nn.ChannelShuffle(2), IMAGE),
    (lambda nn: nn.Unfold((3, 2), (1, 2), 1, 2), IMAGE),
    (lambda nn: nn.Fold((7, 5), (3, 2), (1, 2), (1, 0), 2), (3, 12, 8)),
    (lambda nn: nn.Flatten(), IMAGE),
    (lambda nn: nn.Flatten(start_dim=2), IMAGE),
    (lambda nn: nn.Flatten(0, 1), IMAGE),
    (lambda nn: nn.Unflatten(1, (2, -1)), IMAGE),
    (lambda nn: nn.Unflatten(-2, [3, 3]), IMAGE),
    (lambda nn: nn.PixelShuffle(2), IMAGE),
    (lambda nn: nn.PixelUnshuffle(3), (3, 2, 9, 6)),
    (lambda nn: nn.Dropout(0.5).eval() if hasattr(nn.Module, "eval") else nn.Dropout(0.5), (3, 4)),
    (lambda nn: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), (5, 4)),
    (lambda nn: nn.Sequential(OrderedDict(a=nn.Linear(4, 3), b=nn.Tanh())), (5, 4)),
    (lambda nn: nn.Sequential(nn.Sequential(nn.Linear(4, 3))), (5, 4)),
]


NORMS: list[tuple[Make, tuple[int, ...]]] = [
    (lambda nn: nn.BatchNorm2d(4), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, eps=1e-3, momentum=0.3), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, momentum=None), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, affine=False), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, track_running_stats=False), IMAGE),
    (lambda nn: nn.BatchNorm2d(4, bias=False), IMAGE),
    (lambda nn: nn.BatchNorm3d(4), VOLUME),
    (lambda nn: nn.InstanceNorm1d(4, track_running_stats=True), (3, 4, 9)),
    (lambda nn: nn.InstanceNorm2d(4, 1e-3, 0.3, True, True), IMAGE),
    (lambda nn: nn.InstanceNorm3d(4, affine=True, track_running_stats=True, bias=False), VOLUME),
    (lambda nn: nn.BatchNorm1d(6), (5, 6)),
    (lambda nn: nn.BatchNorm1d(6), (5, 6, 3)),
]


def twins(make: Make) -> tuple[nn.Module, Any]:
    """Ours and PyTorch's layer, with PyTorch's weights in both."""
    torch = need_module("torch")
    torch.manual_seed(0)
    ours, theirs = make(nn), make(torch.nn)
    assert {k: v.shape for k, v in ours.state_dict().items()} == {
        k: tuple(v.shape) for k, v in theirs.state_dict().items()
    }
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def assert_close(ours: Any, theirs: Any, terms: int = 1) -> None:
    """Equal but for rounding of sums of `terms` products of numbers around 1."""
    limit = 8 * np.finfo(np.float32).eps * max(terms, 8)
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=limit, atol=limit)


def compare_with_gradients(ours: nn.Module, theirs: Any, *arrays: Any, **options: Any) -> None:
    """The first outputs agree, and so do the gradients of their elements' weighed sum with respect
    to every float array and every trained parameter. `options` are NumPy arrays or flags."""
    torch = need_module("torch")
    tensors = [torch.from_numpy(a).requires_grad_(a.dtype == np.float32) for a in arrays]
    given = {k: torch.from_numpy(v) if hasattr(v, "dtype") else v for k, v in options.items()}
    theirs.zero_grad()
    expected = theirs(*tensors, **given)
    expected = expected[0] if isinstance(expected, tuple) else expected
    weights = random(*expected.shape, seed=7)
    (expected * torch.from_numpy(weights)).sum().backward()
    floats = [i for i, a in enumerate(arrays) if a.dtype == np.float32]

    def weighed(model: nn.Module, *xs: Any) -> Any:
        y = model(*xs, **options)
        y = y[0] if isinstance(y, tuple) else y
        return graphc.sum(y * weights), y

    def results(*xs: Any) -> Any:
        both = graphc.value_and_grad(weighed, (0, *(1 + i for i in floats)))(ours, *xs)
        (_, y), (parameters, *inputs) = both
        return y, *inputs, *parameters.values()

    graph, builder = traced(results, *arrays, model=ours)
    y, *found = play(graph, builder, *arrays)
    assert_close(y, expected, terms=64)
    trained = [n for n, p in ours.named_parameters() if p.trainable]
    assert [n for n, p in theirs.named_parameters()] == trained
    wanted = [t.grad for t in tensors if t.requires_grad]
    wanted += [p.grad for p in theirs.parameters()]
    for gradient, other in zip(found, wanted, strict=True):
        assert_close(gradient, other, terms=256)


# fmt: off
LOSSES: list[tuple[Make, tuple[int, ...], str]] = [
    (lambda nn: nn.MSELoss(), (3, 4), "numbers"),
    (lambda nn: nn.MSELoss(reduction="none"), (3, 4), "numbers"),
    (lambda nn: nn.L1Loss(reduction="sum"), (3, 4), "numbers"),
    (lambda nn: nn.BCEWithLogitsLoss(), (3, 4), "probabilities"),
    (lambda nn: nn.KLDivLoss(reduction="batchmean"), (3, 4), "probabilities"),
    (lambda nn: nn.SmoothL1Loss(beta=0.5), (3, 4), "numbers"),
    (lambda nn: nn.HuberLoss(delta=0.7), (3, 4), "numbers"),
    (lambda nn: nn.CrossEntropyLoss(), (6, 4), "classes"),
    (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), (6, 4), "classes"),
    (lambda nn: nn.CrossEntropyLoss(ignore_index=2, reduction="sum"), (6, 4), "classes"),
    (lambda nn: nn.CrossEntropyLoss(reduction="none"), (3, 4, 2), "classes"),
    (lambda nn: nn.CrossEntropyLoss(), (3, 4), "probabilities"),
    (lambda nn: nn.NLLLoss(ignore_index=0), (6, 4), "classes"),
    (lambda nn: nn.PoissonNLLLoss(), (3, 4), "probabilities"),
    (lambda nn: nn.PoissonNLLLoss(full=True, reduction="sum"), (3, 4), "probabilities"),
    (lambda nn: nn.SoftMarginLoss(), (3, 4), "signs"),
    (lambda nn: nn.MultiMarginLoss(), (6, 4), "classes"),
    (lambda nn: nn.MultiMarginLoss(2, 0.7, reduction="sum"), (6, 4), "classes"),
    (lambda nn: nn.MultiLabelSoftMarginLoss(), (3, 4), "probabilities"),
    (lambda nn: nn.HingeEmbeddingLoss(0.3), (3, 4), "signs"),
]
