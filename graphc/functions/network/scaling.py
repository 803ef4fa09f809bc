"""Division by norms of vectors and of neighbouring channels, as in torch.nn.functional."""

from __future__ import annotations

from graphc.functions.array.elementwise.elementwise import (
    add,
    divide,
    maximum,
    multiply,
    pow,
    square,
)
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.reductions import norm
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.tensors import axis_of, error, floating
from graphc.ir import TensorLike
from graphc.trace import Tensor


@in_float32
def normalize(x: TensorLike, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """Divide by the norm along an axis.

    Args:
        x: The input.
        p: The order of the norm.
        axis: The axis.
        eps: The smallest number to divide by.

    Example:
        >>> graphc.compile(lambda: graphc.normalize([[3.0, 4.0]]))()
        array([[0.6, 0.8]], dtype=float32)
    """
    tensor = floating(x)
    axis_of("normalize", axis, tensor)
    return divide(tensor, maximum(norm(tensor, p, axis, keepdims=True), eps))


@in_float32
def local_response_norm(
    x: TensorLike, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by the mean square over neighbouring channels: x / (k + alpha * mean(x^2))^beta.

    Args:
        x: The input [n, c, ...].
        size: The number of neighbouring channels; those that do not exist count as 0.
        alpha: The factor of the mean.
        beta: The exponent.
        k: Added to the mean.

    Raises:
        GraphError: `x` has fewer than three axes, or `size` is not positive.

    Example:
        >>> graphc.compile(lambda: graphc.local_response_norm([[[2.0]]], 1, 1.0, beta=1.0, k=0.0))()
        array([[[0.5]]], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim < 3 or size < 1:
        raise error(
            "local_response_norm: expected x of 3 axes or more and a positive size, got "
            f"{tensor.value.type} and {size}"
        )
    c = tensor.shape[1]
    rest = (0, 0)
    widths = [rest, (size // 2, (size - 1) // 2), *[rest] * (tensor.ndim - 2)]
    powers = pad(square(tensor), widths)
    total = powers[:, :c]
    for i in range(1, size):
        total = add(total, powers[:, i : i + c])
    return divide(tensor, pow(add(multiply(total, alpha / size), k), beta))
