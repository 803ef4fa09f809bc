"""One step of recurrent layers, by the names and in the gate order of PyTorch.

In a `scan`, the products with the inputs are moved out of the loop, and the gates of a step are
computed with the recurrent product.
"""

from __future__ import annotations

from graphc.functions.array.elementwise.elementwise import (
    add,
    multiply,
    relu,
    sigmoid,
    subtract,
    tanh,
)
from graphc.functions.array.shape.rearrange import split
from graphc.functions.array.tensors import as_tensor, error
from graphc.functions.network.contraction import linear
from graphc.ir import TensorLike
from graphc.trace import Tensor


def rnn_tanh_cell(
    x: TensorLike,
    h: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
) -> Tensor:
    """Compute one step of an Elman network: tanh(w_ih @ x + b_ih + w_hh @ h + b_hh).

    Args:
        x: The input [..., in].
        h: The state [..., h].
        w_ih: The weight of the input [h, in].
        w_hh: The weight of the state [h, h].
        b_ih: The bias of the input [h].
        b_hh: The bias of the state [h].

    Returns:
        The new state [..., h].

    Example:
        >>> graphc.compile(lambda: graphc.rnn_tanh_cell([1.0], [0.0], [[0.0]], [[1.0]]))()
        array([0.], dtype=float32)
    """
    return tanh(_gates("rnn_tanh_cell", 1, x, h, w_ih, w_hh, b_ih, b_hh))


def rnn_relu_cell(
    x: TensorLike,
    h: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
) -> Tensor:
    """Compute one step of an Elman network: relu(w_ih @ x + b_ih + w_hh @ h + b_hh).

    Args:
        x: The input [..., in].
        h: The state [..., h].
        w_ih: The weight of the input [h, in].
        w_hh: The weight of the state [h, h].
        b_ih: The bias of the input [h].
        b_hh: The bias of the state [h].

    Returns:
        The new state [..., h].

    Example:
        >>> graphc.compile(lambda: graphc.rnn_relu_cell([1.0], [2.0], [[3.0]], [[1.0]]))()
        array([5.], dtype=float32)
    """
    return relu(_gates("rnn_relu_cell", 1, x, h, w_ih, w_hh, b_ih, b_hh))


def lstm_cell(
    x: TensorLike,
    state: tuple[TensorLike, TensorLike],
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute one step of a long short-term memory.

    With the gates i, f, g, o, the rows of w_ih @ x + b_ih + w_hh @ h + b_hh, the new state is c' =
    sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c').

    Args:
        x: The input [..., in].
        state: The state (h, c): [..., h] each; h may have fewer features than c, those of a
            projection.
        w_ih: The weight of the input [4 * h, in].
        w_hh: The weight of the state [4 * h, h].
        b_ih: The bias of the input [4 * h].
        b_hh: The bias of the state [4 * h].

    Returns:
        The new state (h', c').

    Raises:
        GraphError: The state is no pair or has another size.

    Example:
        >>> w_ih, w_hh = np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)
        >>> graphc.compile(lambda: graphc.lstm_cell([1.0], ([0.0], [2.0]), w_ih, w_hh)[1])()
        array([1.], dtype=float32)
    """
    if not isinstance(state, tuple | list) or len(state) != 2:
        raise error(f"lstm_cell: expected the state (h, c), got {type(state).__name__}")
    h, c = map(as_tensor, state)
    z = _gates("lstm_cell", 4, x, h, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = split(z, z.shape[-1] // 4, axis=-1)
    if c.shape[-1:] != i.shape[-1:]:
        raise error(f"lstm_cell: c expected {i.shape[-1]} features, got {c.value.type}")
    new = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
    return multiply(sigmoid(o), tanh(new)), new


def gru_cell(
    x: TensorLike,
    h: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
) -> Tensor:
    """Compute one step of a gated recurrent unit.

    r and z are the sigmoids of the first rows of w_ih @ x + b_ih + w_hh @ h + b_hh. With W, b, U
    and d, the last rows of w_ih, b_ih, w_hh and b_hh, n = tanh(W @ x + b + r * (U @ h + d)) and the
    new state is (1 - z) * n + z * h.

    Args:
        x: The input [..., in].
        h: The state [..., h].
        w_ih: The weight of the input [3 * h, in].
        w_hh: The weight of the state [3 * h, h].
        b_ih: The bias of the input [3 * h].
        b_hh: The bias of the state [3 * h].

    Returns:
        The new state [..., h].

    Example:
        >>> w_ih, w_hh = np.zeros((3, 1), np.float32), np.zeros((3, 1), np.float32)
        >>> graphc.compile(lambda: graphc.gru_cell([1.0], [2.0], w_ih, w_hh))()
        array([1.], dtype=float32)
    """
    before = as_tensor(h)
    _check("gru_cell", 3, as_tensor(x), before, as_tensor(w_ih), as_tensor(w_hh))
    of_x, of_h = linear(x, w_ih, b_ih), linear(before, w_hh, b_hh)
    extent = of_x.shape[-1] // 3
    x_r, x_z, x_n = split(of_x, extent, axis=-1)
    h_r, h_z, h_n = split(of_h, extent, axis=-1)
    z = sigmoid(add(x_z, h_z))
    n = tanh(add(x_n, multiply(sigmoid(add(x_r, h_r)), h_n)))
    return add(multiply(subtract(1, z), n), multiply(z, before))


def _gates(
    cell: str,
    gates: int,
    x: TensorLike,
    h: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None,
    b_hh: TensorLike | None,
) -> Tensor:
    """w_ih x + b_ih + w_hh h + b_hh."""
    x, h, w_ih, w_hh = map(as_tensor, (x, h, w_ih, w_hh))
    _check(cell, gates, x, h, w_ih, w_hh)
    bias = b_hh if b_ih is None else b_ih if b_hh is None else add(b_ih, b_hh)
    return add(linear(x, w_ih, bias), linear(h, w_hh))


def _check(cell: str, gates: int, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor) -> None:
    rows = w_hh.shape[0] if w_hh.ndim == 2 else -1
    if w_ih.ndim != 2 or w_ih.shape[0] != rows or rows % gates:
        raise error(
            f"{cell}: expected weights of {gates} times the hidden features, [{gates} * h, in] and "
            f"[{gates} * h, h], got {w_ih.value.type} and {w_hh.value.type}"
        )
    for name, tensor, weight in (("x", x, w_ih), ("h", h, w_hh)):
        if tensor.shape[-1:] != weight.shape[1:]:
            raise error(
                f"{cell}: {name} expected {weight.shape[1]} features for weight "
                f"{weight.value.type}, got {tensor.value.type}"
            )
