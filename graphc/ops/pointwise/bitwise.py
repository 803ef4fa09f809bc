"""Pointwise operations on the bits of integers, in two's complement. No gradient flows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc.ir import INTEGERS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Pointwise


class Bitwise(Pointwise):
    """An integer of integers."""

    accepts = INTEGERS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,) * len(inputs)


class BitwiseAnd(Bitwise):
    """y = the bits that are 1 in a and b."""

    name: ClassVar[str] = "bitwise_and"
    expression: ClassVar[str] = "{a} & {b}"
    meaning = np.bitwise_and


class BitwiseOr(Bitwise):
    """y = the bits that are 1 in a or b."""

    name: ClassVar[str] = "bitwise_or"
    expression: ClassVar[str] = "{a} | {b}"
    meaning = np.bitwise_or


class BitwiseXor(Bitwise):
    """y = the bits that differ in a and b."""

    name: ClassVar[str] = "bitwise_xor"
    expression: ClassVar[str] = "{a} ^ {b}"
    meaning = np.bitwise_xor


class BitwiseNot(Bitwise):
    """y = the bits of a, each inverted: -1 - a."""

    name: ClassVar[str] = "bitwise_not"
    expression: ClassVar[str] = "~{a}"
    meaning = np.bitwise_not


class LeftShift(Bitwise):
    """y = a * 2^b, wrapped; 0 where b is negative or not below the number of bits."""

    name: ClassVar[str] = "left_shift"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "left_shift({a}, {b})"
    meaning = np.left_shift


class RightShift(Bitwise):
    """y = floor(a / 2^b).

    It is 0, or -1 for negative a, where b is negative or not below the number of bits.
    """

    name: ClassVar[str] = "right_shift"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "right_shift({a}, {b})"
    meaning = np.right_shift
