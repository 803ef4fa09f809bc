"""Steps of recurrent cells as functions of tensors, as users write them."""

from __future__ import annotations

from graphc import functions as F
from graphc.trace import Tensor


def sections(x: Tensor, size: int, axis: int = 1) -> list[Tensor]:
    """The runs of `size` elements along the axis."""
    before = (slice(None),) * axis
    return [x[(*before, slice(i, i + size))] for i in range(0, x.shape[axis], size)]


def lstm(h: Tensor, c: Tensor, xw: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    """h, c f32[n,h], xw f32[n,4h], weight f32[4h,h] -> new h and c, gates f32[n,4h]."""
    z = F.matmul(h, F.permute_dims(weight, (1, 0))) + xw
    i, f, g, o = sections(z, h.shape[1])
    i, f, g, o = F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o)
    new = f * c + i * g
    return o * F.tanh(new), new, F.concat([i, f, g, o], axis=1)


def gru(h: Tensor, xw: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """h f32[n,h], xw f32[n,3h], weight f32[3h,h], bias f32[h] -> new h, gates f32[n,3h]."""
    z = sections(F.matmul(h, F.permute_dims(weight, (1, 0))), h.shape[1])
    x = sections(xw, h.shape[1])
    r, u = F.sigmoid(x[0] + z[0]), F.sigmoid(x[1] + z[1])
    n = F.tanh(x[2] + r * (z[2] + bias))
    return n + u * (h - n), F.concat([r, u, n], axis=1)


def peephole(h: Tensor, c: Tensor, xw: Tensor, weight: Tensor, peep: Tensor) -> tuple[Tensor, ...]:
    """As `lstm`, but its gates see the cells by weights f32[3h]; weight is f32[h,4h], the gates are
    not joined, and z is a result too."""
    z = F.matmul(h, weight) + xw
    i, f, g, o = sections(z, h.shape[1])
    p, q, r = sections(peep, h.shape[1], axis=0)
    i, f = F.sigmoid(i + p * c), F.sigmoid(f + q * c)
    new = f * c + i * F.tanh(g)
    return F.sigmoid(o + r * new) * F.tanh(new), new, i, f, z


def lstm_backward(
    dh: Tensor, dc: Tensor, c: Tensor, new: Tensor, gates: Tensor
) -> tuple[Tensor, ...]:
    """dh, dc, c, new f32[n,h], gates f32[n,4h] -> dz f32[n,4h], dc f32[n,h]."""
    i, f, g, o = sections(gates, dh.shape[1])
    t = F.tanh(new)
    dnew = dc + dh * o * (1 - t * t)
    do = dh * t * o * (1 - o)
    di, df = dnew * g * i * (1 - i), dnew * c * f * (1 - f)
    return F.concat([di, df, dnew * i * (1 - g * g), do], axis=1), dnew * f
