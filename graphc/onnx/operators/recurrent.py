"""Recurrent layers as loops over time, with ONNX's gate order, peepholes and clipping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc import functions as f
from graphc.onnx.operators.rules import UnsupportedError, operator
from graphc.trace import Tensor

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]
Activation = Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, Callable[[Tensor, float | None, float | None], Tensor]] = {
    "relu": lambda x, a, b: f.relu(x),
    "tanh": lambda x, a, b: f.tanh(x),
    "sigmoid": lambda x, a, b: f.sigmoid(x),
    "affine": lambda x, a, b: f.add(f.multiply(x, _or(a, 1.0)), _or(b, 0.0)),
    "leakyrelu": lambda x, a, b: f.leaky_relu(x, _or(a, 0.01)),
    "thresholdedrelu": lambda x, a, b: f.where(f.greater(x, _or(a, 1.0)), x, 0.0),
    "scaledtanh": lambda x, a, b: f.multiply(f.tanh(f.multiply(x, _or(b, 1.0))), _or(a, 1.0)),
    "hardsigmoid": lambda x, a, b: f.clip(f.add(f.multiply(x, _or(a, 0.2)), _or(b, 0.5)), 0.0, 1.0),
    "elu": lambda x, a, b: f.elu(x, _or(a, 1.0)),
    "softsign": lambda x, a, b: f.softsign(x),
    "softplus": lambda x, a, b: f.softplus(x),
}


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _activations(
    names: Sequence[str] | None,
    alpha: Sequence[float] | None,
    beta: Sequence[float] | None,
    default: Sequence[str],
    direction: str,
    clip: float | None,
) -> list[list[Activation]]:
    """Those of each direction, each after clipping."""
    directions = _directions(direction)
    chosen = [name.lower() for name in names or list(default) * directions]
    unknown = sorted(set(chosen) - set(_ACTIVATIONS))
    if unknown:
        raise UnsupportedError(f"the activations {', '.join(unknown)} are not offered")

    def made(i: int) -> Activation:
        numbers = [v[i] if v and i < len(v) else None for v in (alpha, beta)]

        def activation(x: Tensor) -> Tensor:
            return _ACTIVATIONS[chosen[i]](_clipped(x, clip), *numbers)

        return activation

    made_all = [made(i) for i in range(len(chosen))]
    count = len(default)
    return [made_all[d * count : (d + 1) * count] for d in range(directions)]


def _clipped(x: Tensor, clip: float | None) -> Tensor:
    return x if not clip else f.clip(x, -clip, clip)


def _layer(
    x: Tensor,
    direction: str,
    layout: int,
    lengths: Tensor | None,
    initial: Sequence[Tensor | None],
    hidden: int,
    step_of: Callable[[int], Step],
) -> Any:
    """Return y [t, directions, n, h] and the last states [directions, n, h] of a layer.

    With `layout` the batch comes first.
    """
    if layout:
        x = f.permute_dims(x, (1, 0, 2))
        initial = [None if s is None else f.permute_dims(s, (1, 0, 2)) for s in initial]
    steps, n = x.shape[:2]
    alive = None
    if lengths is not None:
        inside = f.less(np.arange(steps).reshape(-1, 1), f.astype(lengths, "i64"))
        alive = f.expand_dims(inside, 2)
    sides: list[Tensor] = []
    ends: list[State] = []
    directions = 2 if direction == "bidirectional" else 1
    for number in range(directions):
        backwards = direction == "reverse" or number == 1
        state = tuple(
            f.zeros((n, hidden), x.dtype) if s is None else f.select(s, 0, number) for s in initial
        )
        y, end = _run(x, state, step_of(number), alive, backwards)
        sides.append(y)
        ends.append(end)
    y = f.stack(sides, 1)
    last = [f.stack(list(parts), 0) for parts in zip(*ends, strict=True)]
    if layout:
        y = f.permute_dims(y, (2, 0, 1, 3))
        last = [f.permute_dims(s, (1, 0, 2)) for s in last]
    return (y, *last)


def _run(
    x: Tensor, state: State, step: Step, alive: Tensor | None, backwards: bool
) -> tuple[Tensor, State]:
    """All steps in one direction. Behind a sequence's end y is zero and the state stays."""

    def body(state: State, element: Any) -> tuple[State, Tensor]:
        if alive is None:
            new = step(element, state)
            return new, new[0]
        part, keep = element
        new = step(part, state)
        kept = tuple(f.where(keep, a, b) for a, b in zip(new, state, strict=True))
        return kept, f.where(keep, new[0], 0.0)

    elements = x if alive is None else (x, alive)
    end, y = f.scan(body, state, elements, reverse=backwards)
    return y, end


def _weights(
    number: int, w: Tensor, r: Tensor, b: Tensor | None, gates: int
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Those of one direction: [gates * h, in], [gates * h, h] and both biases."""
    bias = None if b is None else f.select(b, 0, number)
    half = 0 if bias is None else bias.shape[0] // 2
    ends = (None, None) if bias is None else (bias[:half], bias[half:])
    return f.select(w, 0, number), f.select(r, 0, number), *ends


def _directions(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


@operator("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    """h' = f(W x + b + R h + d)."""
    numbers = (activation_alpha, activation_beta)
    chosen = _activations(activations, *numbers, ["tanh"], direction, clip)

    def step_of(number: int) -> Step:
        w_ih, w_hh, b_ih, b_hh = _weights(number, w, r, b, 1)

        def step(element: Tensor, state: State) -> State:
            total = f.add(f.linear(element, w_ih, b_ih), f.linear(state[0], w_hh, b_hh))
            return (chosen[number][0](total),)

        return step

    return _layer(x, direction, layout, sequence_lens, [initial_h], r.shape[-1], step_of)


@operator("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    """Gates i, o, f, c; `p` holds the peepholes of i, o and f."""
    names = ["sigmoid", "tanh", "tanh"]
    numbers = (activation_alpha, activation_beta)
    chosen = _activations(activations, *numbers, names, direction, clip)
    size = r.shape[-1]

    def step_of(number: int) -> Step:
        w_ih, w_hh, b_ih, b_hh = _weights(number, w, r, b, 4)
        holes = None if p is None else f.split(f.select(p, 0, number), size, 0)
        gate, inner, outer = chosen[number]

        def step(element: Tensor, state: State) -> State:
            h, c = state
            z = f.add(f.linear(element, w_ih, b_ih), f.linear(h, w_hh, b_hh))
            i, o, forget, new = f.split(z, size, -1)
            if holes is not None:
                i, forget = (
                    f.add(g, f.multiply(q, c)) for g, q in ((i, holes[0]), (forget, holes[2]))
                )
            entered = gate(i)
            kept = f.subtract(1, entered) if input_forget else gate(forget)
            cell = f.add(f.multiply(kept, c), f.multiply(entered, inner(new)))
            if holes is not None:
                o = f.add(o, f.multiply(holes[1], cell))
            return f.multiply(gate(o), outer(cell)), cell

        return step

    states = [initial_h, initial_c]
    return _layer(x, direction, layout, sequence_lens, states, size, step_of)


@operator("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    """Gates z, r, h; the reset acts on R h + d if `linear_before_reset`, else on h."""
    names = ["sigmoid", "tanh"]
    numbers = (activation_alpha, activation_beta)
    chosen = _activations(activations, *numbers, names, direction, clip)
    size = r.shape[-1]

    def step_of(number: int) -> Step:
        w_ih, w_hh, b_ih, b_hh = _weights(number, w, r, b, 3)
        gate, inner = chosen[number]
        last = None if b_hh is None else b_hh[2 * size :]
        first = None if b_hh is None else b_hh[: 2 * size]

        def step(element: Tensor, state: State) -> State:
            (h,) = state
            x_z, x_r, x_h = f.split(f.linear(element, w_ih, b_ih), size, -1)
            if linear_before_reset:
                h_z, h_r, h_h = f.split(f.linear(h, w_hh, b_hh), size, -1)
                reset = f.multiply(gate(f.add(x_r, h_r)), h_h)
            else:
                h_z, h_r = f.split(f.linear(h, w_hh[: 2 * size], first), size, -1)
                reset = f.linear(f.multiply(gate(f.add(x_r, h_r)), h), w_hh[2 * size :], last)
            z = gate(f.add(x_z, h_z))
            new = inner(f.add(x_h, reset))
            return (f.add(f.multiply(f.subtract(1, z), new), f.multiply(z, h)),)

        return step

    return _layer(x, direction, layout, sequence_lens, [initial_h], size, step_of)
