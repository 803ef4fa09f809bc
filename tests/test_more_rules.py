"""Update rules that PyTorch lacks or computes in bfloat16, rules on devices, and their launches."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from tests.support.optim import SHAPES, STEPS, Training, Weights, assert_same, gradient
from tests.tools import need_module

# fmt: off
RULES: list[tuple[str, dict[str, Any]]] = [
    ("Adam", {"amsgrad": True}), ("AdamW", {"maximize": True}), ("NAdam", {"weight_decay": 0.1}),
    ("RAdam", {}), ("Adamax", {}), ("Adadelta", {}), ("Rprop", {}), ("ASGD", {"t0": 1}),
    ("Lion", {"weight_decay": 0.1}), ("LAMB", {"weight_decay": 0.1}), ("RMSprop", {}),
    ("Adagrad", {}), ("SGD", {"momentum": 0.9}),
]
# fmt: on


def trained(step: Any) -> dict[str, np.ndarray]:
    """The weights after STEPS steps of `step(weight, gradient, memory, number)` in float64."""
    weights = {n: a.astype(np.float64) for n, a in Weights().state_dict().items()}
    memory: dict[str, dict[str, Any]] = {name: {} for name in SHAPES}
    for number in range(STEPS):
        for name, weight in weights.items():
            g = gradient(name, number).astype(np.float64)
            weights[name] = step(weight, g, memory[name], number + 1)
    return {name: array.astype(np.float32) for name, array in weights.items()}


def ours(rule: optim.Rule) -> dict[str, np.ndarray]:
    training = Training(rule)
    for number in range(STEPS):
        training.step(number)
    return training.weights.state_dict()


def test_lion_is_its_formula() -> None:
    def step(w: Any, g: Any, memory: dict[str, Any], _: int) -> Any:
        m = memory.get("m", 0.0)
        memory["m"] = 0.95 * m + 0.05 * g
        return w * (1 - 0.01 * 0.2) - 0.01 * np.sign(0.8 * m + 0.2 * g)

    rule = optim.Lion(lr=0.01, betas=(0.8, 0.95), weight_decay=0.2)
    assert_same(ours(rule), trained(step))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb_is_its_formula(decay: float) -> None:
    def step(w: Any, g: Any, memory: dict[str, Any], t: int) -> Any:
        m = memory["m"] = 0.9 * memory.get("m", 0.0) + 0.1 * g
        v = memory["v"] = 0.99 * memory.get("v", 0.0) + 0.01 * g * g
        u = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6) + decay * w
        own, moved = np.linalg.norm(np.ravel(w)), np.linalg.norm(np.ravel(u))
        return w - 0.01 * (own / moved if own and moved else 1.0) * u

    assert_same(ours(optim.LAMB(0.01, (0.9, 0.99), weight_decay=decay)), trained(step))


def test_lamb_moves_weights_that_are_zero() -> None:
    model = nn.Linear(3, 2)
    model.weight.assign(np.zeros((2, 3), np.float32))
    step = graphc.compile(
        lambda m, x: graphc.mean(m(x)), model, graphc.spec((4, 3)), update=optim.LAMB(lr=0.1)
    )
    step(np.ones((4, 3), np.float32))
    np.testing.assert_allclose(model.weight.numpy(), -0.1, rtol=1e-4)


@pytest.mark.parametrize("shape", [(6, 4), (4, 10), (8, 8)])
@pytest.mark.parametrize(
    "options", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}]
)
def test_muon_agrees_with_pytorch(shape: tuple[int, int], options: dict[str, Any]) -> None:
    """To the digits of bfloat16, in which both find the direction."""
    torch = need_module("torch")
    random = np.random.default_rng(0)
    start = random.standard_normal(shape).astype(np.float32)
    pulls = random.standard_normal((20, *shape)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.Muon([theirs], lr=0.02, **options)
    weight = nn.Parameter(start)
    step = graphc.compile(
        lambda w, g: graphc.sum(w * g),
        weight,
        graphc.spec(shape),
        update=optim.Muon(lr=0.02, **options),
        device="cpu",
    )
    for pull in pulls:
        theirs.grad = torch.tensor(pull)
        optimizer.step()
        step(pull)
    moved = np.abs(theirs.detach().numpy() - start).max()
    np.testing.assert_allclose(weight.numpy(), theirs.detach().numpy(), rtol=0, atol=0.03 * moved)


def test_muon_is_for_matrices() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(GraphError, match="Muon: expected matrices, got a param") as caught:
        graphc.compile(
            lambda m, x: graphc.mean(m(x)), model, graphc.spec((4, 3)), update=optim.Muon()
        )
    said = (
        "f32[2]: say with train= which parameters it is for, "
        "and update the others by a program with another rule"
    )
    assert said in str(caught.value)


@pytest.mark.parametrize(("name", "options"), RULES, ids=[n for n, _ in RULES])
def test_rules_on_devices_and_in_one_launch(name: str, options: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    weights = {}
    for device in ("reference", "cpu", "sim"):
        graphc.seed(0)
        model = nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3))
        step = graphc.compile(
            lambda m, x: graphc.mean(graphc.square(m(x))),
            model,
            graphc.spec((5, 7)),
            update=getattr(optim, name)(**options),
            device=device,
        )
        for _ in range(3):
            step(x)
        weights[device] = model.state_dict()
        if step.plan is not None and name != "LAMB":
            updates = {f"{p}" for p in model.state_dict()}
            writers = [k for k in step.graph.nodes if updates & written(step.graph, k)]
            assert len(writers) == 1, [n.op.kernel for n in writers]
    for device in ("cpu", "sim"):
        for parameter, array in weights["reference"].items():
            np.testing.assert_allclose(
                weights[device][parameter], array, rtol=1e-4, atol=1e-6, err_msg=parameter
            )


def written(graph: graphc.ir.Graph, node: graphc.ir.Node) -> set[str]:
    """The state that a node's results become."""
    return {old.name for old, new in graph.updates if new in node.outputs}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: optim.Rprop(etas=(1.5, 2.0)),
            "Rprop: etas expected 0 <= etas[0] < 1 < etas[1], got (1.5",
        ),
        (lambda: optim.Rprop(step_sizes=3), "Rprop: step_sizes expected a pair of numbers, got 3"),
        (lambda: optim.Lion(betas=0.9), "Lion: betas expected a pair of numbers in [0, 1), got 0."),
        (
            lambda: optim.Muon(adjust_lr_fn="x"),
            "Muon: adjust_lr_fn expected None, 'original' or 'match_rms_adamw', got 'x'",
        ),
        (
            lambda: optim.Muon(ns_coefficients=1),
            "Muon: ns_coefficients expected three numbers, got 1",
        ),
        (lambda: optim.Adadelta(rho=-1), "Adadelta: rho expected a number in [0, inf), got -1"),
    ],
)
def test_arguments_that_are_wrong(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        make()


def test_lbfgs_is_scipys() -> None:
    with pytest.raises(AttributeError, match=r"graphc\.optim has no 'LBFGS': .*scipy\.optimize"):
        optim.LBFGS  # noqa: B018
