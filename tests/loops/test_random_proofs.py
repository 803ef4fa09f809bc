"""The nests of random kernels are proved, and no longer once a store or a load has moved out of its
memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from graphc.base.errors import GraphError
from graphc.kernels.c.lower import serial_nests
from graphc.kernels.loops.language import Nest, Step
from graphc.kernels.loops.places import with_arguments
from graphc.kernels.loops.text import nest_text, parse_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.statement import Address, Argument, Load, Store
from graphc.ops.fused import KernelNode
from tests.random_families import RandomFamily
from tests.random_pointwise import RandomPointwise

FEW, MANY = 25, 250


def moved(nest: Nest) -> Iterator[Nest]:
    """The nest with each of its memories accessed by plain loads and stores as many elements
    further on as there are."""
    plain = (
        s for s in nest.statements if isinstance(s, Store) or (isinstance(s, Load) and s.plain)
    )
    sizes = {m.name: m.size for m in nest.memory if m.size}
    for name in dict.fromkeys(p for s in plain for p in s.pointers if p in sizes):

        def beyond(argument: Argument, name: str = name) -> Argument:
            if not isinstance(argument, Address) or argument.pointer != name:
                return argument
            access = argument.access
            if access is None:
                return argument
            return replace(argument, access=replace(access, offset=access.offset + sizes[name]))

        body: tuple[Step, ...] = with_arguments(nest.body, beyond)
        yield replace(nest, body=body)


def nodes(seeds: range) -> Iterator[KernelNode]:
    """Kernels of both kinds in turn."""
    for seed in seeds:
        made = RandomFamily(seed) if seed % 2 else RandomPointwise(seed)
        yield made.node


def assert_proved(seeds: range) -> None:
    refused = 0
    for seed, node in zip(seeds, nodes(seeds), strict=True):
        nests, _ = serial_nests(node)  # which verifies
        for nest in nests:
            parsed = parse_nest(nest_text(nest))
            verify_nest(parsed)
            assert (parsed, hash(parsed)) == (nest, hash(nest)), f"seed {seed}"
            for wrong in moved(nest) if nest.domain.size else ():
                refused += 1
                with pytest.raises(GraphError):
                    verify_nest(wrong)
    assert refused >= len(seeds)


@pytest.mark.parametrize("first", range(0, 50, FEW))
def test_random_nests_are_proved(first: int):
    assert_proved(range(first, first + FEW))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 20_000, MANY))
def test_many_random_nests_are_proved(first: int):
    assert_proved(range(first, first + MANY))
