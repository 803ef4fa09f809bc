"""Whole training programs on the CPU: what is launched and read, and that bits do not depend on
streams or threads."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.program import Program
from graphc.runtime.plan.plan import Launch, Range
from tests.support.against_torch import LeNet, batch_norm_cnn
from tests.tools import first_quick

BATCH = 20
MODELS = {"lenet": lambda: LeNet(), "batch_norm": lambda: batch_norm_cnn(nn)}


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def trainer(name: str, batch: int = BATCH, **options: Any) -> Program:
    graphc.seed(0)
    specs = graphc.spec((batch, 1, 28, 28)), graphc.spec((batch,), "int32")
    rule = optim.SGD(lr=0.05, momentum=0.9)
    return graphc.compile(loss_fn, MODELS[name](), *specs, update=rule, device="cpu", **options)


def launches(program: Program) -> list[Launch]:
    return [s for s in program.plan.steps if isinstance(s, Launch)]


def nbytes(ranges: tuple[Range, ...], *words: str) -> int:
    """Bytes of the ranges whose value has one of the words in its name."""
    return sum(r.stop - r.start for r in ranges if any(w in r.value for w in words))


def test_lenet_has_one_kernel_for_each_layer_forward(unbuilt):
    names = [s.kernel for s in launches(trainer("lenet", 100)) if not s.where.derived]
    layers = [n for n in names if n.startswith(("conv", "fc"))]
    assert layers == [
        "conv1_bias_max_pool2d_relu",
        "conv2_bias_max_pool2d_relu",
        "fc1_bias_relu",
        "fc2_bias",
    ]
    assert not any(n.startswith(("relu", "max_pool", "add")) for n in names)


def test_the_loss_and_its_gradient_are_one_kernel_over_the_classes(unbuilt):
    steps = launches(trainer("lenet", 100))
    readers = [s for s in steps if any(r.value == "fc2.add" for r in s.reads)]
    assert len(readers) == 1


@pytest.mark.parametrize("layer", ["conv1", "conv2"])
def test_activation_backward_and_bias_gradient_read_the_data_once(layer, unbuilt):
    """The pooled gradient (masked by relu where it was made) and the winners' places are read once,
    by one kernel that writes the convolution's gradient and its bias gradient."""
    program = trainer("lenet", 100)
    own = [s for s in launches(program) if s.kernel.startswith(f"{layer}_d_")]
    assert [s.kernel for s in own] == [f"{layer}_d_max_pool2d_grad_sum"]
    written = [r.value for r in own[0].writes]
    assert f"d.{layer}.sum" in written and len([v for v in written if "workspace" not in v]) == 2
    gradient = next(v for v in written if "max_pool2d_grad" in v and "workspace" not in v)
    pooled = next(r for r in own[0].reads if r.value.startswith("d.relu_grad"))
    places = next(r for r in own[0].reads if r.value.startswith("max_pool2d"))
    for value, readers in ((pooled.value, 1), (places.value, 1), (gradient, None)):
        count = sum(any(r.value == value for r in s.reads) for s in launches(program))
        assert count == (readers or count)
    total = nbytes(own[0].reads, "")
    assert total == (pooled.stop - pooled.start) + (places.stop - places.start)


def test_one_launch_updates_all_parameters(unbuilt):
    program = trainer("lenet", 100)
    parameters = {n for n, _ in LeNet().named_parameters()}
    places = {b.value.name: b.place for b in program.plan.state if b.value.name in parameters}
    assert len(places) == 8
    writers = [
        s.kernel
        for s in launches(program)
        if any(w.overlaps(p) for w in s.writes for p in places.values())
    ]
    assert writers == ["sgd_update"]


def trained_state(name: str, streams: int, threads: int) -> dict[str, bytes]:
    program = trainer(name, streams=streams, threads=threads)
    generator = np.random.default_rng(1)
    for _ in range(10):
        x = generator.random((BATCH, 1, 28, 28), dtype=np.float32)
        program(x, generator.integers(0, 10, BATCH).astype(np.int32))
    return {n: v.tobytes() for n, v in program.state_dict().items()}


ORDERS = [(1, 1), (1, 2), (2, 1), (3, 2), (8, 2)], [*itertools.product((1, 2, 3, 4, 8), (1, 2))]
"""Numbers of streams and threads: some, and all."""


@pytest.mark.parametrize("orders", first_quick(1, ORDERS), ids=["some", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_parameters_have_the_same_bits_for_every_stream_and_thread_count(name, orders):
    expected = trained_state(name, 1, 1)
    for streams, threads in orders:
        assert trained_state(name, streams, threads) == expected, (streams, threads)


def test_the_stream_count_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_STREAMS", "3")
    assert trainer("lenet").plan.streams == 3
    monkeypatch.setenv("GRAPHC_NUM_STREAMS", "auto")
    plan = trainer("lenet").plan
    assert f"streams: auto chose {plan.streams}: " in str(plan)


def test_a_nan_is_reported_with_its_origin_and_changes_nothing(monkeypatch):
    monkeypatch.setenv("GRAPHC_CHECK", "nan")
    program = trainer("lenet")
    x = np.zeros((BATCH, 1, 28, 28), np.float32)
    y = np.zeros(BATCH, np.int32)
    program(x, y)
    before = program.state_dict()
    x[3, 0, 5, 5] = np.nan
    with pytest.raises(graphc.RunError) as error:
        program(x, y)
    assert str(error.value) == (
        "NaN in %x : f32[20,1,28,28], before the first kernel; the state is unchanged"
    )
    for name, value in program.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
