"""Steps of recurrent layers and of their gradients.

The formulas work on traced tensors and on PyTorch's, with `m` as the module of functions. x is [t,
n, in], states are [n, h], weights and gates as in PyTorch. A layer keeps for its gradient what the
steps computed: the activated gates, and for an LSTM the cells. Steps have only the recurrent
product: the products with the inputs come before the loop, and the gradients of weights after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Scan = Callable[..., tuple[Any, Any]]
"""As `functions.scan`: a function of carry and element, the first carry, elements, reverse."""


@dataclass(frozen=True)
class Layer:
    """One direction of one layer. `kind` is "lstm", "gru", "tanh" or "relu"."""

    m: Any
    scan: Scan
    kind: str
    biased: bool
    reverse: bool

    def forward(self, x: Any, state: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """[y, the last states, what is kept]."""
        w_ih, w_hh, b_ih, b_hh, w_hr = self._named(weights)
        of_x = x @ w_ih.T
        if self.biased:
            of_x = of_x + (b_ih if self.kind == "gru" else b_ih + b_hh)

        def step(state: Any, z: Any) -> Any:
            of_h = state[0] @ w_hh.T
            if self.kind == "gru":
                return self._gru(state[0], z, of_h + b_hh if self.biased else of_h)
            if self.kind == "lstm":
                return self._lstm(state[1], z + of_h, w_hr)
            y = self.m.tanh(z + of_h) if self.kind == "tanh" else self.m.relu(z + of_h)
            return (y,), (y,)

        last, (y, *kept) = self.scan(step, tuple(state), of_x, self.reverse)
        return [y, *last, *kept]

    def _lstm(self, c: Any, z: Any, w_hr: Any) -> Any:
        size = c.shape[-1]
        i, f, o = (self.m.sigmoid(z[..., k * size : (k + 1) * size]) for k in (0, 1, 3))
        g = self.m.tanh(z[..., 2 * size : 3 * size])
        c = f * c + i * g
        h = o * self.m.tanh(c)
        h = h if w_hr is None else h @ w_hr.T
        return (h, c), (h, i, f, g, o, c)

    def _gru(self, h: Any, of_x: Any, of_h: Any) -> Any:
        size = h.shape[-1]
        gates = of_x[..., : 2 * size] + of_h[..., : 2 * size]
        r, z = self.m.sigmoid(gates[..., :size]), self.m.sigmoid(gates[..., size:])
        inner = of_h[..., 2 * size :]
        n = self.m.tanh(of_x[..., 2 * size :] + r * inner)
        h = (1 - z) * n + z * h
        return (h,), (h, r, z, n, inner)

    def backward(
        self,
        grads: Sequence[Any],
        x: Any,
        state: Sequence[Any],
        weights: Sequence[Any],
        results: Sequence[Any],
    ) -> list[Any]:
        """Return the gradients of x, states and weights, from those of y and the last states.

        `results` is what `forward` returned.
        """
        w_ih, w_hh, *_, w_hr = self._named(weights)
        count = len(state)
        y, kept = results[0], tuple(results[1 + count :])
        h_before = self._before(state[0], y)
        before = (self._before(state[1], kept[-1]),) if self.kind == "lstm" else ()
        of_gru = (h_before,) if self.kind == "gru" else ()

        def step(carry: Any, element: Any) -> Any:
            dy, y, *rest = element
            dh = dy + carry[0]
            if self.kind == "lstm":
                return self._lstm_back(dh, carry[1], rest, w_hh, w_hr)
            if self.kind == "gru":
                return self._gru_back(dh, rest, w_hh)
            slope = 1 - y * y if self.kind == "tanh" else self.m.where(y > 0, 1.0, 0.0)
            dz = dh * slope
            return (dz @ w_hh,), (dz, dz, dh)

        elements = (grads[0], y, *kept, *before, *of_gru)
        first, (of_x, of_h, dh) = self.scan(step, tuple(grads[1:]), elements, not self.reverse)
        found = [of_x @ w_ih, *first, _product(of_x, x), _product(of_h, h_before)]
        if self.biased:
            found += [of_x.sum((0, 1)), of_h.sum((0, 1))]
        if w_hr is not None:
            found.append(_product(dh, kept[3] * self.m.tanh(kept[4])))
        return found

    def _lstm_back(self, dh: Any, dc: Any, kept: Sequence[Any], w_hh: Any, w_hr: Any) -> Any:
        i, f, g, o, c, before = kept
        inner, t = dh if w_hr is None else dh @ w_hr, self.m.tanh(c)
        dc = dc + inner * o * (1 - t * t)
        parts = [
            dc * g * i * (1 - i),
            dc * before * f * (1 - f),
            dc * i * (1 - g * g),
            inner * t * o * (1 - o),
        ]
        dz = self.m.concat(parts, -1)
        return (dz @ w_hh, dc * f), (dz, dz, dh)

    def _gru_back(self, dh: Any, kept: Sequence[Any], w_hh: Any) -> Any:
        r, z, n, inner, before = kept
        dn = dh * (1 - z) * (1 - n * n)
        dz = dh * (before - n) * z * (1 - z)
        dr = dn * inner * r * (1 - r)
        of_h = self.m.concat([dr, dz, dn * r], -1)
        return (dh * z + of_h @ w_hh,), (self.m.concat([dr, dz, dn], -1), of_h, dh)

    def _before(self, first: Any, values: Any) -> Any:
        """What each step began with: the first state, then what the step before made."""
        parts = [values[1:], first[None]] if self.reverse else [first[None], values[:-1]]
        return self.m.concat(parts, 0)

    def _named(self, weights: Sequence[Any]) -> tuple[Any, ...]:
        """(w_ih, w_hh, b_ih, b_hh, w_hr), None for those that there are not."""
        biases = weights[2:4] if self.biased else (None, None)
        rest = weights[4 if self.biased else 2 :]
        return (*weights[:2], *biases, rest[0] if rest else None)


def _product(rows: Any, columns: Any) -> Any:
    """rows [t, n, a], columns [t, n, b]: the sum over all steps of their products, [a, b]."""
    t, n = rows.shape[:2]
    return rows.reshape((t * n, rows.shape[2])).T @ columns.reshape((t * n, columns.shape[2]))
