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

    weight: f32[num_embeddings, embedding_dim], standard normal at first.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.num_embeddings = check.integer("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = check.integer("Embedding", "embedding_dim", embedding_dim)
        self.weight = initialize.normal((self.num_embeddings, self.embedding_dim))

    def forward(self, x: Tensor) -> Tensor:
        return functions.embedding(x, self.weight)

    def describe(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"
