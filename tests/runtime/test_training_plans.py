"""The plans of whole training steps: their memory beside its bound and beside PyTorch's, and their
orderings on every number of streams. Nothing is built or run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import PlanError
from graphc.ops.cost import node_bytes
from graphc.program import Program
from graphc.runtime.plan.plan import Launch, Record, Wait
from graphc.runtime.proof.verify import verify, verify_sequence
from tests.support.against_torch import LeNet, batch_norm_cnn, mlp, torch_lenet
from tests.tools import need_module

pytestmark = pytest.mark.usefixtures("unbuilt")

BATCH = 100
STREAMS = (1, 2, 3, 4, 8)
MODELS = {
    "lenet": (lambda _: LeNet(), optim.SGD(lr=0.1, momentum=0.9)),
    "mlp": (mlp, optim.Adam(lr=0.001)),
    "batch_norm": (batch_norm_cnn, optim.SGD(lr=0.1)),
}


def compiled(name: str, streams: int, **options: Any) -> Program:
    """The training program of a model, its kernels not built."""
    make, update = MODELS[name]

    def loss_fn(model: Any, x: Any, y: Any) -> Any:
        return graphc.cross_entropy(model(x), y)

    x, y = graphc.spec((BATCH, 1, 28, 28)), graphc.spec((BATCH,), "int32")
    options = {"update": update, "device": "cpu", "streams": streams, **options}
    return graphc.compile(loss_fn, make(nn), x, y, **options)


@pytest.mark.parametrize("name", MODELS)
def test_peak_is_within_a_twentieth_of_the_bound_on_one_stream(name: str) -> None:
    plan = compiled(name, 1).plan
    assert 0 < plan.lower_bound_bytes <= plan.peak_bytes <= 1.05 * plan.lower_bound_bytes


@pytest.mark.parametrize("name", MODELS)
def test_peak_is_at_most_what_pytorch_saves_and_one_operation(name: str) -> None:
    program = compiled(name, 1)
    largest = max(node_bytes(node) for node in program.stages["trace"].nodes)
    assert program.plan.peak_bytes <= bytes_saved_by_pytorch(name) + largest


def bytes_saved_by_pytorch(name: str) -> int:
    """Bytes of the storages that autograd keeps for the backward pass, parameters and inputs
    left out, each once."""
    torch = need_module("torch")
    model = torch_lenet() if name == "lenet" else MODELS[name][0](torch.nn)
    x, y = torch.randn(BATCH, 1, 28, 28), torch.zeros(BATCH, dtype=torch.int64)
    known = {t.untyped_storage().data_ptr() for t in (x, y, *model.parameters())}
    saved: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    assert loss.requires_grad
    return sum(t.untyped_storage().nbytes() for p, t in saved.items() if p not in known)


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("name", MODELS)
def test_no_event_can_be_dropped(name: str, streams: int) -> None:
    plan = compiled(name, streams).plan
    events = {s.event for s in plan.steps if isinstance(s, Record)}
    assert bool(events) == (streams > 1)
    mutants = [[s for s in plan.steps if getattr(s, "event", None) != e] for e in events]
    mutants += [[s for s in plan.steps if s is not w] for w in plan.steps if isinstance(w, Wait)]
    for steps in mutants:
        with pytest.raises(PlanError):
            verify(replace(plan, steps=tuple(steps)))


@pytest.mark.parametrize("streams", STREAMS[1:])
@pytest.mark.parametrize("name", MODELS)
def test_dgrad_and_wgrad_of_every_layer_run_on_different_streams(name: str, streams: int) -> None:
    plan = compiled(name, streams).plan
    halves: dict[str, dict[str, int]] = {"dgrad": {}, "wgrad": {}}
    for step in plan.steps:
        for half in halves:
            if isinstance(step, Launch) and half in step.kernel:
                halves[half][step.kernel.split(half)[0]] = step.stream
    both = halves["dgrad"].keys() & halves["wgrad"].keys()
    assert both
    assert all(halves["dgrad"][layer] != halves["wgrad"][layer] for layer in both)


def test_training_and_inference_of_a_model_may_follow_each_other() -> None:
    train = compiled("batch_norm", 4).plan
    evaluate = compiled("batch_norm", 2, update=None).plan
    shared = {b.value.name for b in train.state} & {b.value.name for b in evaluate.state}
    assert len(shared) > 6
    verify_sequence(train, evaluate)
    verify_sequence(evaluate, train)


def test_training_plan_updates_its_state_without_copies() -> None:
    for name in MODELS:
        plan = compiled(name, 2).plan
        assert all(isinstance(s, Launch | Record | Wait) for s in plan.steps)
