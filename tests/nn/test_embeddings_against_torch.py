"""Embeddings and bags of them compute what PyTorch's do."""

from __future__ import annotations

import numpy as np
import pytest

from graphc import nn
from tests.nn.running import random, run
from tests.support.layers_against_torch import compare_with_gradients, twins
from tests.tools import need_module

BAGS = np.array([[0, 5, 3], [3, 5, 1]])
ROW = np.array([2, 0, 5, 5, 1, 6, 5])
OFFSETS = np.array([0, 3, 3, 4])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 5])
def test_bags_agree_with_pytorch(mode: str, padding: int | None) -> None:
    ours, theirs = twins(lambda nn: nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding))
    compare_with_gradients(ours, theirs, BAGS)
    compare_with_gradients(ours, theirs, ROW, OFFSETS)
    ours, theirs = twins(lambda nn: nn.EmbeddingBag(7, 3, mode=mode, include_last_offset=True))
    compare_with_gradients(ours, theirs, ROW, np.array([0, 3, 3, 7]))


def test_rows_of_a_bag_are_weighed_as_by_pytorch() -> None:
    ours, theirs = twins(lambda nn: nn.EmbeddingBag(7, 3, mode="sum"))
    shares = random(*BAGS.shape)
    compare_with_gradients(ours, theirs, BAGS, per_sample_weights=shares)
    compare_with_gradients(ours, theirs, ROW, OFFSETS, per_sample_weights=random(7))


def test_a_pretrained_table_is_frozen_unless_asked() -> None:
    rows = random(4, 3)
    for freeze in (True, False):
        table = nn.Embedding.from_pretrained(rows, freeze)
        np.testing.assert_array_equal(table.weight.numpy(), rows)
        assert table.weight.trainable is not freeze


def test_embedding_agrees_with_pytorch() -> None:
    torch = need_module("torch")
    ours, theirs = twins(lambda nn: nn.Embedding(7, 3))
    x = np.array([[0, 6, 3], [3, 3, 1]], np.int32)
    np.testing.assert_array_equal(run(ours, x), theirs(torch.from_numpy(x)).detach().numpy())
