"""What passes and lowering may know of the device: fixed before planning, free of stream and
thread counts, so that results depend on neither."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """`device` is "cpu", "cuda", "sim" or "reference". `lanes` is the number of float32 in a
    vector register (16 with AVX-512, 8 with AVX2, 4 else) on the CPU and 1 elsewhere."""

    device: str = "cpu"
    lanes: int = 16
    arch: str = ""
    """Resolved CPU features or compute capability, as the caches' keys need it."""

    def fills_lanes(self, batch: int) -> bool:
        """Whether so many samples fill registers well enough for the batch of a convolution to lie
        in the lanes. With half of them empty, a training step of ResNet-18 takes 1.3 times as long
        as row-major."""
        return self.lanes > 1 and batch >= 0.6 * self.lanes

    @property
    def cuts_any_axis(self) -> bool:
        """Whether a contraction's kernel can take the sections of any axis of its output into the
        epilogue: a register tile of the CPU has each of the nest's axes for itself, a GPU's tile
        has rows and columns alone, so that the axis cut must be all columns."""
        return self.device == "cpu"
