"""Wrong arguments of modules: the message names the module, what was expected and what came."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc import nn
from graphc.base.errors import GraphError
from graphc.nn.initialize import seed
from tests.nn.running import random, traced


class NoForward(nn.Module):
    pass


def in_trace(make: Callable[[], nn.Module], *shape: int) -> Callable[[], Any]:
    return lambda: traced(make(), random(*shape))


# fmt: off
MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: nn.Parameter(np.zeros(2, np.int32)),
     "Parameter: expected a float dtype, got i32[2]; trainable=False holds other dtypes"),
    (lambda: np.asarray(nn.Parameter(1.0)),
     "a parameter is not an array: use graphc's functions in a traced function and .numpy() "
     "elsewhere"),
    (lambda: bool(nn.Parameter(1.0)), "a parameter has no truth value: compare with None"),
    (lambda: len(nn.Parameter(1.0)), "len() of a parameter without axes"),
    (in_trace(NoForward, 1), "NoForward has no forward method"),
    (in_trace(nn.ModuleList, 1), "ModuleList has no forward method"),
    (lambda: nn.Linear(0, 2), "Linear: in_features expected an integer of at least 1, got 0"),
    (lambda: nn.Linear(2, 2.5), "Linear: out_features expected an integer of at least 1, got 2.5"),
    (lambda: nn.Embedding(True, 2),
     "Embedding: num_embeddings expected an integer of at least 1, got True"),
    (lambda: nn.Conv2d(1, 2, (3, 3, 3)),
     "Conv2d: kernel_size expected an integer or a pair of integers of at least 1, got (3, 3, 3)"),
    (lambda: nn.Conv2d(1, 2, (3, 0)),
     "Conv2d: kernel_size expected an integer or a pair of integers of at least 1, got (3, 0)"),
    (lambda: nn.Conv2d(1, 2, 3, padding=-1),
     "Conv2d: padding expected an integer or a pair of integers of at least 0, got -1"),
    (lambda: nn.Conv2d(1, 2, 3, padding="full"),
     "Conv2d: padding expected integers, 'same' or 'valid', got 'full'"),
    (lambda: nn.Conv2d(1, 2, 3, 2, "same"),
     "Conv2d: padding='same' expected stride=1, got (2, 2)"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2),
     "Conv2d: groups=2 expected to divide in_channels and out_channels, got 3 and 4"),
    (lambda: nn.Conv1d(1, 2, 3, 2, "same"), "Conv1d: padding='same' expected stride=1, got (2,)"),
    (lambda: nn.Conv3d(1, 2, (3, 3)),
     "Conv3d: kernel_size expected an integer or three integers of at least 1, got (3, 3)"),
    (lambda: nn.Conv1d(1, 2, (3, 3)),
     "Conv1d: kernel_size expected an integer of at least 1, got (3, 3)"),
    (lambda: nn.Conv2d(1, 2, 3, padding_mode="same"),
     "Conv2d: padding_mode expected 'zeros', 'reflect', 'replicate' or 'circular', got 'same'"),
    (lambda: nn.ConvTranspose1d(1, 2, 3, padding_mode="circular"),
     "ConvTranspose1d: padding_mode expected 'zeros', got 'circular'"),
    (lambda: nn.ZeroPad2d((1, 2)), "ZeroPad2d: padding expected one integer or 4, got (1, 2)"),
    (lambda: nn.ZeroPad1d(-1), "ZeroPad1d: padding expected an integer of at least 0, got -1"),
    (lambda: nn.Embedding(2, 3, max_norm=1.0), "Embedding: max_norm expected None, got 1.0"),
    (lambda: nn.Embedding(2, 3, scale_grad_by_freq=True),
     "Embedding: scale_grad_by_freq expected False, got True"),
    (lambda: nn.EmbeddingBag(2, 3, mode="min"),
     "EmbeddingBag: mode expected 'sum', 'mean' or 'max', got 'min'"),
    (lambda: traced(lambda x: nn.EmbeddingBag(2, 3)(x), np.zeros(3, np.int32)),
     "EmbeddingBag: expected x[n, t], or x[t] with offsets[n], got i32[3] and None"),
    (lambda: traced(lambda x: nn.EmbeddingBag(2, 3)(x, None, x), np.zeros((3, 2), np.int32)),
     "EmbeddingBag: per_sample_weights expected mode 'sum', got 'mean'"),
    (in_trace(lambda: nn.ChannelShuffle(4), 1, 6, 2, 2),
     "ChannelShuffle: x f32[1,6,2,2] expected a multiple of 4 channels"),
    (lambda: nn.Upsample(scale_factor=2, recompute_scale_factor=True),
     "Upsample: recompute_scale_factor expected False, size= says as much"),
    (lambda: nn.ParameterDict({"a": 1.0})["b"],
     "ParameterDict: no parameter 'b', there are ['a']"),
    (lambda: nn.ParameterDict({"keys": 1.0}),
     "ParameterDict: 'keys' is a method, choose another name"),
    (lambda: nn.ConvTranspose2d(2, 3, 3, groups=2),
     "ConvTranspose2d: groups=2 expected to divide in_channels and out_channels, got 2 and 3"),
    (lambda: nn.MaxPool2d(2, padding=2),
     "MaxPool2d: padding expected at most half of kernel_size=(2, 2), got (2, 2)"),
    (lambda: nn.AvgPool2d(2, stride=0),
     "AvgPool2d: stride expected an integer or a pair of integers of at least 1, got 0"),
    (lambda: nn.Dropout(1.5), "Dropout: p expected a number in [0, 1], got 1.5"),
    (lambda: nn.GELU("erf"), "GELU: approximate expected 'none' or 'tanh', got 'erf'"),
    (lambda: nn.Softmax("last"), "Softmax: dim expected an integer, got 'last'"),
    (lambda: nn.BatchNorm2d(2, momentum=2),
     "BatchNorm2d: momentum expected a number in [0, 1], got 2"),
    (lambda: nn.GroupNorm(2, 3), "GroupNorm: num_groups=2 expected to divide num_channels, got 3"),
    (lambda: nn.LeakyReLU("steep"), "LeakyReLU: negative_slope expected a number, got 'steep'"),
    (lambda: nn.MarginRankingLoss("far"), "MarginRankingLoss: margin expected a number, got 'far'"),
    (lambda: seed(-1), "seed: number expected an integer of at least 0, got -1"),
    (lambda: nn.LayerNorm(2.5),
     "LayerNorm: normalized_shape expected an integer of at least 1, got 2.5"),
    (lambda: nn.LayerNorm((2, 0)),
     "LayerNorm: normalized_shape expected an integer of at least 1, got 0"),
    (in_trace(lambda: nn.BatchNorm1d(2), 1, 2, 3, 3),
     "BatchNorm1d: expected x[n, c] or x[n, c, l], got f32[1,2,3,3]"),
    (in_trace(lambda: nn.BatchNorm2d(2), 1, 2),
     "BatchNorm2d: expected x[n, c, h, w], got f32[1,2]"),
    (lambda: nn.Sequential(nn.ReLU),
     "Sequential: expected a module at '0', got ReLU, which is a class: call it"),
    (lambda: nn.ModuleList([3]), "ModuleList: expected a module at '0', got int"),
    (lambda: nn.Sequential(nn.ReLU())[1], "Sequential: no module 1, there are 1"),
    (lambda: nn.ModuleDict({"a": nn.ReLU}),
     "ModuleDict: expected a module at 'a', got ReLU, which is a class: call it"),
    (lambda: nn.ModuleDict({"keys": nn.ReLU()}),
     "ModuleDict: 'keys' is a method, choose another name"),
    (lambda: nn.ModuleDict({"a": nn.ReLU()})["b"], "ModuleDict: no module 'b', there are ['a']"),
    (lambda: nn.ParameterList()[0], "ParameterList: no parameter 0, there are 0"),
    (lambda: nn.Embedding(3, 2, padding_idx=3),
     "Embedding: padding_idx expected a row of 3, got 3"),
    (lambda: nn.MSELoss("average"),
     "MSELoss: reduction expected 'mean', 'sum' or 'none', got 'average'"),
    (in_trace(lambda: nn.Unflatten(2, (2,)), 3, 4), "Unflatten: dim=2 is no axis of x f32[3,4]"),
    (lambda: nn.Unflatten(1, 4), "Unflatten: unflattened_size expected integers, got 4"),
    (in_trace(lambda: nn.PixelShuffle(2), 1, 6, 2, 2),
     "PixelShuffle: x f32[1,6,2,2] expected a multiple of 4 channels"),
    (in_trace(lambda: nn.PixelUnshuffle(2), 1, 6, 2, 3),
     "PixelUnshuffle: x f32[1,6,2,3] expected multiples of 2 in h and w"),
    (in_trace(lambda: nn.InstanceNorm2d(2), 1, 3, 2, 2),
     "InstanceNorm2d: expected 2 channels, got f32[1,3,2,2]"),
    (lambda: nn.MaxPool1d(2, padding=2),
     "MaxPool1d: padding expected at most half of kernel_size=2, got 2"),
    (lambda: nn.Upsample(), "Upsample: expected either size or scale_factor, got size=None and "
     "scale_factor=None"),
    (lambda: nn.AdaptiveAvgPool2d(0), "AdaptiveAvgPool2d: output_size expected an integer or a "
     "pair of integers of at least 1, got 0"),
]
# fmt: on


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_wrong_arguments_are_named(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(
        GraphError, match=rf"^{re.escape(message)} \((test_module_errors|running)\.py:\d+\)$"
    ):
        mistake()


LAYERS = [
    layer
    for layer in map(vars(nn).get, nn.__all__)
    if isinstance(layer, type)
    and issubclass(layer, nn.Module)
    and not layer.__name__.startswith("Transformer")  # its parts name their own arguments
]
UNUSED = {"norm_type"}
"""Arguments that nothing reads, and nothing checks, unless another one is given."""


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_every_number_is_checked_under_its_layers_and_its_own_name(layer: type[nn.Module]) -> None:
    accepted = inspect.signature(layer).parameters.values()
    needed = {p.name: 2 for p in accepted if p.default is p.empty}
    for argument in accepted:
        number = type(argument.default) in (int, float) or argument.annotation == "int"
        if number and argument.name not in UNUSED:
            with pytest.raises(GraphError) as error:
                layer(**needed | {argument.name: "far"})
            assert str(error.value).startswith(f"{layer.__name__}: {argument.name} expected ")
