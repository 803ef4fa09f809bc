"""Images with their channels last on a GPU: which values, and that training means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import Layout
from graphc.ops.fused import kernels_in
from graphc.program import Program


def compiled(
    model: Any,
    shape: tuple[int, ...],
    device: str = "cuda",
    rule: optim.Rule | None = None,
    **settings: Any,
) -> Any:
    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x, rule = graphc.spec(shape), rule or optim.SGD(lr=0.1)
    return graphc.compile(loss, model, x, update=rule, device=device, **settings)


def layouts(program: Program) -> dict[str, Layout]:
    """Of all images with several channels that kernels make, by the kernel."""
    return {
        n.op.kernel: v.type.layout
        for n in kernels_in(program.graph)
        for v in n.outputs
        if v.type.rank == 4 and v.type.shape[2] > 1 and n.op.template != "relayout"
    }


def test_images_between_convolutions_have_channels_last_and_filters_of_whole_copies():
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU())
    found = layouts(compiled(model, (2, 3, 64, 64)))
    forward = {k: v for k, v in found.items() if "wgrad" not in k and "update" not in k}
    assert {v.width for v in forward.values() if v.axis == 1} == {8}
    assert all(v.axis is None for k, v in found.items() if "wgrad" in k or "update" in k)


def three(channels: int = 8) -> nn.Sequential:
    return nn.Sequential(*(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3)))


def test_filters_gradients_and_moments_lie_as_convolutions_read_them():
    program = compiled(three(), (16, 8, 64, 64), rule=optim.Adam(lr=1e-3))
    (node,) = (n for n in kernels_in(program.graph) if n.op.template == "relayout")
    assert [v.name for v in node.inputs] == ["x"]
    filters = [v for v in program.graph.state if v.type.rank == 4]
    assert len(filters) == 9 and {v.type.layout for v in filters} == {Layout(1, 8)}
    assert {v.width for k, v in layouts(program).items() if "wgrad" in k or "update" in k} == {8}
    for old, new in program.graph.updates:
        assert old.type == new.type


def test_changed_weights_that_are_no_whole_copies_are_converted_in_one_launch():
    program = compiled(three(6), (16, 6, 64, 64))
    (node,) = (n for n in kernels_in(program.graph) if n.op.template == "relayout")
    assert len(node.inputs) == 4  # and the images


def test_gradients_that_are_results_are_row_major_and_their_filters_are_not():
    def loss(model: Any, x: Any) -> Any:
        return graphc.mean(graphc.square(model(x)))

    def both(model: Any, x: Any) -> Any:
        value, gradients = graphc.value_and_grad(loss)(model, x)
        return value, gradients["0.weight"]

    model, rule = three(), optim.SGD(lr=0.1)
    spec = graphc.spec((16, 8, 64, 64))
    program = graphc.compile(both, model, spec, device="cuda", update=rule)
    assert all(v.type.layout.axis is None for v in program.graph.outputs)
    assert {v.type.layout.width for v in program.graph.state if v.type.rank == 4} == {8}


def test_weights_that_a_program_leaves_alone_are_converted_before_calls():
    spec = graphc.spec((16, 8, 64, 64))
    program = graphc.compile(lambda m, x: m(x), three(), spec, device="cuda", streams=1)
    assert sum(".last" in binding.value.name for binding in program.plan.state) == 3


def converts(program: Program) -> bool:
    return any(v.name.endswith(".last") for n in program.graph.nodes for v in n.outputs)


def test_a_cpu_has_no_channels_last_and_single_channels_are_not_converted(unbuilt):
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU())
    assert converts(compiled(model, (16, 8, 64, 64)))
    assert not converts(compiled(model, (16, 8, 64, 64), "cpu"))
    assert not converts(compiled(nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU()), (16, 1, 64, 64)))


ODD = [
    (3, 5, 8, (7, 7), (3, 3), {"padding": 1}),
    (1, 3, 20, (7, 7), (3, 3), {"stride": 2, "padding": 1}),
    (3, 1, 5, (5, 9), (3, 1), {"stride": 3}),
    (3, 20, 50, (9, 7), (3, 3), {"padding": 2, "dilation": 2}),
    (2, 4, 6, (8, 8), (5, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    (2, 4, 8, (8, 8), (3, 3), {"padding": 1, "groups": 2}),
]


PRECISIONS = ("tf32", "bfloat16", "float32")


@pytest.mark.parametrize(
    ("case", "precision"),
    [
        pytest.param(case, precision, marks=() if (n + m) % 3 == 0 else pytest.mark.slow)
        for n, case in enumerate(ODD)
        for m, precision in enumerate(PRECISIONS)
    ],
    ids=str,
)
def test_training_means_the_same(case: Any, precision: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHC_CHECK", "race")
    batch, before, inner, size, taps, settings = case
    graphc.seed(1)
    model = nn.Sequential(
        nn.Conv2d(before, inner, taps, padding=(taps[0] // 2, taps[1] // 2)),
        nn.ReLU(),
        nn.Conv2d(inner, inner, taps, **settings),
        nn.BatchNorm2d(inner),
        nn.ReLU(),
        nn.Conv2d(inner, before + 2, 1),
    )
    start, results = model.state_dict(), []
    x = np.random.default_rng(0).standard_normal((batch, before, *size)).astype("float32")
    for device in ("reference", "sim"):
        model.load_state_dict(start)
        step = compiled(model, x.shape, device, precision=precision)
        losses = [float(step(x)) for _ in range(2)]
        forward = graphc.compile(
            lambda m, x: m(x), model, graphc.spec(x.shape), device=device, precision=precision
        )
        results.append((losses, forward(x), model.state_dict()))
    (losses, y, state), (own_losses, own_y, own_state) = results
    near: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4 if precision == "float32" else 1e-2}
    np.testing.assert_allclose(own_losses, losses, **near)
    np.testing.assert_allclose(own_y, y, **near)
    for name, value in state.items():
        np.testing.assert_allclose(own_state[name], value, **near)


X = np.random.default_rng(0).standard_normal((2, 8, 24, 24)).astype(np.float32)


def filters_of(model: Any) -> list[Any]:
    return [p.state for _, p in model.named_parameters() if p.shape[2:] == (3, 3)]


def test_programs_share_a_copy_that_lies_alike_and_others_get_theirs_by_the_host():
    """Each trains the model in turn, which must be as if one program on the host had done so."""
    graphc.seed(0)
    model = three()
    start = model.state_dict()
    first, second = (compiled(model, X.shape, "sim") for _ in range(2))
    infer = graphc.compile(lambda m, x: m(x), model, graphc.spec(X.shape), device="sim")
    first(X), second(X)
    for buffer in filters_of(model):
        assert list(buffer.copies) == [buffer.current] and buffer.current != "sim"
        assert buffer.copies[buffer.current].version == buffer.version
    before = [buffer.array.copy() for buffer in filters_of(model)]
    y = infer(X)
    for buffer, array in zip(filters_of(model), before, strict=True):
        np.testing.assert_array_equal(buffer.array, array)  # nothing came to the host for it
    other = compiled(model, X.shape, "sim", disable="channels_last")
    other(X)
    assert {b.current for b in filters_of(model)} == {"sim"}
    first(X)
    found = model.state_dict()
    model.load_state_dict(start)
    step = compiled(model, X.shape, "reference")
    step(X), step(X)
    wanted = graphc.compile(lambda m, x: m(x), model, graphc.spec(X.shape), device="reference")
    np.testing.assert_allclose(y, wanted(X), rtol=1e-3, atol=1e-4)
    step(X), step(X)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"memory": "lean"}, {"streams": 2}], ids=str)
def test_contents_come_and_go_as_the_user_knows_them(settings: Any):
    model = three()
    step = compiled(model, X.shape, "sim", optim.SGD(lr=0.0, momentum=0.9), **settings)
    start = model.state_dict()
    step(X)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, start[name])
    model.load_state_dict({name: -value for name, value in start.items()})
    step(X)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, -start[name])
