"""nn.KVCache: position after position gives what attention to the whole sequence gives."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError

N, HEADS, LIMIT, FEATURES = 2, 2, 9, 8


def sequence(heads: int, t: int, seed: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((N, heads, t, FEATURES)).astype(dtype)


def program(cache: nn.KVCache, heads: int, t: int, device: str, dtype: str = "float32"):
    q = graphc.spec((N, heads, t, FEATURES), dtype)
    k = graphc.spec((N, HEADS, t, FEATURES), dtype)
    return graphc.compile(cache, q, k, k, graphc.spec((N, t), "int32"), device=device)


def causal(q, k, v, heads: int) -> np.ndarray:
    def attend(q, k, v):
        return graphc.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=heads != HEADS
        )

    return graphc.compile(attend, q, k, v, device="reference")(q, k, v)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "sim", "reference"])
@pytest.mark.parametrize("heads", [HEADS, 6])
def test_positions_in_any_portions_give_causal_attention(device: str, heads: int) -> None:
    q, k, v = (sequence(h, 7, i) for i, h in enumerate((heads, HEADS, HEADS)))
    cache = nn.KVCache(N, HEADS, LIMIT, FEATURES)
    found, at = [], 0
    for t in (3, 1, 1, 2):
        part = slice(at, at + t)
        where = np.tile(np.arange(at, at + t, dtype=np.int32), (N, 1))
        arrays = [np.ascontiguousarray(x[:, :, part]) for x in (q, k, v)]
        found.append(program(cache, heads, t, device)(*arrays, where))
        at += t
    np.testing.assert_allclose(
        np.concatenate(found, 2), causal(q, k, v, heads), rtol=2e-5, atol=1e-6
    )


def test_prompts_of_unequal_lengths_do_not_see_their_padding() -> None:
    """Padding is overwritten before any query sees it."""
    q, k, v = (sequence(HEADS, 6, i) for i in range(3))
    cache, lengths = nn.KVCache(N, HEADS, LIMIT, FEATURES), np.array([4, 2])
    padded = [x[:, :, :4].copy() for x in (q, k, v)]
    for x in padded[1:]:
        x[1, :, 2:] = 1e9
    where = np.tile(np.arange(4, dtype=np.int32), (N, 1))
    prompt = program(cache, HEADS, 4, "cpu")(*padded, where)
    step = program(cache, HEADS, 1, "cpu")
    expected = causal(q, k, v, HEADS)
    for row, length in enumerate(lengths):
        close(prompt[row, :, :length], expected[row, :, :length])
    for further in range(2):
        at = lengths + further
        arrays = [
            np.stack([x[i, :, [p]] for i, p in enumerate(at)]).swapaxes(1, 2) for x in (q, k, v)
        ]
        arrays = [np.ascontiguousarray(x) for x in arrays]
        found = step(*arrays, at[:, None].astype(np.int32))
        for row, p in enumerate(at):
            close(found[row, :, 0], expected[row, :, p])


def test_a_step_writes_its_rows_in_place() -> None:
    cache = nn.KVCache(N, HEADS, 4096, FEATURES)
    step = program(cache, HEADS, 1, "cpu")
    assert step.plan.peak_bytes < cache.keys.type.size
    keys = cache.keys.numpy().copy()
    one = sequence(HEADS, 1, 0)
    step(one, one, one, np.array([[7], [4000]], np.int32))
    changed = np.argwhere((cache.keys.numpy() != keys).any((1, 3)))
    np.testing.assert_array_equal(changed, [[0, 7], [1, 4000]])
    before = cache.keys.numpy().copy()
    step(one, one, one, np.full((N, 1), 4096, np.int32))
    np.testing.assert_array_equal(cache.keys.numpy(), before)


def test_a_cache_of_two_bytes_holds_rounded_keys() -> None:
    cache = nn.KVCache(N, HEADS, LIMIT, FEATURES, "bfloat16")
    q, k, v = (sequence(HEADS, 5, i) for i in range(3))
    where = np.tile(np.arange(5, dtype=np.int32), (N, 1))
    found = program(cache, HEADS, 5, "cpu")(q, k, v, where)
    assert str(cache.keys.type.dtype) == "bf16" and cache.state_dict() == {}
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, causal(q, k, v, HEADS), rtol=0.05, atol=0.05)


def test_messages() -> None:
    cache = nn.KVCache(N, HEADS, LIMIT, FEATURES)
    q, where = graphc.spec((N, HEADS, 1, FEATURES)), graphc.spec((N, 1), "int32")
    with pytest.raises(
        GraphError, match=r"KVCache: key expected \[2, 2, t, 8\], got f32\[2,4,1,8\]"
    ):
        graphc.trace(cache, q, graphc.spec((N, 4, 1, FEATURES)), q, where)
    with pytest.raises(
        GraphError, match=r"KVCache: query expected \[2, a multiple of 2, 1, 8\], got "
    ):
        graphc.trace(cache, graphc.spec((N, 3, 1, FEATURES)), q, q, where)
    with pytest.raises(GraphError, match=r"KVCache: positions expected integers \[2, 1\], got "):
        graphc.trace(cache, q, q, q, graphc.spec((N, 1)))
    with pytest.raises(GraphError, match="KVCache: limit expected an integer of at least 1"):
        nn.KVCache(1, 1, 0, 4)
    with pytest.raises(GraphError, match=r"KVCache: dtype expected a float, got 'int32'"):
        nn.KVCache(1, 1, 4, 4, "int32")
