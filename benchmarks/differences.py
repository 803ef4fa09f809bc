"""Results beside the true ones, each with how far it may be off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Results = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Truth:
    """Results by name, and how far each may be off: the largest difference of any element."""

    results: Results
    tolerance: dict[str, float]

    def differences(self, found: Results) -> list[str]:
        """A line for each result that is missing, too many, of another shape or too far off."""
        wrong = [f"{name} is missing" for name in self.results if name not in found]
        for name, array in found.items():
            expected = self.results.get(name)
            if expected is None:
                wrong.append(f"{name} is too many")
            elif array.shape != expected.shape:
                wrong.append(f"{name}: expected shape {expected.shape}, got {array.shape}")
            elif not self.use(name, array) <= 1:
                size = np.max(np.abs(expected), initial=0.0)
                wrong.append(
                    f"{name} of at most {size:.3g} is off by {off(array, expected):.3g}, "
                    f"{self.tolerance[name]:.2g} are allowed"
                )
        return wrong

    def use(self, name: str, array: np.ndarray[Any, Any]) -> float:
        """The part of what is allowed that the array is off, 0 to 1 where it is right."""
        return off(array, self.results[name]) / self.tolerance[name]


def off(array: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """The largest difference of any element; infinite where one is no number."""
    far = np.abs(array.astype(np.float64) - expected).max(initial=0.0)
    return float("inf") if np.isnan(far) else float(far)
