"""Norms of the gradients of single samples without the gradients.

The gradient of a weight is a product X^T D: of p rows of inputs X [p, m] and gradients D [p, k] of
the outputs. Its squared norm is the sum of the elements of X X^T times those of D D^T, two matrices
[p, p] (Goodfellow, 2015, for p = 1; Li et al., "Large Language Models Can Be Strong Differentially
Private Learners", 2022). Both sums are exact up to rounding, which is relative to the sum of the
absolute values of the terms, not to the norm.

In a convolution the rows of X are the windows of the output's pixels. A product of two windows is a
sum over the taps of products of pixels, so that X X^T is made of the products of all pairs of
pixels of the input, by sums along both axes:

    G[h, w, h', w'] = sum over c of x[c, h, w] x[c, h', w']
    T[h, q, h', q'] = sum over s of G[h, q + s, h', q' + s]
    X X^T[p, q, p', q'] = sum over r of T[p + r, q, p' + r, q']
"""

from __future__ import annotations

from graphc import functions, ops
from graphc.trace import Tensor

Shape = tuple[int, ...]

BYTES = 16 << 20
"""The most bytes of the products of all pairs of pixels, of all samples."""
SUM = 4
"""What an element of a sum of shifted products costs, in products of a matrix product."""
DIRECT = 3
"""What a product of the gradient of one sample's filter costs, which is computed by groups."""


def product_squares(x: Tensor, d: Tensor) -> Tensor:
    """Return the squared norms of x @ d of each sample.

    Args:
        x: Inputs, f32 [n, m, p].
        d: Gradients of the outputs, f32 [n, p, k].
    """
    left, right = functions.matrix_transpose(x) @ x, d @ functions.matrix_transpose(d)
    return functions.maximum(functions.sum(left * right, (1, 2)), 0)


def is_by_pixels(op: ops.Conv2dWgrad, x: Shape, d: Shape, samples: int) -> bool:
    """Return whether products of pixels cost less than the gradients of the samples' filters.

    The gradient of all samples is computed besides: the others would be kept for it.

    Args:
        op: The gradient of a filter.
        x: The shape of the images of a sample, [1, c, h, w].
        d: The shape of the gradients of its outputs, [1, k, p, q].
        samples: The number of samples.
    """
    (h, w), (c, (k, p, q), (r, s)) = _padded(op, x), (x[1], d[1:], op.kernel_size)
    if x[0] != 1 or samples * op.groups * (h * w) ** 2 * 4 > BYTES:
        return False
    sums = op.groups * ((h * q) ** 2 * s + (p * q) ** 2 * r)
    products = (h * w) ** 2 * c + (p * q) ** 2 * k
    direct = k * (c // op.groups) * r * s * p * q
    return products + SUM * sums < (DIRECT - 1) * direct


def convolution_squares(op: ops.Conv2dWgrad, x: Tensor, d: Tensor) -> Tensor:
    """Return the squared norms of the gradients of a filter of each sample.

    Args:
        op: The gradient of a filter.
        x: Images, f32 [n, 1, c, h, w].
        d: Gradients of the outputs, f32 [n, 1, k, p, q].
    """
    n, groups, (p, q) = x.shape[0], op.groups, d.shape[3:]
    (top, left), (h, w) = op.padding, _padded(op, x.shape[1:])
    if top or left:
        x = functions.pad(x, ((0, 0), (0, 0), (0, 0), (top, top), (left, left)))
    pixels = _products(functions.reshape(x, (n, groups, -1, h * w)))
    total = functions.reshape(pixels, (n, groups, h, w, h, w))
    for axis, outputs in ((3, q), (2, p)):
        total = _over_taps(op, total, axis, outputs)
    slopes = functions.reshape(
        _products(functions.reshape(d, (n, groups, -1, p * q))), (n, groups, p, q, p, q)
    )
    return functions.maximum(functions.sum(total * slopes, tuple(range(1, 6))), 0)


def _over_taps(op: ops.Conv2dWgrad, pairs: Tensor, axis: int, outputs: int) -> Tensor:
    """The sum over the taps along rows (axis 2) or columns (axis 3) of pairs of pixels."""
    way = axis - 2
    stride, dilation, taps = op.stride[way], op.dilation[way], op.kernel_size[way]
    shifted = []
    for tap in range(taps):
        start = tap * dilation
        part = slice(start, start + (outputs - 1) * stride + 1, stride)
        shifted.append(pairs[(*[slice(None)] * axis, part, slice(None), part)])
    return sum(shifted[1:], start=shifted[0])


def _products(x: Tensor) -> Tensor:
    """The products of all pairs of columns of x [n, groups, rows, columns]."""
    return functions.matrix_transpose(x) @ x


def _padded(op: ops.Conv2dWgrad, x: Shape) -> tuple[int, int]:
    """The rows and columns of an image with its padding."""
    return x[2] + 2 * op.padding[0], x[3] + 2 * op.padding[1]
