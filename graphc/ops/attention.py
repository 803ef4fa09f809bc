"""Attention as one op, so that a kernel can compute it without the matrix of all weights.

Letters: n batch, h heads, g heads of key and value (h is a multiple of g: head i reads head
i // (h / g)), t queries, u keys, e features of query and key, d features of value.

The kernels are those of Dao, FlashAttention-2 (2023): the softmax is taken block of keys by block
of keys, with a running maximum and sum per query; the backward pass computes the weights again from
the logarithm of each query's sum, and adds without atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from graphc.base.dtypes import convert, widened
from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensor, Tensors, Vocabulary
from graphc.ops.axes import Axes, folded, repeated, unfolded
from graphc.ops.base import Array, Flags, Op, check_dtype, same_dtype
from graphc.ops.pointwise.tf32 import nearest_tf32
from graphc.ops.random import PhiloxUniform


@dataclass(frozen=True)
class _Attention(Op):
    own_template: ClassVar[str] = "attend"
    roles: ClassVar[tuple[str, ...]] = ()
    """The names of the inputs that there always are."""
    products: ClassVar[tuple[int, int]] = (0, 0)
    """Of weights with e features and with d features."""
    causal: bool
    scale: float
    dropout: float = 0.0
    seed: int = 0
    number: int = 0
    rounded: str = ""
    """What weights are rounded to before they are multiplied: "tf32", "bf16", "f16"; or "", not."""

    @property
    def accumulates(self) -> bool:
        return True

    def operands(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """The inputs by name: mask is not always there, counter where there is dropout."""
        names = [*self.roles]
        if self.dropout:
            names.append("counter")
        if len(inputs) > len(names):
            names.insert(len(self.roles), "mask")
        return dict(zip(names, inputs, strict=True))

    def check(self, q: Type, k: Type, v: Type, mask: Type | None = None) -> tuple[int, ...]:
        """(n, h, g, t, u, e, d), or GraphError."""
        check_dtype("attention", same_dtype("attention", (q, k, v)), FLOATS, (q, k, v))
        if not q.rank == k.rank == v.rank == 4:
            raise GraphError(f"attention: expected 4 axes each, got {q}, {k} and {v}")
        n, h, t, e = q.shape
        g, u, d = k.shape[1], k.shape[2], v.shape[3]
        if k.shape != (n, g, u, e) or v.shape != (n, g, u, d) or not g or h % g:
            raise GraphError(
                f"attention: expected q [n, h, t, e], k [n, g, u, e] and v [n, g, u, d] where h is "
                f"a multiple of g, got {q}, {k} and {v}"
            )
        if mask is not None:
            pairs = zip(mask.shape, (n, h, t, u), strict=False)
            fits = mask.rank == 4 and all(a in (1, b) for a, b in pairs)
            if mask.dtype not in ("bool", q.dtype) or not fits:
                raise GraphError(
                    f"attention: expected a mask bool or {q.dtype} that broadcasts to "
                    f"{[n, h, t, u]}, got {mask}"
                )
        return n, h, g, t, u, e, d

    @property
    def draws(self) -> bool:
        return bool(self.dropout)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """The images alone, whose draws differ."""
        named = self.operands(inputs)
        whole = named["q"].shape[:1]
        images = [
            (0 if t.shape[:1] == whole and not self.dropout else None, *(None,) * (t.rank - 1))
            for t in inputs
            if t.rank
        ]
        maps = (*images, *(() for t in inputs if not t.rank))
        return (maps,) * len(self.infer(*inputs))

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        """Samples are further images."""
        named, own = self.operands(inputs), self.operands(stacked)
        if own.get("counter"):
            return f.one_by_one(self, inputs, stacked, size)
        images = named["q"].shape[own["q"]]
        parts = []
        for name, x in named.items():
            if name == "mask" and own[name]:
                x = f.broadcast_to(x, (size, images, *x.shape[2:]))
            elif x.ndim and not (name == "mask" and x.shape[0] == 1) and not own[name]:
                x = repeated(f, x, size)
            whole = name == "counter" or (name == "mask" and x.ndim == 4)
            parts.append(x if whole else folded(f, x))
        return [unfolded(f, y, size) for y in f.emit_all(self, *parts)]

    def flops(self, *inputs: Type, products: tuple[int, int] | None = None) -> int:
        """Return the floating-point operations of a kernel with so many matrix products.

        By default they include those that compute weights again.
        """
        n, h, _, t, u, e, d = self.check(*inputs[:3])
        seen = sum(min(i + 1, u) for i in range(t)) if self.causal else t * u
        of_keys, of_values = products or self.products
        return 2 * n * h * seen * (e * of_keys + d * of_values)

    def scores(self, q: Array, k: Array, mask: Array | None) -> Array:
        """q k^T * scale, -inf where a query does not see a key: [n, h, t, u]."""
        scores = (q @ _each_head(k, q.shape[1]).swapaxes(2, 3)) * q.dtype.type(self.scale)
        minus_infinity = q.dtype.type(-np.inf)
        if mask is not None:
            seen = mask.dtype == np.bool_
            scores = np.where(mask, scores, minus_infinity) if seen else scores + mask
        if self.causal:
            scores = np.where(np.tri(*scores.shape[2:], dtype=np.bool_), scores, minus_infinity)
        return np.asarray(scores)

    def weights(
        self, f: Vocabulary, q: Tensor, k: Tensor, mask: Tensor | None, logs: Tensor
    ) -> Tensor:
        """The softmax of the scores, [n, h, t, u], for k of as many heads as q."""
        scores = f.matmul(q, f.matrix_transpose(k)) * self.scale
        if mask is not None and mask.dtype != "bool":
            scores = scores + mask
        weights = f.exp(scores - f.expand_dims(logs, 3))
        if mask is not None and mask.dtype == "bool":
            weights = f.where(mask, weights, 0)
        return f.tril(weights) if self.causal else weights

    def dropped(self, f: Vocabulary, x: Tensor, counter: Tensor | None) -> Tensor:
        """x [n, h, t, u] as dropout leaves it."""
        if counter is None:
            return x
        uniform = f.emit(PhiloxUniform(self.seed, self.number, x.shape), counter)
        return f.where(uniform >= self.dropout, x * (1 / (1 - self.dropout)), 0)

    def multiplying(self, dtype: str) -> Op:
        return replace(self, rounded=dtype)

    def rounding(self, weights: Array) -> Array:
        """`weights`, or what takes their place in a gradient, as they are multiplied."""
        if not self.rounded or weights.dtype != np.float32:
            return weights
        if self.rounded == "tf32":
            return nearest_tf32(weights)
        return widened(convert(weights, Type((), self.rounded).numpy_dtype))

    def kept(self, like: Array, counter: Array | None) -> Array:
        """What dropout multiplies weights `like` by: 0 or 1 / (1 - dropout)."""
        if counter is None:
            return np.ones_like(like)
        (uniform,) = PhiloxUniform(self.seed, self.number, like.shape).reference(counter)
        return np.where(uniform >= np.float32(self.dropout), 1 / (1 - self.dropout), 0).astype(
            like.dtype
        )


@dataclass(frozen=True)
class Attention(_Attention):
    """y[n, t, h, d] = sum over u of w[n, h, t, u] v[n, g, u, d], with the softmax w of the scores.

    w is the softmax over u of q[n, h, t, e] k[n, g, u, e] * scale + mask[n, h, t, u], and the
    second output is l[n, h, t] = log(sum exp) of these. The mask is optional and broadcasts;
    booleans are true where attention is allowed, numbers are added. If `causal`, query t attends to
    keys up to t. Where a query attends to no key, y is 0 and l is +infinity. With `dropout`, the
    last input is a step counter i32[], and y uses w / (1 - dropout) where PhiloxUniform(seed,
    number, [n, h, t, u]) is not below dropout, else 0.

    With `rounded`, each exp(score - c) that multiplies v is rounded to that dtype, where c is the
    largest score of the row so far; the sum that divides them is not rounded. c depends on the
    kernel, so that with the unit roundoff u (2^-11 for tf32 and f16, 2^-8 for bf16) the y of two
    kernels differ by at most 2 u sum(w |v|), besides rounding of sums.
    """

    name: ClassVar[str] = "attention"
    own_factors: ClassVar[slice] = slice(3)
    roles: ClassVar[tuple[str, ...]] = ("q", "k", "v")
    products: ClassVar[tuple[int, int]] = (1, 1)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        q, k, v, mask, _ = _named(self, inputs)
        n, h, _, t, _, _, d = self.check(q, k, v, mask)
        return Type((n, t, h, d), q.dtype), Type((n, h, t), q.dtype)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        q, k, v, mask, counter = _named(self, inputs)
        with np.errstate(all="ignore"):
            scores = self.scores(q, k, mask)
            largest = scores.max(-1, keepdims=True, initial=-np.inf)
            largest = np.where(largest == -np.inf, q.dtype.type(0), largest)
            weights = np.exp(scores - largest)
            total = weights.sum(-1, keepdims=True)
            kept = self.rounding(weights * self.kept(weights, counter))
            y = kept @ _each_head(v, q.shape[1])
            y = np.where(total == 0, q.dtype.type(0), y / total)
            logs = np.where(total == 0, q.dtype.type(np.inf), largest + np.log(total))
        return np.ascontiguousarray(y.swapaxes(1, 2)), np.asarray(logs[..., 0])

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        q, k, v, *rest = inputs
        (y, logs), (dy, dlogs) = outputs, grads
        dy = f.zeros_like(y) if dy is None else dy
        delta = _swapped(f, f.sum(dy * y, axis=3))
        delta = delta if dlogs is None else delta - dlogs
        op = AttentionGrad(**{x.name: getattr(self, x.name) for x in fields(self)})
        dq, dk, dv = f.emit_all(op, q, k, v, dy, logs, delta, *rest)
        parts: list[Tensor | None] = [_swapped(f, dx) for dx in (dq, dk, dv)]
        parts += [None] * len(rest)
        mask = self.operands(inputs).get("mask")
        if mask is not None and mask.dtype != "bool":
            parts[3] = self._mask_grad(f, inputs, dy, logs, delta)
        return parts

    def _mask_grad(
        self, f: Vocabulary, inputs: Tensors, dy: Tensor, logs: Tensor, delta: Tensor
    ) -> Tensor:
        """[n, h, t, u], in memory as a whole: computed only where something wants it."""
        q, k, v, mask, counter = _named(self, inputs)
        k, v = (_for_each_head(f, x, q.shape[1]) for x in (k, v))
        dweights = f.matmul(f.permute_dims(dy, (0, 2, 1, 3)), f.matrix_transpose(v))
        weights = self.weights(f, q, k, mask, logs)
        return weights * (self.dropped(f, dweights, counter) - f.expand_dims(delta, 3))


@dataclass(frozen=True)
class AttentionGrad(_Attention):
    """dq[n, t, h, e], dk[n, u, g, e] and dv[n, u, g, d] of an attention, from dy[n, t, h, d].

    The inputs are q, k, v, dy, l[n, h, t], delta[n, h, t], and mask and counter as in the op
    itself. With w[n, h, t, u] = exp(q k^T * scale + mask - l) and dw = w (kept dy v^T - delta), dq
    = dw k * scale, dk = sum over the heads of dw^T q * scale, and dv = sum over the heads of (kept
    w)^T dy, where kept is the factor of dropout. `delta` is the sum of dy y over d, less the
    gradient of l. With `rounded`, dw and kept w are rounded to that dtype before they are
    multiplied.
    """

    name: ClassVar[str] = "attention_grad"
    joined_axis: ClassVar[int] = 2
    own_factors: ClassVar[slice] = slice(4)
    roles: ClassVar[tuple[str, ...]] = ("q", "k", "v", "dy", "logs", "delta")
    products: ClassVar[tuple[int, int]] = (4, 3)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        q, k, v, mask, _ = _named(self, inputs)
        n, h, g, t, u, e, d = self.check(q, k, v, mask)
        dy, logs, delta = inputs[3:6]
        assert dy.shape == (n, t, h, d) and logs.shape == delta.shape == (n, h, t), inputs
        shapes = ((n, t, h, e), (n, u, g, e), (n, u, g, d))
        return tuple(Type(shape, q.dtype) for shape in shapes)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        q, k, v, mask, counter = _named(self, inputs)
        dy, logs, delta = inputs[3:6]
        heads = (q.shape[0], k.shape[1], q.shape[1] // k.shape[1])
        scale = q.dtype.type(self.scale)
        with np.errstate(all="ignore"):
            weights = np.exp(self.scores(q, k, mask) - logs[..., None])
            kept = self.kept(weights, counter)
            dy = dy.swapaxes(1, 2)
            dweights = kept * (dy @ _each_head(v, q.shape[1]).swapaxes(2, 3))
            dweights = self.rounding(weights * (dweights - delta[..., None]))
            dq = dweights @ _each_head(k, q.shape[1]) * scale
            dk = dweights.swapaxes(2, 3) @ q * scale
            dv = self.rounding(kept * weights).swapaxes(2, 3) @ dy
        dk, dv = (x.reshape(*heads, *x.shape[2:]).sum(2, dtype=x.dtype) for x in (dk, dv))
        return tuple(np.ascontiguousarray(x.swapaxes(1, 2)) for x in (dq, dk, dv))

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """With all weights [n, h, t, u] in memory: second gradients are rare."""
        q, k, v, mask, counter = _named(self, inputs)
        h, g = q.shape[1], k.shape[1]
        k, v = (_for_each_head(f, x, h) for x in (k, v))
        dy, logs, delta = _swapped(f, inputs[3]), *inputs[4:6]
        given = [f.zeros_like(x) if d is None else d for x, d in zip(outputs, grads, strict=True)]
        ddq, ddk, ddv = (_for_each_head(f, _swapped(f, d), h) for d in given)

        weights = self.weights(f, q, k, mask, logs)
        seen = self.dropped(f, dy @ f.matrix_transpose(v), counter) - f.expand_dims(delta, 3)
        dscores = weights * seen
        slope = (ddq @ f.matrix_transpose(k) + q @ f.matrix_transpose(ddk)) * self.scale
        reach = self.dropped(f, dy @ f.matrix_transpose(ddv), counter)
        back = weights * (slope * seen + reach)
        pull = self.dropped(f, weights * slope, counter)

        parts: list[Tensor | None] = [
            (back @ k + dscores @ ddk) * self.scale,
            _of_groups(f, f.matrix_transpose(back) @ q + f.matrix_transpose(dscores) @ ddq, g)
            * self.scale,
            _of_groups(f, f.matrix_transpose(pull) @ dy, g),
            _swapped(f, pull @ v + self.dropped(f, weights, counter) @ ddv),
            -f.sum(back, axis=3),
            -f.sum(weights * slope, axis=3),
        ]
        parts += [None] * (len(inputs) - len(parts))
        if mask is not None and mask.dtype != "bool":
            parts[6] = back
        return parts


def _named(op: _Attention, inputs: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
    """q, k, v, mask and counter; None for those that are not there."""
    found = op.operands(inputs)
    q, k, v, mask, counter = (found.get(name) for name in ("q", "k", "v", "mask", "counter"))
    return q, k, v, mask, counter


def _swapped(f: Vocabulary, x: Tensor) -> Tensor:
    """[n, a, b, ...] as [n, b, a, ...]: the same memory where there is one head or place."""
    n, a, b, *rest = x.shape
    if 1 in (a, b):
        return f.reshape(x, (n, b, a, *rest))
    return f.permute_dims(x, (0, 2, 1, *range(3, x.ndim)))


def _for_each_head(f: Vocabulary, x: Tensor, heads: int) -> Tensor:
    """The heads of key or value, each as often as queries read it: [n, h, u, ...]."""
    return x if x.shape[1] == heads else f.repeat(x, heads // x.shape[1], axis=1)


def _of_groups(f: Vocabulary, x: Tensor, groups: int) -> Tensor:
    """x [n, h, ...] summed over the heads that share a key: [n, g, ...]."""
    n, h, *rest = x.shape
    return x if h == groups else f.sum(f.reshape(x, (n, groups, h // groups, *rest)), axis=2)


def _each_head(x: Array, heads: int) -> Array:
    """The heads of key or value, each as often as queries read it: [n, h, u, ...]."""
    return x if x.shape[1] == heads else np.repeat(x, heads // x.shape[1], axis=1)
