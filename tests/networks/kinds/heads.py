"""Terms of losses, and the targets that they compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.networks.network import Shape

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class HeadKind:
    """`{0}` is the value, `{target}` an array that `target` says: "" for none, "float", "bit", or
    "label", class numbers of axis 1."""

    expression: str
    target: str = ""

    def fits(self, shape: Shape) -> bool:
        return self.target != "label" or shape[1] > 1

    def array(self, shape: Shape, random: np.random.Generator) -> Array:
        """The target of a value of this shape."""
        if self.target == "label":
            return random.integers(0, shape[1], (shape[0], *shape[2:]))
        if self.target == "bit":
            return random.integers(0, 2, shape).astype(np.float32)
        return random.standard_normal(shape, np.float32)


HEADS = {
    "square": HeadKind("lib.mean(lib.square({0}))"),
    "weighted": HeadKind("lib.mean({0} * {target})", "float"),
    "label": HeadKind("lib.cross_entropy({0}, {target})", "label"),
    "target": HeadKind("lib.mse_loss({0}, {target})", "float"),
    "absolute": HeadKind("lib.mean(lib.abs({0} - 0.3))"),
    "smooth": HeadKind("lib.smooth_l1_loss({0}, {target})", "float"),
    "bit": HeadKind("lib.binary_cross_entropy_with_logits({0}, {target})", "bit"),
}
