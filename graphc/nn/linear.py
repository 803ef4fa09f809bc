"""Layers around one matrix: linear maps and tables of vectors."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class Linear(Module):
    """y[..., out_features] = x[..., in_features] @ weight.T + bias.

    weight: f32[out_features, in_features]; bias: f32[out_features] or None.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = check.integer("Linear", "in_features", in_features)
        self.out_features = check.integer("Linear", "out_features", out_features)
        self.weight = initialize.uniform((self.out_features, self.in_features), self.in_features)
        self.bias = initialize.uniform((self.out_features,), self.in_features) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """y[..., embedding_dim] = weight[x[...]], x: i32 or i64 in [0, num_embeddings).

    weight: f32[num_embeddings, embedding_dim], standard normal at first. The row at `padding_idx`
    is zero at first and gets no gradient.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None
    ) -> None:
        rows = self.num_embeddings = check.integer("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = check.integer("Embedding", "embedding_dim", embedding_dim)
        self.weight = initialize.normal((rows, self.embedding_dim))
        self.padding_idx = None
        if padding_idx is not None:
            if not -rows <= check.axis("Embedding", "padding_idx", padding_idx) < rows:
                check.fail(f"Embedding: padding_idx expected a row of {rows}, got {padding_idx!r}")
            self.padding_idx = int(padding_idx) % rows
            self.weight.state.array[self.padding_idx] = 0

    def forward(self, x: Tensor) -> Tensor:
        y = functions.embedding(x, self.weight)
        if self.padding_idx is None:
            return y
        padded = functions.expand_dims(functions.equal(x, self.padding_idx), -1)
        return functions.where(padded, functions.stop_gradient(y), y)

    def describe(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Bilinear(Module):
    """y[..., k] = bias[k] + the sum over i j of x1[..., i] * weight[k, i, j] * x2[..., j].

    weight: f32[out_features, in1_features, in2_features]; bias: f32[out_features] or None.
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        self.in1_features = check.integer("Bilinear", "in1_features", in1_features)
        self.in2_features = check.integer("Bilinear", "in2_features", in2_features)
        self.out_features = check.integer("Bilinear", "out_features", out_features)
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.weight = initialize.uniform(shape, self.in1_features)
        self.bias = initialize.uniform(shape[:1], self.in1_features) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functions.bilinear(x1, x2, self.weight, self.bias)

    def describe(self) -> str:
        return (
            f"{self.in1_features}, {self.in2_features}, {self.out_features}, "
            f"bias={self.bias is not None}"
        )
