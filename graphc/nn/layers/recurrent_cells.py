"""One step of recurrent layers."""

from __future__ import annotations

from typing import Any, ClassVar

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class _RecurrentCell(Module):
    """Base of the cells, with parameters named as in PyTorch.

    weight_ih is f32 [gates * hidden_size, input_size], weight_hh f32 [gates * hidden_size,
    hidden_size], and bias_ih and bias_hh f32 [gates * hidden_size].
    """

    gates: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        layer = type(self).__name__
        self.input_size = check.integer(layer, "input_size", input_size)
        self.hidden_size = check.integer(layer, "hidden_size", hidden_size)
        rows = self.gates * self.hidden_size
        self.weight_ih = initialize.uniform((rows, self.input_size), self.hidden_size)
        self.weight_hh = initialize.uniform((rows, self.hidden_size), self.hidden_size)
        self.bias_ih = initialize.uniform((rows,), self.hidden_size) if bias else None
        self.bias_hh = initialize.uniform((rows,), self.hidden_size) if bias else None

    @property
    def weights(self) -> tuple[Any, ...]:
        """In the order of the functions' arguments."""
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _zeros(self, x: Tensor) -> Tensor:
        return functions.zeros((*x.shape[:-1], self.hidden_size), x.dtype)

    def describe(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + (
            ", bias=False" if self.bias_ih is None else ""
        )


class RNNCell(_RecurrentCell):
    """One step of an `RNN`: from x [n, input_size] and h [n, hidden_size] to the new h.

    Args:
        input_size: The number of input features.
        hidden_size: The number of features of h, which is zero unless given.
        bias: Whether there are biases.
        nonlinearity: "tanh" or "relu".

    Example:
        >>> graphc.trace(nn.RNNCell(3, 4), graphc.spec((2, 3))).outputs[0].type.shape
        (2, 4)
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        self.nonlinearity = _nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias)

    def forward(self, x: Tensor, hx: Any = None) -> Tensor:
        h = self._zeros(x) if hx is None else hx
        return _simple_cell(self.nonlinearity, x, h, *self.weights)


class LSTMCell(_RecurrentCell):
    """One step of an `LSTM`: from x [n, input_size] and (h, c) to the new (h, c).

    Args:
        input_size: The number of input features.
        hidden_size: The number of features of h and c, which are zero unless given.
        bias: Whether there are biases.

    Example:
        >>> graphc.trace(nn.LSTMCell(3, 4), graphc.spec((2, 3))).outputs[0].type.shape
        (2, 4)
    """

    gates = 4

    def forward(self, x: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        state = (self._zeros(x), self._zeros(x)) if hx is None else hx
        return functions.lstm_cell(x, state, *self.weights)


class GRUCell(_RecurrentCell):
    """One step of a `GRU`: from x [n, input_size] and h [n, hidden_size] to the new h.

    Args:
        input_size: The number of input features.
        hidden_size: The number of features of h, which is zero unless given.
        bias: Whether there are biases.

    Example:
        >>> graphc.trace(nn.GRUCell(3, 4), graphc.spec((2, 3))).outputs[0].type.shape
        (2, 4)
    """

    gates = 3

    def forward(self, x: Tensor, hx: Any = None) -> Tensor:
        return functions.gru_cell(x, self._zeros(x) if hx is None else hx, *self.weights)


def _nonlinearity(layer: str, value: Any) -> str:
    if value not in ("tanh", "relu"):
        check.fail(f"{layer}: nonlinearity expected 'tanh' or 'relu', got {value!r}")
    return str(value)


def _simple_cell(nonlinearity: str, x: Tensor, h: Any, *weights: Any) -> Tensor:
    cell = functions.rnn_tanh_cell if nonlinearity == "tanh" else functions.rnn_relu_cell
    return cell(x, h, *weights)
