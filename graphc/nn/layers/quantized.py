"""Linear layers with 8-bit integer weights, for inference."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import numpy as np

from graphc import functions, ops
from graphc.ir import tree
from graphc.nn import check
from graphc.nn.buffer import Buffer
from graphc.nn.layers.linear import Linear
from graphc.nn.module import Module
from graphc.trace import Tensor, emit

M = TypeVar("M", bound=Module)

TOGETHER = 4
"""Products that one instruction adds to a sum: a layer of other features stays in float32."""
MOST_FEATURES = 2**16
"""Sums of more products of 255 and 127 could leave 32 bits."""
LEAST = 1e-30
"""The least magnitude that a row is scaled by, so that a row of zeros is one."""


class Int8Linear(Module):
    """Linear map by products of 8-bit integers, for inference; no gradient flows.

    Row j of the weight is stored in units of scale[j], 1/127 of its largest magnitude. Each row of
    x is rounded likewise at each call. Sums are exact in i32 and scaled once, so that y is off by
    at most (in_features / 126) * max|x| * max|weight|, with the largest magnitudes of the rows, and
    by rounding in f32.

    Args:
        linear: The layer to quantize.

    Attributes:
        weight: i8 [out_features, in_features].
        scale: f32 [out_features].

    Example:
        >>> graphc.trace(nn.Int8Linear(nn.Linear(8, 2)), graphc.spec((4, 8))).outputs[0].type.shape
        (4, 2)
    """

    def __init__(self, linear: Linear) -> None:
        self.in_features, self.out_features = linear.in_features, linear.out_features
        if self.in_features > MOST_FEATURES:
            check.fail(f"Int8Linear: in_features at most {MOST_FEATURES}, got {self.in_features}")
        weight = np.asarray(linear.weight.numpy(), np.float32)
        largest = np.max(np.abs(weight), axis=1, initial=LEAST)
        rounded = np.rint(weight / (largest / 127)[:, None]).astype(np.int8)
        self.weight = Buffer(rounded)
        self.scale = Buffer((largest / 127).astype(np.float32))
        self.offset = Buffer(128 * rounded.sum(1, dtype=np.int32))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1:] != (self.in_features,) or x.dtype != "f32":
            check.fail(f"Int8Linear: expected f32[..., {self.in_features}], got {x.value.type}")
        rows = functions.reshape(x, (-1, self.in_features))
        magnitude = functions.max(functions.abs(rows), axis=1, keepdims=True)
        largest = functions.maximum(magnitude, LEAST)
        # Signed, but of a type that instructions take without: 128 more, which `offset` takes back.
        bytes = functions.astype(functions.round(rows * (127 / largest)) + 128, "u8")
        sums = emit(ops.MatmulBytes(), bytes, functions.permute_dims(self.weight, (1, 0)))
        y = functions.astype(sums - self.offset, "f32") * (largest / 127) * self.scale
        y = y if self.bias is None else y + self.bias
        return functions.reshape(y, (*x.shape[:-1], self.out_features))

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


def quantize(model: M) -> M:
    """Return a copy of a model whose Linear layers use 8-bit integers (`Int8Linear`).

    The copy shares everything else with the model. Layers whose in_features are no multiple of 4
    stay as they are.

    Args:
        model: The model.

    Returns:
        The copy, for inference.

    Raises:
        GraphError: `model` is no module.

    Example:
        >>> nn.quantize(nn.Sequential(nn.Linear(8, 2)))
        Sequential(
          (0): Int8Linear(8, 2, bias=True)
        )
    """
    if not isinstance(model, Module):
        check.fail(f"quantize: expected a module, got {type(model).__name__}")
    made: dict[int, Module] = {}

    def copied(_: str, value: Any) -> Any:
        return quantized(value) if isinstance(value, Module) else value

    def quantized(module: Module) -> Module:
        if id(module) in made:
            return made[id(module)]
        if type(module) is Linear and module.in_features % TOGETHER == 0:
            made[id(module)] = Int8Linear(module)
            return made[id(module)]
        new = made[id(module)] = copy.copy(module)
        for name, value in vars(module).items():
            vars(new)[name] = tree.map_leaves(copied, value)
        return new

    return quantized(model)  # type: ignore[return-value]
