"""Counter-based random numbers by Philox4x32-10 (Salmon et al., SC 2011)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Array, Random

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_ROUNDS = 10


@dataclass(frozen=True)
class PhiloxUniform(Random):
    """y[i] uniform in [0, 1), f32: the top 24 bits of word `part`, of four, times 2^-24.

    Key: (seed mod 2^32, number). Counter: (low and high 32 bits of the row-major index of i, the
    input counter i32[], 0). Ops that differ in the part alone draw independent numbers, and
    kernels that compute several of them compute Philox once.
    """

    seed: int
    number: int
    shape: tuple[int, ...]
    part: int = 0
    name: ClassVar[str] = "philox_uniform"
    operations: ClassVar[int] = 400

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (counter,) = inputs
        if counter != Type((), "i32"):
            raise GraphError(f"philox_uniform: expected a counter i32[], got {counter}")
        if self.part not in range(4):
            raise GraphError(f"philox_uniform: part expected 0 to 3, got {self.part}")
        return (Type(self.shape, "f32"),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        index = np.arange(math.prod(self.shape), dtype=np.uint64)
        counter = (
            index.astype(np.uint32),
            (index >> np.uint64(32)).astype(np.uint32),
            np.full(index.shape, inputs[0], np.int32).view(np.uint32),
            np.zeros(index.shape, np.uint32),
        )
        word = philox(counter, (self.seed & 0xFFFFFFFF, self.number))[self.part]
        uniform = (word >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        return (uniform.reshape(self.shape),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,)


def philox(counter: tuple[Array, ...], key: tuple[int, int]) -> tuple[Array, ...]:
    """The four u32 words of Philox4x32-10 for each element of the four words of the counter."""
    c0, c1, c2, c3 = counter
    k0, k1 = np.array([key[0]], np.uint32), np.array([key[1]], np.uint32)
    for _ in range(_ROUNDS):
        a, b = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c2 = _high(b) ^ c1 ^ k0, _high(a) ^ c3 ^ k1
        c1, c3 = b.astype(np.uint32), a.astype(np.uint32)
        k0, k1 = k0 + _WEYL[0], k1 + _WEYL[1]
    return c0, c1, c2, c3


def _high(product: Array) -> Array:
    return (product >> np.uint64(32)).astype(np.uint32)
