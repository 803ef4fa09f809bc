"""Embeddings: tables whose rows are looked up by number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc import functions
from graphc.ir import TensorLike
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.trace import Tensor


class _Table(Module):
    """Base of embeddings: a weight f32 [num_embeddings, embedding_dim]."""

    def _set_table(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        scale_grad_by_freq: bool,
        weight: Any,
    ) -> None:
        layer = type(self).__name__
        rows = self.num_embeddings = check.integer(layer, "num_embeddings", num_embeddings)
        self.embedding_dim = check.integer(layer, "embedding_dim", embedding_dim)
        if max_norm is not None:
            check.fail(f"{layer}: max_norm expected None, got {max_norm!r}")
        if scale_grad_by_freq:
            check.fail(f"{layer}: scale_grad_by_freq expected False, got {scale_grad_by_freq!r}")
        self.weight = initialize.normal((rows, self.embedding_dim))
        if weight is not None:
            self.weight.assign(weight)
        self.padding_idx = None
        if padding_idx is None:
            return
        if not -rows <= check.axis(layer, "padding_idx", padding_idx) < rows:
            check.fail(f"{layer}: padding_idx expected a row of {rows}, got {padding_idx!r}")
        self.padding_idx = int(padding_idx) % rows
        if weight is None:
            self.weight.state.array[self.padding_idx] = 0

    def describe(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Embedding(_Table):
    """Look up rows of a table: y[..., :] = weight[x[...]].

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The number of features of a row.
        padding_idx: A row that starts as zeros and gets no gradient.
        max_norm: Must be None.
        norm_type: Accepted for PyTorch's sake; it changes nothing.
        scale_grad_by_freq: Must be False.
        sparse: Accepted for PyTorch's sake; it changes nothing.
        _weight: The initial table; by default standard normal numbers.

    Attributes:
        weight: f32 [num_embeddings, embedding_dim].

    Example:
        >>> graphc.trace(nn.Embedding(10, 4), graphc.spec((2, 5), "int64")).outputs[0].type.shape
        (2, 5, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: TensorLike | None = None,
    ) -> None:
        self._set_table(
            num_embeddings, embedding_dim, padding_idx, max_norm, scale_grad_by_freq, _weight
        )

    @classmethod
    def from_pretrained(
        cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None
    ) -> Embedding:
        """Return an embedding of a given table.

        Args:
            embeddings: The table [num_embeddings, embedding_dim].
            freeze: Whether it is not trained.
            padding_idx: A row that gets no gradient.

        Example:
            >>> nn.Embedding.from_pretrained([[1.0, 2.0]]).weight
            Parameter(f32[1,2], trainable=False)
        """
        rows, features = np.shape(embeddings)
        table = cls(rows, features, padding_idx, _weight=embeddings)
        table.weight = Parameter(table.weight.numpy(), trainable=not freeze)
        return table

    def forward(self, x: Tensor) -> Tensor:
        return functions.embedding(x, self.weight, self.padding_idx)


class EmbeddingBag(_Table):
    """Reduce the rows of each bag of numbers: y [n, embedding_dim].

    A bag is a row of x [n, t]; or, with `offsets` [n], the elements of x [t] from one offset up to
    the next. An empty bag gives zeros. Called as layer(x, offsets=None, per_sample_weights=None),
    with factors of the rows in the shape of x for mode "sum".

    Args:
        num_embeddings: The number of rows.
        embedding_dim: The number of features of a row.
        max_norm: Must be None.
        norm_type: Accepted for PyTorch's sake; it changes nothing.
        scale_grad_by_freq: Must be False.
        mode: "sum", "mean" or "max".
        sparse: Accepted for PyTorch's sake; it changes nothing.
        _weight: The initial table; by default standard normal numbers.
        include_last_offset: Whether the last offset is t and begins no bag.
        padding_idx: A row that is left out of bags.

    Example:
        >>> graphc.trace(nn.EmbeddingBag(10, 4), graphc.spec((2, 5), "int64")).outputs[0].type.shape
        (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: TensorLike | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        if mode not in ("sum", "mean", "max"):
            check.fail(f"EmbeddingBag: mode expected 'sum', 'mean' or 'max', got {mode!r}")
        self.mode, self.include_last_offset = mode, bool(include_last_offset)
        self._set_table(
            num_embeddings, embedding_dim, padding_idx, max_norm, scale_grad_by_freq, _weight
        )

    def forward(
        self, x: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        if (x.ndim, offsets is None) not in ((1, False), (2, True)):
            given = "None" if offsets is None else str(functions.as_tensor(offsets).value.type)
            check.fail(
                "EmbeddingBag: expected x[n, t], or x[t] with offsets[n], got "
                f"{x.value.type} and {given}"
            )
        if per_sample_weights is not None and self.mode != "sum":
            check.fail(f"EmbeddingBag: per_sample_weights expected mode 'sum', got {self.mode!r}")
        rows = functions.embedding(x, self.weight)
        member = self._members(x, offsets)
        if self.mode == "max":
            rows = rows if offsets is None else functions.expand_dims(rows, 0)
            chosen = functions.where(functions.expand_dims(member, -1), rows, -math.inf)
            largest = functions.max(chosen, axis=1)
            empty = functions.logical_not(functions.any(member, axis=1, keepdims=True))
            return functions.where(empty, 0, largest)
        share = functions.astype(member, self.weight.dtype)
        if per_sample_weights is not None:
            share = share * per_sample_weights
        if offsets is None:
            total = functions.sum(functions.expand_dims(share, -1) * rows, axis=1)
        else:
            total = functions.matmul(share, rows)
        if self.mode == "sum":
            return total
        return total / functions.maximum(functions.sum(share, axis=1, keepdims=True), 1)

    def _members(self, x: Tensor, offsets: Tensor | None) -> Tensor:
        """Booleans [n, t]: whether element t of x is in bag n."""
        if offsets is None:
            member = functions.ones(x.shape, "bool")
        else:
            starts = functions.as_tensor(offsets)
            place = functions.arange(x.shape[0])
            begun = functions.less_equal(functions.expand_dims(starts, 1), place)
            if self.include_last_offset:
                member = functions.logical_and(begun[:-1], functions.logical_not(begun[1:]))
            else:
                more = functions.zeros((1, x.shape[0]), "bool")
                ended = functions.concat([begun[1:], more], 0)
                member = functions.logical_and(begun, functions.logical_not(ended))
        if self.padding_idx is not None:
            member = functions.logical_and(member, functions.not_equal(x, self.padding_idx))
        return member

    def describe(self) -> str:
        return f"{super().describe()}, mode={self.mode!r}"
