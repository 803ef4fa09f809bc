"""Recurrent layers: loops over time, compiled once for any length."""

from __future__ import annotations

from typing import Any, ClassVar

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.layers.recurrent_cells import _nonlinearity, _simple_cell
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.trace import Tensor

State = tuple[Tensor, ...]


class _Recurrent(Module):
    """Base of the recurrent layers: layers and directions, parameters named as in PyTorch.

    Of layer k: weight_ih_l{k} f32 [gates * hidden_size, features] and weight_hh_l{k} f32 [gates *
    hidden_size, h]; with `bias`, bias_ih_l{k} and bias_hh_l{k} f32 [gates * hidden_size]. Names of
    the other direction end in `_reverse`. h is hidden_size, or proj_size.
    """

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        proj_size: int = 0,
    ) -> None:
        layer = type(self).__name__
        self.input_size = check.integer(layer, "input_size", input_size)
        self.hidden_size = check.integer(layer, "hidden_size", hidden_size)
        self.num_layers = check.integer(layer, "num_layers", num_layers)
        self.proj_size = check.integer(layer, "proj_size", proj_size, at_least=0)
        if self.proj_size >= self.hidden_size:
            check.fail(f"{layer}: proj_size expected less than {hidden_size}, got {proj_size}")
        self.bias, self.batch_first = bool(bias), bool(batch_first)
        self.dropout = check.number(layer, "dropout", dropout, 0.0, 1.0)
        self.bidirectional = bool(bidirectional)
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
        features = self.input_size
        for number in range(self.num_layers):
            for suffix in self.suffixes:
                self._make(f"l{number}{suffix}", features)
            features = self.output_size * len(self.suffixes)

    @property
    def output_size(self) -> int:
        """The number of features of h in one direction."""
        return self.proj_size or self.hidden_size

    def _make(self, place: str, features: int) -> None:
        rows, hidden = self.gates * self.hidden_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]]
        shapes = {"weight_ih": (rows, features), "weight_hh": (rows, self.output_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, hidden)
        for name, shape in shapes.items():
            setattr(self, f"{name}_{place}", initialize.uniform(shape, hidden))

    def _weight(self, name: str, place: str) -> Parameter | None:
        return getattr(self, f"{name}_{place}", None)

    def step(self, x: Tensor, state: State, place: str) -> State:
        """Return the new state from one step of the input, with the weights of `place`."""
        raise NotImplementedError

    def forward(self, x: Tensor, hx: Any = None, lengths: Any = None) -> tuple[Tensor, Any]:
        """Run all steps of all layers.

        Args:
            x: [t, n, input_size], [n, t, input_size] if `batch_first`, or [t, input_size] without a
                batch.
            hx: The first state [directions * num_layers, n, h], for an LSTM a pair (h, c); zeros if
                None.
            lengths: The number of steps of each sequence in a padded batch, i32 or i64 [n]. After
                them the result is zero and the state stays; the backward pass begins there.

        Returns:
            The states h of the last layer at each step, of both directions side by side, with the
            leading axes of `x`; and the last state, in the shape of `hx`.

        Raises:
            GraphError: The shapes do not fit.
        """
        layer = type(self).__name__
        check.axes(layer, x, "t, features", "t, n, features")
        if x.shape[-1] != self.input_size:
            check.fail(f"{layer}: x expected {self.input_size} features, got {x.value.type}")
        batched = x.ndim == 3
        if not batched:
            x = functions.expand_dims(x, 1)
        elif self.batch_first:
            x = functions.permute_dims(x, (1, 0, 2))
        initial = self._initial(x, hx, batched)
        alive = None if lengths is None else self._alive(x, lengths)
        last: list[State] = []
        for number in range(self.num_layers):
            if number and self.dropout:
                x = functions.dropout(x, self.dropout, self.training)
            sides = []
            for suffix in self.suffixes:
                state = initial[len(last)]
                y, end = self._run(x, state, f"l{number}{suffix}", alive)
                sides.append(y)
                last.append(end)
            x = sides[0] if len(sides) == 1 else functions.concat(sides, axis=-1)
        ends = tuple(functions.stack(list(parts)) for parts in zip(*last, strict=True))
        if not batched:
            x, ends = functions.squeeze(x, 1), tuple(functions.squeeze(e, 1) for e in ends)
        elif self.batch_first:
            x = functions.permute_dims(x, (1, 0, 2))
        return x, ends if self.states > 1 else ends[0]

    def _run(
        self, x: Tensor, state: State, place: str, alive: Tensor | None
    ) -> tuple[Tensor, State]:
        """All steps of one layer in one direction."""

        def step(state: State, element: Any) -> tuple[State, Tensor]:
            if alive is None:
                new = self.step(element, state, place)
                return new, new[0]
            part, keep = element
            new = self.step(part, state, place)
            y = functions.where(keep, new[0], 0.0)
            return tuple(functions.where(keep, n, s) for n, s in zip(new, state, strict=True)), y

        elements = x if alive is None else (x, alive)
        end, y = functions.scan(step, state, elements, reverse=place.endswith("_reverse"))
        return y, end

    def _initial(self, x: Tensor, hx: Any, batched: bool) -> list[State]:
        """The initial state of each layer and direction."""
        count = self.num_layers * len(self.suffixes)
        sizes = (self.output_size, self.hidden_size)[: self.states]
        shapes = [(count, x.shape[1], size) for size in sizes]
        if hx is None:
            zeros = tuple(functions.zeros(shape[1:], x.dtype) for shape in shapes)
            return [zeros] * count
        given = hx if self.states > 1 else (hx,)
        if not isinstance(given, tuple | list) or len(given) != self.states:
            check.fail(f"{type(self).__name__}: hx expected (h, c), got {type(hx).__name__}")
        states = [functions.as_tensor(s) for s in given]
        if not batched:
            states = [functions.expand_dims(s, 1) for s in states]
        for name, state, shape in zip("hc", states, shapes, strict=False):
            if state.shape != shape:
                shown = list(shape if batched else (shape[0], shape[2]))
                check.fail(
                    f"{type(self).__name__}: the initial {name} expected {shown}, "
                    f"got {functions.as_tensor(given['hc'.index(name)]).value.type}"
                )
        return [tuple(s[k] for s in states) for k in range(count)]

    def _alive(self, x: Tensor, lengths: Any) -> Tensor:
        """bool[t, n, 1]: whether step t lies within the sequence."""
        ends = functions.as_tensor(lengths)
        if ends.shape != (x.shape[1],) or ends.dtype not in ("i32", "i64"):
            check.fail(
                f"{type(self).__name__}: lengths expected integers [{x.shape[1]}], "
                f"got {ends.value.type}"
            )
        steps = functions.arange(x.shape[0], dtype=ends.dtype)
        inside = functions.less(functions.expand_dims(steps, 1), ends)
        return functions.expand_dims(inside, 2)

    def describe(self) -> str:
        parts = [str(self.input_size), str(self.hidden_size)]
        if self.num_layers > 1:
            parts.append(f"num_layers={self.num_layers}")
        for name in ("batch_first", "bidirectional", "dropout", "proj_size"):
            if getattr(self, name):
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts if self.bias else [*parts, "bias=False"])


class RNN(_Recurrent):
    """Elman network over time: h' = tanh(W @ x + b + R @ h + d), or relu.

    Called as layer(x, hx=None, lengths=None), see `forward`.

    Args:
        input_size: The number of input features.
        hidden_size: The number of features of h.
        num_layers: The number of layers.
        nonlinearity: "tanh" or "relu".
        bias: Whether there are biases.
        batch_first: Whether x is [n, t, input_size] instead of [t, n, input_size].
        dropout: The probability of dropout between layers, in training.
        bidirectional: Whether a second pass runs from the end to the beginning.

    Attributes:
        weight_ih_l0: f32 [hidden_size, input_size]; `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0` and
            other layers, as in PyTorch.

    Example:
        >>> graphc.trace(nn.RNN(3, 4), graphc.spec((7, 2, 3))).outputs[0].type.shape
        (7, 2, 4)
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        self.nonlinearity = _nonlinearity("RNN", nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )

    def step(self, x: Tensor, state: State, place: str) -> State:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return (_simple_cell(self.nonlinearity, x, state[0], *_of(self, names, place)),)


class LSTM(_Recurrent):
    """Long short-term memory over time: `graphc.lstm_cell` in a loop.

    Called as layer(x, hx=None, lengths=None), see `forward`; states are pairs (h, c).

    Args:
        input_size: The number of input features.
        hidden_size: The number of features of c, and of h without a projection.
        num_layers: The number of layers.
        bias: Whether there are biases.
        batch_first: Whether x is [n, t, input_size] instead of [t, n, input_size].
        dropout: The probability of dropout between layers, in training.
        bidirectional: Whether a second pass runs from the end to the beginning.
        proj_size: If above 0, h is projected to so many features.

    Attributes:
        weight_ih_l0: f32 [4 * hidden_size, input_size]; `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
            `weight_hr_l0` f32 [proj_size, hidden_size] and other layers, as in PyTorch.

    Example:
        >>> graphc.trace(nn.LSTM(3, 4), graphc.spec((7, 2, 3))).outputs[0].type.shape
        (7, 2, 4)
    """

    gates, states = 4, 2

    def step(self, x: Tensor, state: State, place: str) -> State:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        h, c = functions.lstm_cell(x, (state[0], state[1]), *_of(self, names, place))
        if self.proj_size:
            h = functions.linear(h, getattr(self, f"weight_hr_{place}"))
        return h, c


class GRU(_Recurrent):
    """Gated recurrent unit over time: `graphc.gru_cell` in a loop.

    Called as layer(x, hx=None, lengths=None), see `forward`.

    Args:
        input_size: The number of input features.
        hidden_size: The number of features of h.
        num_layers: The number of layers.
        bias: Whether there are biases.
        batch_first: Whether x is [n, t, input_size] instead of [t, n, input_size].
        dropout: The probability of dropout between layers, in training.
        bidirectional: Whether a second pass runs from the end to the beginning.

    Attributes:
        weight_ih_l0: f32 [3 * hidden_size, input_size]; `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`
            and other layers, as in PyTorch.

    Example:
        >>> graphc.trace(nn.GRU(3, 4), graphc.spec((7, 2, 3))).outputs[0].type.shape
        (7, 2, 4)
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )

    def step(self, x: Tensor, state: State, place: str) -> State:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return (functions.gru_cell(x, state[0], *_of(self, names, place)),)


def _of(layer: _Recurrent, names: tuple[str, ...], place: str) -> tuple[Any, ...]:
    return tuple(layer._weight(name, place) for name in names)
