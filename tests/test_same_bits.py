"""Results have the same bits on every instruction set, for every batch, and for every number of
threads and streams; `benchmarks/same_bits.py` has the whole table of models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks import same_bits
from benchmarks.same_bits import Variant, digest
from graphc.base.config import INSTRUCTION_SETS
from tests.random_convolutions import RandomConvolutions
from tests.random_programs import RandomProgram
from tests.scan_checks import Case, played
from tests.tools import first_quick, need_command

Array = np.ndarray[Any, np.dtype[Any]]
NARROW = ("sse2", "avx2")


@pytest.fixture(autouse=True)
def compiler() -> None:
    need_command("g++", "clang++")


def of_program(seed: int, **options: int) -> list[Array]:
    program = RandomProgram(seed)
    specs = [graphc.spec(s.shape) for s in program.specs]
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal(s.shape).astype(np.float32) for s in program.specs]
    return list(graphc.compile(program, *specs, device="cpu", **options)(*arrays))


def of_convolutions(seed: int, **options: int) -> list[Array]:
    made = RandomConvolutions(seed)
    gradients = graphc.grad(made.run, tuple(range(len(made.shapes))))
    specs = [graphc.spec(shape) for shape in made.shapes]
    return list(graphc.compile(gradients, *specs, device="cpu", **options)(*made.arrays()))


def of_scans(seed: int, **options: int) -> list[Array]:
    return list(played(Case(seed), "cpu", **options))


def kind_of(seed: int) -> Callable[..., list[Array]]:
    """Few of the networks are convolutional: those take the compiler the longest."""
    return of_convolutions if seed % 10 == 9 else of_scans if seed % 3 == 2 else of_program


def hashes(
    seed: int, isas: tuple[str, ...], change: pytest.MonkeyPatch, tier: str = "1"
) -> Iterator[str]:
    """Of the outputs of a random network on each instruction set, each with its own threads."""
    for number, isa in enumerate(isas, 1):
        change.setenv("GRAPHC_TIER", tier)
        change.setenv("GRAPHC_ISA", isa)
        outputs = kind_of(seed)(seed, threads=number, streams=number)
        yield digest(np.where(a == a, a, np.nan) if a.dtype.kind == "f" else a for a in outputs)


@pytest.mark.parametrize("seed", range(15))
def test_a_random_network(seed: int, clean_environment: pytest.MonkeyPatch) -> None:
    assert len(set(hashes(seed, NARROW, clean_environment))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15, 2015))
def test_many_random_networks(seed: int, clean_environment: pytest.MonkeyPatch) -> None:
    """Most by prebuilt kernels, whose bits test_tiers_networks.py compares with compiled ones."""
    isas, tier = (NARROW, "0") if seed % 10 else (tuple(INSTRUCTION_SETS), "1")
    assert len(set(hashes(seed, isas, clean_environment, tier))) == 1


QUICK = ("softmax", "mixed")


@pytest.mark.parametrize("name", first_quick(len(QUICK), dict.fromkeys((*QUICK, *same_bits.ROWS))))
def test_a_sample_in_any_batch(name: str, clean_environment: pytest.MonkeyPatch) -> None:
    result = same_bits.forward(name, NARROW, (1, 7, 17))
    assert not result.difference


@pytest.mark.parametrize("name", first_quick(1, dict.fromkeys(("gru", *same_bits.ROWS))))
def test_weights_after_training(name: str, clean_environment: pytest.MonkeyPatch) -> None:
    variants = [Variant("sse2"), Variant("avx2", 2, 2), Variant("avx2", 3, 4)]
    assert not same_bits.train(name, variants).difference


@pytest.mark.slow
@pytest.mark.parametrize("name", same_bits.ROWS)
def test_the_whole_table(name: str, clean_environment: pytest.MonkeyPatch) -> None:
    isas = tuple(INSTRUCTION_SETS)
    assert not same_bits.train(name, same_bits.train_variants(isas, whole=True)).difference
    assert not same_bits.forward(name, isas).difference


def test_what_differs_first_is_named() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    first = [("a", "x", x), ("b", "y", x), ("c", "z", x)]
    second = [("a", "x", x), ("b", "y", x + np.eye(2, 3, dtype=np.float32)), ("c", "z", x * 2)]
    found = same_bits._first_difference([first, second])
    assert found == "y [2, 3] of b: 2 elements, first at [0, 0]"
    assert same_bits._first_difference([first, first]) == "no value that both write"
