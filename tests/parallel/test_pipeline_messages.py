"""What is refused of pipelines, and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, ops, optim
from graphc.base.errors import GraphError, RunError
from graphc.ir import Type

SPEC = graphc.spec((4, 3))
LINE = r" \(test_pipeline_messages\.py:\d+\)"


def stage(batches: int = 2, names: Any = None, *, rank: int = 0, ranks: int = 2) -> Any:
    """One rank of several, without the others: to compile, not to run."""
    parallel = graphc.PipelineParallel(batches)
    parallel.rank, parallel.ranks, parallel.stages = rank, ranks, names
    return parallel


def loss_of(model: Any, x: Any) -> Any:
    return graphc.mean(model(x) ** 2)


def chain(layers: int = 2) -> Any:
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(layers)))


def step(parallel: Any, model: Any = None, fn: Any = loss_of, **options: Any) -> Any:
    options = {"update": optim.SGD(lr=0.1), **options}
    return graphc.compile(fn, model or chain(), SPEC, parallel=parallel, **options)


class Own(optim.SGD):
    """A rule that writes its update itself."""

    def emit(self, builder: Any, gradients: Any) -> None:
        super().emit(builder, gradients)


def twice(model: Any, x: Any) -> Any:
    """A loss that the last layer has no part in."""
    first, second = model
    return graphc.mean(first(x)), second(x)


def shows(model: Any, x: Any) -> Any:
    graphc.tap(model(x), "seen")
    return loss_of(model, x)


class Counting(nn.Module):
    """Reads what its second layer changes then."""

    def __init__(self) -> None:
        self.layers = [nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)]

    def forward(self, x: Any) -> Any:
        first, norm, last = self.layers
        return last(norm(first(x) + graphc.as_tensor(norm.running_mean)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: graphc.PipelineParallel(0),
            "micro_batches: expected a number from 1 up, got 0",
        ),
        (
            lambda: graphc.PipelineParallel(2, "0"),
            "stages: expected a list of names of modules, got '0'",
        ),
        (
            lambda: graphc.PipelineParallel(2, ["1"]),
            "stages: expected the beginnings of 0 stages behind the first, one for each other "
            "rank, got ['1']",
        ),
        (
            lambda: step(stage(ranks=5)),
            "stages: 5 ranks expected as many operations that are the first to read a trained "
            "parameter, the function has 4",
        ),
        (
            lambda: step(stage(names=["2"])),
            "stages: no module '2' is called, only 0, 1",
        ),
        (
            lambda: step(stage(names=["2", "1"], ranks=3), chain(3)),
            "stages: expected them in the order in which they are called, 1 is not behind the "
            "beginning of 2",
        ),
        (
            lambda: step(stage(names=["2"]), nn.Sequential(*chain(), nn.ReLU())),
            "stages: expected each to be the first to read a trained parameter, stage 1 reads none",
        ),
        (
            lambda: step(stage(), fn=twice),
            "stages: the loss depends on none of the parameters of the last stage",
        ),
        (
            lambda: step(stage(), fn=shows),
            "show and tap: in a pipeline expected none, values are on several ranks",
        ),
        (
            lambda: step(stage(names=["layers.1"]), Counting()),
            "stages: layers.1.running_mean is changed on stage 1 and read on stage 0: begin stages "
            "elsewhere",
        ),
        (
            lambda: step(stage(3)),
            "micro_batches=3: expected a batch of 3 equal parts, got x 4",
        ),
        (
            lambda: step(stage(), accumulate=2),
            "accumulate: with PipelineParallel, which has micro_batches=, expected 1",
        ),
        (
            lambda: step(stage(), update=None, gradients=True),
            "gradients: with PipelineParallel, whose ranks have a part each, expected False",
        ),
        (
            lambda: step(stage(), update=optim.DPSGD(lr=0.1, clip=1.0, noise=1.0)),
            "parallel: DPSGD expected one process, since its noise is that of one batch",
        ),
        (
            lambda: step(stage(), mixed="float16"),
            "mixed: with PipelineParallel expected None or 'bfloat16', since 'float16' skips steps "
            "by the gradients of all stages",
        ),
        (
            lambda: step(stage(), update=Own(lr=0.1, clip_grad_norm=1.0)),
            "clip_grad_norm: with PipelineParallel expected a rule that defines apply, Own has an "
            "emit of its own",
        ),
        (
            lambda: step(3),
            "parallel: expected graphc.DataParallel() or PipelineParallel(), got int",
        ),
        (
            lambda: graphc.compile(
                loss_of,
                chain(),
                graphc.spec(("batch", 3)),
                update=optim.SGD(lr=0.1),
                parallel=stage(),
            ),
            "parallel: PipelineParallel expected specs of whole numbers, got named axes",
        ),
        (
            lambda: ops.Send(1).infer(Type((3,), "f32")),
            "send: expected a token bool[] and 1 more, got f32[3]",
        ),
        (
            lambda: ops.Share(1, (3,), "f32").infer(ops.TOKEN, Type((2,), "f32")),
            "share: expected f32[3], got f32[2]",
        ),
    ],
)
def test_wrong_pipelines_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError) as found:
        call()
    assert str(found.value).partition(" (test_pipeline")[0] == message


def test_a_later_program_must_call_the_modules_of_all_stages() -> None:
    parallel, model = stage(), chain()
    step(parallel, model)
    with pytest.raises(GraphError) as found:
        graphc.compile(lambda m, x: m[0](x), model, SPEC, parallel=parallel)
    assert str(found.value).partition(" (test_pipeline")[0] == (
        "stages: the function reads no parameter of stage 1, which has some by the program "
        "compiled before: expected one that calls the same modules"
    )


def test_parameters_of_other_stages_have_left() -> None:
    parallel, model = stage(), chain()
    program = step(parallel, model)
    program.staged.owners["1.weight"] = 1  # as the other rank would say
    assert np.shares_memory(model[0].weight.state.array, model[0].weight.state.array)
    kept = np.ones((3, 3), np.float32)
    weight = model[1].weight
    weight.state.leave("1.weight: is on rank 1")
    assert weight.type == Type((3, 3), "f32")
    assert not any(weight.state.array.strides), "no memory is behind it"
    with pytest.raises(RunError, match=r"^1\.weight: is on rank 1$"):
        model.state_dict()
    weight.state.assign(kept)
    np.testing.assert_array_equal(model.state_dict()["1.weight"], kept)
