"""linear_cross_entropy: what PyTorch's gives, of logits that are never in memory as a whole; and
the loop that is for: one whose gradient computes each iteration again."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.ops.fused import kernels_in
from graphc.ops.loops.scan import bodies
from tests.functions.comparison import Case, compare, labels, normal
from tests.tools import need_module

X, W, B, RARE = normal(11, 6), normal(7, 6, seed=1), normal(7, seed=2), np.abs(normal(7, seed=5))
Y = labels(7, 11)
Y[3] = -100
SHARES = np.abs(normal(11, 7, seed=4))
SETTINGS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum"},
    {"reduction": "none", "weight": RARE},
    {"weight": RARE, "label_smoothing": 0.2},
    {"ignore_index": 2, "label_smoothing": 0.1},
]


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


def theirs(torch: ModuleType, y: np.ndarray, settings: dict[str, Any]) -> Any:
    settings = {k: torch.tensor(v) if k == "weight" else v for k, v in settings.items()}

    def loss(_: ModuleType, x: Any, w: Any, b: Any) -> Any:
        logits = torch.nn.functional.linear(x, w, b)
        return torch.nn.functional.cross_entropy(logits, torch.tensor(y), **settings)

    return loss


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("chunk", [None, 1, 4, 5, 11, 12])
def test_values_and_gradients_are_pytorchs(
    torch: ModuleType, chunk: int | None, settings: dict[str, Any]
) -> None:
    y = np.where(Y < 0, settings.get("ignore_index", -100), Y)

    def ours(x: Any, w: Any, b: Any) -> Any:
        return f.linear_cross_entropy(x, w, y, b, chunk=chunk, **settings)

    compare(torch, Case("ours", ours, theirs(torch, y, settings), (X, W, B)))


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_target_may_be_probabilities(torch: ModuleType, chunk: int | None) -> None:
    def ours(x: Any, w: Any, b: Any) -> Any:
        return f.linear_cross_entropy(x, w, SHARES, b, RARE, chunk=chunk)

    compare(torch, Case("soft", ours, theirs(torch, SHARES, {"weight": RARE}), (X, W, B)))


def step(chunk: int | None, device: str, rows: tuple[int, ...] = (64,), **options: Any) -> Any:
    """A loss of 64 rows of 300 classes, and its gradients."""

    def loss(x: Any, w: Any, y: Any) -> Any:
        return graphc.linear_cross_entropy(x, w, y, chunk=chunk)

    specs = graphc.spec((*rows, 8)), graphc.spec((300, 8)), graphc.spec(rows, "int32")
    return graphc.compile(graphc.value_and_grad(loss, (0, 1)), *specs, device=device, **options)


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_no_value_holds_all_logits(device: str) -> None:
    arrays = [a.astype("f4") for a in (normal(4, 16, 8), normal(300, 8, seed=1))]
    arrays.append(labels(300, 4, 16, dtype="i4"))
    whole, parts = (step(n, device, (4, 16), streams=1) for n in (None, 16))
    got, want = parts(*arrays), whole(*arrays)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-6)
    for ours, theirs in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    graphs = (parts.graph, *bodies(parts.graph))
    sizes = [v.type.size for g in graphs for n in g.nodes for v in n.outputs]
    assert max(sizes) == 16 * 300 and kernels_in(parts.graph)
    assert parts.plan.peak_bytes < 64 * 300 * 4 < whole.plan.peak_bytes


def test_chunks_are_chosen_so_that_none_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphc.functions.network.losses.linear_loss.CHUNK_LOGITS", 30 * 300)
    (one, *_) = bodies(step(None, "reference").stages["trace"])
    assert one.inputs and {v.type.shape for v in one.inputs} >= {(16, 8), (16,)}


def test_what_does_not_fit_is_refused() -> None:
    x, w, y = graphc.spec((4, 8)), graphc.spec((5, 8)), graphc.spec((4,), "int32")
    name, flat, longer = "linear_cross_entropy", graphc.spec((8,)), graphc.spec((5,), "int32")
    wanted = "linear_cross_entropy: expected input [..., features] and a weight [c, features], got"
    rows = "linear_cross_entropy: chunk expected a number of rows, got 0"
    for arguments, chunk, message in (
        ((x, w, longer), None, f"{name}: input f32[4,8] and target i32[5] do not fit"),
        ((x, w, longer), None, "linear_cross_entropy: input f32[4,8]"),
        ((x, flat, y), None, f"{wanted} f32[4,8] and f32[8]"),
        ((x, w, y), 0, rows),
    ):
        with pytest.raises(GraphError, match=re.escape(message)):
            graphc.compile(lambda *a, n=chunk: graphc.linear_cross_entropy(*a, chunk=n), *arguments)


def recurrent(recompute: bool, **options: Any) -> Any:
    def loss(x: Any, w: Any, h: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = graphc.tanh(x @ w + h)
            return h, graphc.sum(h * h)

        _, ys = graphc.scan(step, h, x, recompute=recompute)
        return graphc.sum(ys)

    specs = graphc.spec((9, 4, 5)), graphc.spec((5, 6)), graphc.spec((4, 6))
    return graphc.compile(graphc.value_and_grad(loss, (0, 1, 2)), *specs, **options)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_loop_that_computes_again_keeps_its_work_and_its_meaning(device: str) -> None:
    arrays = [normal(*s).astype("f4") for s in ((9, 4, 5), (5, 6), (4, 6))]
    kept, again = (recurrent(r, device=device) for r in (False, True))
    for ours, theirs in zip(again(*arrays)[1], kept(*arrays)[1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    inside = [
        sum(n.op.contracts for g in bodies(p.stages["hoist_gradient"]) for n in g.nodes)
        for p in (kept, again)
    ]
    assert inside == [0, 4]  # x w, and once more; the gradients of x and of w
