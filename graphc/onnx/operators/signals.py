"""Spectra: products with known matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc import functions as f
from graphc.onnx.operators.rules import along, operator
from graphc.trace import Tensor


@operator("DFT", static="dft_length axis")
def dft(
    x: Tensor,
    dft_length: Any = None,
    axis: Any = None,
    inverse: int = 0,
    onesided: int = 0,
    opset: int = 20,
) -> Tensor:
    """The product with known cosines and sines; the last axis holds real and imaginary parts."""
    place = (1 if opset < 20 else -2) if axis is None else int(np.asarray(axis).reshape(-1)[0])
    place %= x.ndim
    count = x.shape[place] if dft_length is None else int(np.asarray(dft_length).reshape(-1)[0])
    if onesided and inverse and dft_length is None:
        count = 2 * (x.shape[place] - 1)
    x = fitted(x, place, count // 2 + 1 if onesided and inverse else count)
    exact = f.astype(x, "f64")
    real = f.select(exact, -1, 0)
    imaginary = f.select(exact, -1, 1) if x.shape[-1] == 2 else f.multiply(real, 0)
    angle = np.outer(np.arange(count), np.arange(x.shape[place])) * (2 * np.pi / count)
    if onesided and not inverse:
        angle = angle[: count // 2 + 1]
    cosines, sines = np.cos(angle), np.sin(angle) * (-1 if inverse else 1)
    if inverse:
        # Half of a real signal's spectrum stands for both halves.
        twice = np.ones(x.shape[place])
        twice[1 : (count + 1) // 2] += onesided
        cosines, sines = cosines * twice / count, sines * twice / count
    parts = [f.add(along(cosines, real, place), along(sines, imaginary, place))]
    if not (onesided and inverse):
        part = f.subtract(along(cosines, imaginary, place), along(sines, real, place))
        parts.append(part)
    return f.astype(f.stack(parts, -1), x.dtype)


def fitted(x: Tensor, axis: int, extent: int) -> Tensor:
    """x cut, or filled up with zeros, to an extent along an axis."""
    x = x[(*[slice(None)] * axis, slice(0, extent))]
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, extent - x.shape[axis])
    return f.pad(x, widths) if any(widths[axis]) else x


@operator("STFT", static="frame_step frame_length")
def stft(
    signal: Tensor,
    frame_step: Any,
    window: Tensor | None = None,
    frame_length: Any = None,
    onesided: int = 1,
) -> Tensor:
    step = int(np.asarray(frame_step).reshape(-1)[0])
    count = (
        window.shape[0]
        if frame_length is None and window is not None
        else int(np.asarray(frame_length).reshape(-1)[0])
    )
    signal = f.expand_dims(signal, -1) if signal.ndim == 2 else signal
    frames = (signal.shape[1] - count) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(count)
    cut = f.take(signal, f.as_tensor(places), 1)
    if window is not None:
        lacking = count - window.shape[0]
        shape = f.pad(window, [(lacking // 2, lacking - lacking // 2)]) if lacking else window
        cut = f.multiply(cut, f.reshape(shape, (count, 1)))
    return dft(cut, axis=np.array(2), onesided=onesided)


@operator("MelWeightMatrix", static="num_mel_bins dft_length sample_rate low high")
def mel_weight_matrix(
    num_mel_bins: Any,
    dft_length: Any,
    sample_rate: Any,
    low: Any,
    high: Any,
    output_datatype: int = 1,
) -> Any:
    """[dft_length // 2 + 1, num_mel_bins]: triangles that are equally wide in mels."""
    bins, length, rate = (int(np.asarray(v)) for v in (num_mel_bins, dft_length, sample_rate))
    ends = [2595 * math.log10(1 + float(np.asarray(v)) / 700) for v in (low, high)]
    mels = ends[0] + np.arange(bins + 2) * (ends[1] - ends[0]) / (bins + 2)
    points = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bins), np.float32)
    for i in range(bins):
        first, peak, last = points[i : i + 3]
        if peak == first:
            matrix[peak, i] = 1
        for j in range(first, peak + 1):
            matrix[j, i] = (j - first) / (peak - first) if peak > first else matrix[j, i]
        for j in range(peak, last):
            matrix[j, i] = (last - j) / (last - peak)
    return matrix
