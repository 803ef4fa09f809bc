"""No mistake of a pass goes through: graphs with one each are all refused."""

from __future__ import annotations

from collections import Counter

import pytest

from graphc.base.errors import GraphError
from graphc.meaning.check import check
from tests.meaning.models import MODELS, stages_of
from tests.meaning.mutants import mutants
from tests.tools import first_quick

STAGES = ("clean_hoisted", "channel_lanes")
"""Before fusion and at the end."""
SAMPLE = {"pooled": 16, "normalised": 16, "lstm": 10, "gru": 10}
"""Mutants of a model at one stage, every n-th of all: 104 at most in all."""


def refused(name: str, most: int) -> Counter[str]:
    """How many mutants of each kind were refused; fails for one that is not."""
    stages, kinds = stages_of(name), Counter[str]()
    for last in STAGES:
        found = list(mutants(stages[last]))
        for kind, wrong in found[:: -(-len(found) // most)]:
            kinds[kind.removesuffix(" in a body").removesuffix(" in a body")] += 1
            with pytest.raises(GraphError, match=r"^meaning: pass wrong changed "):
                check({last: stages[last], "wrong": wrong})
    return kinds


@pytest.mark.parametrize("name", first_quick(3, ["pooled", "lstm", "normalised", "gru"]))
def test_mutants_are_refused(name: str) -> None:
    kinds = refused(name, SAMPLE[name])
    assert sum(kinds.values()) >= 1.5 * SAMPLE[name] and len(kinds) > 4, kinds


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_all_mutants_are_refused(name: str) -> None:
    assert sum(refused(name, 10_000).values()) > 150
