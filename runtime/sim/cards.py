"""The GPUs that can be simulated: `GRAPHC_SIM_GPU` names one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphc.base import config

KIB = 1024


@dataclass(frozen=True)
class Card:
    """What a program notices of a GPU."""

    name: str
    arch: str
    """What kernels are compiled for where it is present."""
    capability: float
    """Its compute capability."""
    shared: int
    """Bytes of shared memory that a block may use."""
    threads: int
    """Threads that a multiprocessor holds."""

    @property
    def tensor_cores(self) -> bool:
        """Whether kernels may use its tensor cores (`Target.tensor_cores`)."""
        return self.capability >= 8.0

    @property
    def clusters(self) -> bool:
        """Whether it has clusters of blocks, and launches that begin early."""
        return self.capability >= 9.0


CARDS: Mapping[str, Card] = {
    "h100": Card("NVIDIA H100", "sm_90a", 9.0, 227 * KIB, 2048),
    "t4": Card("Tesla T4", "sm_75", 7.5, 64 * KIB, 1024),
    "a100": Card("NVIDIA A100", "sm_80", 8.0, 163 * KIB, 2048),
    "rtx4090": Card("NVIDIA GeForce RTX 4090", "sm_89", 8.9, 99 * KIB, 1536),
    "b200": Card("NVIDIA B200", "sm_100a", 10.0, 227 * KIB, 2048),
}
"""By the names of `config.SIMULATED`."""


def simulated_card() -> Card:
    """The GPU that GRAPHC_SIM_GPU names. Raises GraphError for another name."""
    return CARDS[config.sim_gpu()]
