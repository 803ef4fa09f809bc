"""The cache of keys and values with which a transformer writes one position after the other."""

from __future__ import annotations

import numpy as np

from graphc import functions
from graphc.base.source_lines import error
from graphc.ir import DTYPES, FLOATS, INTEGERS, DTypeLike, TensorLike, dtype_name
from graphc.nn import check
from graphc.nn.buffer import Buffer
from graphc.nn.module import Module
from graphc.trace import Tensor


class KVCache(Module):
    """Attention to all positions so far, whose keys and values are state of the program.

    Called as `cache(query, key, value, positions)`, it writes keys and values at their positions
    and attends from each query to all positions up to its own. Nothing else is moved: a step that
    writes one position writes its rows in place. Prompts of unequal lengths need no mask: pad them
    behind their ends, and go on at the position after each one's last symbol; what padding has
    left is overwritten before anything attends to it.

    Args:
        batch: The number of sequences n.
        heads: The number of heads of keys and values.
        limit: The most positions of a sequence.
        features: The features of a head.
        dtype: A floating dtype.

    Attributes:
        keys: A buffer [batch, heads, limit, features], not part of `state_dict`; also values.

    Example:
        >>> cache, one = nn.KVCache(1, 1, 4, 2), graphc.spec((1, 1, 1, 2))
        >>> step = graphc.compile(cache, one, one, one, graphc.spec((1, 1), "int32"))
        >>> x = np.ones((1, 1, 1, 2), np.float32)
        >>> step(x, x, x, np.array([[0]], np.int32))
        array([[[[1., 1.]]]], dtype=float32)
        >>> step(x, x, 3 * x, np.array([[1]], np.int32))
        array([[[[2., 2.]]]], dtype=float32)
    """

    def __init__(
        self, batch: int, heads: int, limit: int, features: int, dtype: DTypeLike = "float32"
    ) -> None:
        names = {"batch": batch, "heads": heads, "limit": limit, "features": features}
        shape = tuple(check.integer("KVCache", name, size) for name, size in names.items())
        kind = dtype_name(dtype)
        if kind not in FLOATS:
            raise error(f"KVCache: dtype expected a float, got {dtype!r}")
        self.keys = Buffer(np.zeros(shape, DTYPES[kind]), persistent=False)
        self.values = Buffer(np.zeros(shape, DTYPES[kind]), persistent=False)

    def forward(
        self, query: TensorLike, key: TensorLike, value: TensorLike, positions: TensorLike
    ) -> Tensor:
        """Write keys and values, and attend to all positions up to each query's own.

        Args:
            query: Queries [batch, h, t, features], where h is a multiple of the cache's heads.
            key: Keys [batch, heads, t, features].
            value: Values [batch, heads, t, features].
            positions: The positions of queries, keys and values, integers [batch, t]; nothing is
                written beyond the limit.

        Returns:
            A tensor [batch, h, t, features] of the dtype of `query`.

        Raises:
            GraphError: A shape does not fit.
        """
        q, k, v, where = map(functions.as_tensor, (query, key, value, positions))
        n, heads, limit, features = self.keys.shape
        expected = (n, heads, k.shape[-2] if k.ndim == 4 else 1, features)
        for name, x in (("key", k), ("value", v)):
            if x.shape != expected:
                shown = f"{n}, {heads}, t, {features}"
                raise error(f"KVCache: {name} expected [{shown}], got {x.value.type}")
        t = expected[2]
        if q.ndim != 4 or q.shape[:1] + q.shape[2:] != (n, t, features) or q.shape[1] % heads:
            shown = f"{n}, a multiple of {heads}, {t}, {features}"
            raise error(f"KVCache: query expected [{shown}], got {q.value.type}")
        if where.shape != (n, t) or where.dtype not in INTEGERS:
            raise error(f"KVCache: positions expected integers [{n}, {t}], got {where.value.type}")
        index = functions.broadcast_to(where.reshape(n, 1, t, 1), k.shape)
        dtype = self.keys.dtype
        self.keys.assign(functions.scatter(self.keys, 2, index, functions.astype(k, dtype)))
        self.values.assign(functions.scatter(self.values, 2, index, functions.astype(v, dtype)))
        seen = functions.less_equal(functions.arange(limit), where.reshape(n, 1, t, 1))
        attended = functions.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=seen, enable_gqa=q.shape[1] != heads
        )
        return functions.astype(attended, q.dtype)
