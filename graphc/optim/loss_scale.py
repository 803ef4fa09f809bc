"""Dynamic loss scaling, as torch.amp.GradScaler, on the device.

Gradients of float16 values underflow below 6e-8, so the loss is multiplied by a scale before it is
differentiated, and the gradients of the parameters are divided by it. A step whose gradients are
not finite leaves all state as it was, but for the scale, which it halves, and the counters of
random draws. The scale doubles after 2000 steps without such a one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from graphc import functions
from graphc.ir import NARROW, Where
from graphc.ir.state import StateBuffer
from graphc.trace import Builder, Tensor

FIRST, GROWTH, INTERVAL, LEAST = 65536.0, 2.0, 2000, 1.0
"""The first scale, what it is multiplied by, after how many steps, and the smallest scale."""
SCALE, GOOD, SKIPPED = "loss_scale", "loss_scale.steps", "loss_scale.skipped"
"""The names of the scale f32 [], of the steps i32 [] since it changed, of the skipped steps."""
NAMES = (SCALE, GOOD, SKIPPED)
_WHERE = Where(derived=True, function="loss_scale")


def loss_scale(builder: Builder) -> Tensor:
    """Return the scale f32 [] of the program under construction, which reads all its state."""
    scale, *_ = [_state(builder, name) for name in NAMES]
    return scale


def scaled_seed(builder: Builder, loss: Tensor) -> Tensor:
    """Return what the gradient of a loss begins with: the scale, in the dtype of the loss."""
    with builder.at(_WHERE):
        return functions.astype(loss_scale(builder), loss.dtype)


def unscaled(builder: Builder, gradient: Tensor) -> Tensor:
    """Return a gradient of the scaled loss divided by the scale, as f32 if it has two bytes.

    The scale is a power of two, so nothing is rounded.
    """
    with builder.at(_WHERE):
        wide = functions.astype(gradient, "f32") if gradient.dtype in NARROW else gradient
        return wide * functions.astype(1 / loss_scale(builder), wide.dtype)


def skip_overflows(builder: Builder, gradients: Sequence[Tensor], keep: Collection[str]) -> None:
    """Let a step whose gradients are not finite change no state, and append the scale's update.

    Args:
        builder: The program under construction, with all its updates of state.
        gradients: The gradients of the parameters.
        keep: The names of state that is updated in any case.
    """
    with builder.at(_WHERE):
        finite = functions.as_tensor(True)
        for gradient in gradients:
            if gradient.size:
                largest = functions.max(functions.abs(gradient))  # NaN if any element is
                finite = functions.logical_and(finite, functions.less(largest, math.inf))
        for old, new in list(builder.updates.items()):
            if old.name not in keep:
                before, after = Tensor(old, builder), Tensor(new, builder)
                builder.update(before, functions.where(finite, after, before))
        scale, good, skipped = (_state(builder, name) for name in NAMES)
        count = functions.where(finite, good + 1, 0)
        grows = functions.equal(count, INTERVAL)
        grown = functions.where(grows & functions.less(scale, 2.0**126), scale * GROWTH, scale)
        shrunk = functions.maximum(scale / GROWTH, LEAST)
        builder.update(scale, functions.where(finite, grown, shrunk))
        builder.update(good, functions.where(grows, 0, count))
        builder.update(skipped, functions.where(finite, skipped, skipped + 1))


def _state(builder: Builder, name: str) -> Tensor:
    if name in builder.buffers:
        return builder.read_state(builder.buffers[name])
    first = StateBuffer(FIRST, np.float32) if name == SCALE else StateBuffer(0, np.int32)
    return builder.read_state(first, name)
