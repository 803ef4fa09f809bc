"""Passes return the graphs that they leave as they are, so that nothing looks at them again."""

from __future__ import annotations

from importlib import import_module

import pytest

import graphc
from benchmarks.run import compiled
from benchmarks.workloads import find
from graphc.base.target import Target
from graphc.ir import Graph
from graphc.passes import pipeline
from graphc.passes.rewriting import runner
from tests.passes.meaning import CPU

QUIET = {
    "mlp-small-b20": (
        "split_strides split_joins place_constants widen fuse_attend fuse_axis channels_last"
        " fuse_columns fuse_rows fuse_products"
    ),
    "lstm-h128-b1": (
        "recompute split_strides split_joins place_constants widen fuse_attend fuse_axis"
        " channels_last fuse_columns fuse_rows fuse_products"
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_passes_that_change_nothing_return_the_graph_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    same: list[str] = []

    def watched(graph: Graph, target: Target, passes, hook) -> Graph:
        def noted(label, function):
            def run(graph: Graph, target: Target) -> Graph:
                changed = function(graph, CPU)
                same.extend([label] if changed is graph else [])
                return changed

            return label, run

        return original(graph, target, [noted(*item) for item in passes], hook)

    original = runner.run_passes
    monkeypatch.setattr(runner, "run_passes", watched)
    workload = find(name)
    compiled(workload, workload.data(), "train", {"device": "reference"})
    assert set(QUIET[name].split()) <= set(same)
    assert {label for label, _ in pipeline.AFTER_GRADIENT} > set(QUIET[name].split())


def test_a_graph_that_was_swept_clean_is_not_swept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("graphc.passes.simplify.clean")
    sweeps, own = [], module._sweep

    def counted(*arguments):
        sweeps.append(arguments)
        return own(*arguments)

    monkeypatch.setattr(module, "_sweep", counted)
    graph = graphc.trace(lambda x: graphc.negative(graphc.negative(x)) + 0.0, graphc.spec(3))
    clean = module.clean(graph, CPU)
    assert (count := len(sweeps)) > 1
    assert module.clean(clean, CPU) is clean
    assert len(sweeps) == count
    module.simplify(clean, CPU)
    assert len(sweeps) == count + 1
