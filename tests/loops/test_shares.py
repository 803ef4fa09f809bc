"""Memory that blocks share out: counting elements finds what nests say, where parts are whole rows
or parts of one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphc.kernels.loops.language import Loop, Memory, Nest, walk
from graphc.kernels.loops.shares import own_shares
from graphc.kernels.loops.text import parse_nest
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.statement import Address, Load, Register

EXTENTS = ((12,), (4, 6), (6, 4), (2, 3, 4), (1, 8), (3, 1, 4), (5, 7), ())


def counted(nest: Nest, name: str, shares: int) -> bool:
    """Whether each part of the iterations touches its own part of the memory only."""
    (size,) = (m.size for m in nest.memory if m.name == name)
    indices = list(itertools.product(*map(range, nest.domain.extents)))
    if not indices or len(indices) % shares or size % shares:
        return False
    own, part = len(indices) // shares, size // shares
    for statement, _ in walk(nest.body):
        for access in statement.accesses if name in statement.pointers else ():
            for number, index in enumerate(indices):
                element = access.offset + int(np.dot(access.strides, index))
                if element // part != number // own:
                    return False
    return True


@pytest.mark.parametrize("seed", range(20))
def test_counting_finds_the_same_shares(seed: int) -> None:
    random = np.random.default_rng(seed)
    found = [0, 0]
    for _ in range(50):
        extents = EXTENTS[random.integers(len(EXTENTS))]
        size = int(np.prod(extents))
        factor = int(random.choice([1, 1, 2, 3]))
        behind = [int(np.prod(extents[d + 1 :])) for d in range(len(extents))]
        row_major = [factor * one for one in behind]
        strides = [*row_major]
        for d in range(len(strides)):
            if random.random() < 0.3:
                strides[d] = int(random.integers(0, 9))
        access = AffineAccess(int(random.choice([0, 0, 1, 2])), tuple(strides))
        load = Load((Register("x_", "f32"),), (Address("x_data", access),))
        memory = (Memory("x_data", "f32", int(random.choice([size * factor, 12, 24]))),)
        nest = Nest(Domain(extents), memory, (Loop(tuple(range(len(extents))), "thread", (load,)),))
        for shares in (1, 2, 3, 4, 6, 12):
            own, counts = "x_data" in own_shares(nest, shares), counted(nest, "x_data", shares)
            part = max(1, size // shares)
            whole = all(one % part == 0 or part % one == 0 for one in behind)
            plain = strides == row_major and whole and memory[0].size == size * factor
            assert own <= counts and (own == counts or not plain), (nest, shares)
            found[own] += 1
    assert min(found) > 10


NEST = """nest (4, 6)
memory x_data : f32[24]
memory bias_data : f32[6]
memory one_data : f32[1]
memory y_data : f32[24] written
one_ : f32 = load one_data[0]
for i0, i1 thread
  x_ : f32 = load x_data[6*i0 + 1*i1]
  bias_ : f32 = load bias_data[1*i1]
  add_ : f32 = op add (x_, bias_) cost 1
  store y_data[6*i0 + 1*i1], add_"""


@pytest.mark.parametrize(
    ("old", "new", "own"),
    [
        ("", "", {"x_data", "y_data"}),
        ("load x_data[6*i0 + 1*i1]", "load x_data[-6*i0 + 1*i1 + 18]", {"y_data"}),
        ("load bias_data[1*i1]", "load bias_data[1*i1 ; over 1]", {"x_data", "y_data"}),
        ("load x_data[6*i0 + 1*i1]", "load x_data[6*i0 + 1*i1 ; over 2]", {"y_data"}),
        ("y_data : f32[24]", "y_data : f32[30]", {"x_data"}),
        ("bias_data[1*i1]", "bias_data[1*i0]", {"x_data", "y_data"}),
    ],
)
def test_what_all_read_or_read_elsewhere_is_not_shared_out(
    old: str, new: str, own: set[str]
) -> None:
    assert own_shares(parse_nest(NEST.replace(old, new)), 4) == own


def test_memory_as_long_as_there_are_rows_is_shared_out_by_rows() -> None:
    text = NEST.replace("bias_data[1*i1]", "bias_data[1*i0]").replace("f32[6]", "f32[4]")
    assert own_shares(parse_nest(text), 4) == {"x_data", "bias_data", "y_data"}
    assert own_shares(parse_nest(text), 2) == {"x_data", "bias_data", "y_data"}
    assert own_shares(parse_nest(text), 24) == {"x_data", "y_data"}
    assert not own_shares(parse_nest(text), 5)
