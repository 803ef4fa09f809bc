"""The templates of the generated kernels with one mistake each: what the simulated GPU makes of it.

A mistake that keeps to the rules of memory and order is none that a check could find: it shows in
the results, which are compared with the meaning of the ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import graphc
from graphc.ops.indexing import TakeGrad
from graphc.runtime.sim import LaunchError
from graphc.trace import emit
from tests.kernels.cuda_harness import arrays_of, assert_close, mistaken, traced
from tests.sim.playing import Played, simulator


def spec(*shape: int):
    return graphc.spec(shape)


def normalised(x):
    centred = x - graphc.mean(x, axis=1, keepdims=True)
    return centred * graphc.rsqrt(graphc.mean(centred * centred, axis=1, keepdims=True))


NODES = {
    "product": traced("product", graphc.matmul, spec(289, 70), spec(70, 212)),
    # Four steps of three stages: the last one reads where sums go from thread to thread.
    "few_sums": traced("few_sums", graphc.matmul, spec(33, 400), spec(400, 20)),
    "split": traced("split", graphc.matmul, spec(12, 1000), spec(1000, 9)),
    "long_split": traced("long_split", graphc.matmul, spec(3, 40000), spec(40000, 3)),
    "convolution": traced(
        "convolution",
        lambda x, w: graphc.conv2d(x, w, padding=1),
        spec(2, 3, 7, 7),
        spec(5, 3, 3, 3),
    ),
    "rows": traced("rows", normalised, spec(5, 300)),
    "columns": traced("columns", lambda x: graphc.sum(x, axis=0), spec(300, 37)),
    "kept": traced("kept", lambda x: x - graphc.mean(x, axis=0), spec(1537, 8)),
    "runs": traced("runs", lambda x: graphc.sum(x, axis=0), spec(300, 36)),
    "long_row": traced("long_row", lambda x: graphc.sum(x, axis=1), spec(3, 40000)),
    "gather": traced(
        "gather",
        lambda i, dy: emit(TakeGrad(0, 9000), i, dy),
        graphc.spec((1500,), "int32"),
        spec(1500, 4),
    ),
    "pointwise": traced("pointwise", lambda x: graphc.tanh(x) + 1, spec(7, 30)),
}


@dataclass(frozen=True)
class Mutant:
    """In `header`, `right` becomes `wrong`, seen by the kernel of `node`."""

    header: str
    right: str
    wrong: str
    node: str
    found: bool = True
    """By a check; else by the results alone."""

    def __str__(self) -> str:
        return f"{self.node}: {' '.join(self.right.split())} -> {' '.join(self.wrong.split())}"


MUTANTS = (
    Mutant("contract", "copy_wait<ahead - 1>();", "copy_wait<ahead>();", "product"),
    Mutant("contract", "copy_wait<ahead - 1>();", "", "product"),
    Mutant("contract", "      block.sync();  // step", "      // step", "product"),
    Mutant("contract", "load(i + ahead, ring", "load(i + stages, ring", "product", False),
    Mutant("contract", "now < behind ? now + ahead : now - behind", "now", "product"),
    Mutant("loader", "k < K ? place.live : 0;", "place.live;", "product"),
    Mutant("loader", "k < K ? place.live : 0;", "k < K ? vector : 0;", "convolution"),
    Mutant(
        "loader",
        "smaller(outer, Extent - (along_k ? 1 : vector))",
        "outer",
        "product",
    ),
    Mutant("contract", "if (m0 + m < M && n0 + n < N)", "if (n0 + n < N)", "product"),
    Mutant("contract", "if (m0 + m < M && n0 + n < N)", "if (m0 + m < M)", "product"),
    Mutant(
        "contract", "T* const own = ring + sums.group * all;", "T* const own = ring;", "few_sums"
    ),
    Mutant("contract", "group < groups; group++) sum", "group <= groups; group++) sum", "few_sums"),
    Mutant("registers", "for (int k = group * share", "for (int k = 0", "few_sums", False),
    Mutant("contract", "copy_wait<0>();\n    block.sync();", "copy_wait<0>();", "few_sums"),
    Mutant("contract", "    });\n    block.sync();", "    });", "few_sums"),
    Mutant(
        "split_k",
        "split < (lane + 1) * Problem::splits / Lanes;",
        "split <= (lane + 1) * Problem::splits / Lanes;",
        "split",
    ),
    Mutant("split_k", "if (lane || i >= count) return;", "if (lane) return;", "long_split"),
    Mutant("contract", "least + (part < more)", "least + (part <= more)", "split", False),
    Mutant("split_k", "(split) * Problem::batches", "(0) * Problem::batches", "split"),
    Mutant(
        "loader",
        "int pitch = along_k ? BK + quad : Outer",
        "int pitch = along_k ? BK + 1 : Outer",
        "product",
    ),
    Mutant(
        "reduce",
        "block.sync();\n      results",
        "results",
        "rows",
    ),
    Mutant("reduce", "threadIdx.x % 32 == 0) slots", "threadIdx.x % 32 < 2) slots", "rows"),
    Mutant("reduce", "along + j * Along < steps", "along + j * Along <= steps", "rows"),
    Mutant("reduce", "step + j * Along < last", "step + j * Along <= last", "long_row"),
    Mutant(
        "reduce",
        "lanes < (Along < 32 ? Along : 32)",
        "lanes < (Along < 16 ? Along : 16)",
        "rows",
        False,
    ),
    Mutant("reduce", "warp = 1; warp < warps; warp++", "warp = 1; warp <= warps; warp++", "rows"),
    Mutant("reduce", "exists() && along == 0; }", "exists(); }", "columns"),
    Mutant("reduce", "|| place < places; }", "|| true; }", "columns"),
    Mutant(
        "reduce",
        "block.sync();\n    if constexpr (second",
        "if constexpr (second",
        "columns",
    ),
    Mutant("reduce", "block.sync();\n    }\n    results", "}\n    results", "runs"),
    Mutant("reduce", "if (threadIdx.x < second)", "if (threadIdx.x < 2 * second)", "runs"),
    Mutant("reduce", "i = 1; i < fewer; i++", "i = 1; i <= fewer; i++", "columns"),
    Mutant("reduce", "along % lanes == 0) slots", "true) slots", "runs"),
    Mutant("reduce", "split < parts; split += Along", "split <= parts; split += Along", "long_row"),
    Mutant("reduce", "if (!first_of_row()) return;", "if (!stores()) return;", "long_row"),
    Mutant("reduce", "if (has(j)) kept.own[j] =", "kept.own[j] =", "kept"),
    Mutant("reduce", "if (has(j)) body(held_column(j), kept", "body(held_column(j), kept", "kept"),
    Mutant("segments", "if (thread <= rows)", "if (thread < rows)", "gather"),
    Mutant("segments", "__syncthreads();\n  for", "for", "gather"),
    Mutant("pointwise", "if (i < count) body(i);", "body(i);", "pointwise"),
)


PRODUCTS = ("contract", "loader", "registers", "split_k")
"""The headers of products."""


def edited(mutant: Mutant, text: str) -> str:
    """The text with headers in place of their inclusion, one of them changed."""
    return mistaken(mutant.header, (mutant.right, mutant.wrong))(text)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mistake_in_a_template_is_found(mutant: Mutant):
    device = simulator(check=True)
    node = NODES[mutant.node]
    played = Played(device, [node], lambda text: edited(mutant, text))
    arrays = arrays_of(node)
    if mutant.found:
        with pytest.raises(LaunchError, match=f"^{mutant.node}_"):
            played.run(node, arrays)
        return
    results = played.run(node, arrays)
    with pytest.raises(AssertionError):
        for got, want in zip(results, node.op.reference(*arrays), strict=True):
            assert_close(got, want, 1000)


def test_copies_that_a_failed_launch_leaves_are_not_held_against_the_next():
    contracts = [m for m in MUTANTS if m.header in PRODUCTS and m.found]
    node = NODES["gather"]
    for mutant in contracts:
        played = Played(
            simulator(check=True), [NODES[mutant.node]], lambda t, m=mutant: edited(m, t)
        )
        with pytest.raises(LaunchError):
            played.run(NODES[mutant.node], arrays_of(NODES[mutant.node]))
        arrays = arrays_of(node)
        results = Played(simulator(check=True), [node]).run(node, arrays)
        np.testing.assert_array_equal(results[0], node.op.reference(*arrays)[0])
