"""Properties of ops that passes query, so that they need not know which op it is.

An op's class states each fact once; most are stated by its family (`graphc.ops.base`). The defaults
are those of an op of which nothing is known but its types: one kernel computes it, from memory.
"""

from __future__ import annotations

from typing import ClassVar

from graphc.base.errors import GraphError
from graphc.ir.affine import Affine, Iteration, Sections
from graphc.ir.types import Array, Type


class Facts:
    """Base of `Op`: each property with the answer for an op of which nothing is known."""

    name: ClassVar[str] = ""

    pointwise: ClassVar[bool] = False
    """Each element of the output is one expression of the inputs' elements at its own place."""
    contracts: ClassVar[bool] = False
    """Sums products of two operands, by the loops of `iteration`."""
    moves: ClassVar[bool] = False
    """The output's elements are those of the only input, at other places."""
    is_source: ClassVar[bool] = False
    """Made from nothing, wherever it is read."""
    in_registers: ClassVar[bool] = False
    """What it reads may be computed by the same kernel, at the place of what it makes."""
    in_memory: ClassVar[slice] = slice(0)
    """The operands that kernels read in place, so that they must lie in memory."""
    own_factors: ClassVar[slice] = slice(0)
    """The operands that a kernel of its own template multiplies; `Op.multiplying` says as what."""
    converts_reads: ClassVar[bool] = False
    """Kernels do it as they load its only input, at no cost: widening."""
    is_planned: ClassVar[bool] = False
    """A plan has it as it stands: a kernel, a loop, or another shape of the same memory."""
    is_loop: ClassVar[bool] = False
    """Computes a graph of its own several times."""
    communicates: ClassVar[bool] = False
    """Takes part in what other processes compute: it runs as often as on these, in the same order,
    and not on this device."""
    in_turn: ClassVar[bool] = False
    """Its first input and output are tokens, which order it among others that communicate."""
    lane_axes: ClassVar[tuple[int, ...] | None] = None
    """The axes along which its kernels may have lanes; None for any."""
    own_template: ClassVar[str] = ""
    """The kernel template of an op that no other op but a view may share a kernel with."""
    computes_reads: ClassVar[bool] = False
    """Kernels of its own template compute the pointwise ops that nothing else reads before it."""
    images: ClassVar[int] = 0
    """How many of its operands, the first ones, are images [n, c, h, w] whose channels it uses as
    one: by convolutions."""
    joined_axis: ClassVar[int | None] = None
    """The axis along which its kernel can write all outputs one behind the other."""

    operations: ClassVar[int | None] = None
    """What an element costs to compute again, in operations; None if that is not to be done."""
    takes_narrow: ClassVar[bool] = False
    """Kernels do it to floats of two bytes as they are, since elements only move or are chosen."""
    keeps_value: ClassVar[bool] = False
    """The output is the only input elsewhere, or in another dtype: it has no name of its own."""
    called: ClassVar[str | None] = None
    """What kernels that do it are called; None for the op's name."""
    names_module: ClassVar[bool] = False
    """It is what its module is for, so that names of kernels leave it out behind the module's."""

    adds: ClassVar[bool] = False
    """The output is the sum of the inputs."""
    neutral: ClassVar[tuple[float, tuple[int, ...]] | None] = None
    """(a number, the operands where it stands and leaves the other one as it is, to the bit)."""
    stops_gradient: ClassVar[bool] = False
    """Nothing but a mark for differentiation: afterwards the output is the input."""
    keeps_largest: ClassVar[bool] = False
    """The largest of what it makes of some elements is what it makes of the largest, to the bit;
    and where it makes several of them equal, it passes no gradient to any."""
    finds_largest: ClassVar[bool] = False
    """The elements of the first output are the largest of some of the input's."""

    @property
    def accumulates(self) -> bool:
        """The output's elements are sums or products of many: of floats, the order decides bits."""
        return False

    @property
    def array(self) -> Array | None:
        """The elements of the output, if the op holds them."""
        return None

    @property
    def reduced_axes(self) -> tuple[int, ...] | None:
        """The axes of the only input that the op reduces, or None."""
        return None

    @property
    def concat_axis(self) -> int | None:
        """The axis along which the op concatenates its inputs, or None."""
        return None

    @property
    def moves_sums(self) -> bool:
        """Whether the op distributes over sums, bit for bit."""
        return self.moves

    @property
    def pools_in_registers(self) -> bool:
        """Whether a contraction's epilogue can compute the op from its tile."""
        return False

    def index(self, source: Type) -> tuple[Affine, ...] | None:
        """Return for each axis of the only input its index from the output's.

        It is None if the op does not move elements by an affine map.
        """
        return None

    def iteration(self, a: Type, b: Type) -> Iteration:
        """Return the loop nest of a contraction of operands of these types."""
        raise GraphError(f"{self.name} has no loop nest: write iteration")

    def is_free(self, *inputs: Type) -> bool:
        """Return whether a kernel computes the op where it reads it, at no cost."""
        if self.is_source or self.converts_reads:
            return True
        return self.moves and self.index(inputs[0]) is not None

    def section(self, source: Type) -> tuple[Sections, int] | None:
        """Return the sections of the only input, and the number of the one it reads, or None."""
        return None

    def sections(self, *inputs: Type) -> Sections | None:
        """Return the sections of the output that its inputs are, or None."""
        return None

    def word(self, derived: bool, of_state: bool) -> str:
        """Return what kernels of this op are called, or "".

        `derived` says that it is part of a gradient, `of_state` that it reads parameters.
        """
        return self.name if self.called is None else self.called

    def lack(self, *inputs: Type) -> str:
        """Return what keeps kernels from computing a user's own op, or ""."""
        family = next(c for c in type(self).__mro__ if c.__module__.startswith("graphc."))
        return (
            "kernels compute own ops that are Pointwise, View, Reduction or Contraction, "
            f"got {family.__name__}; device='reference' computes any"
        )
