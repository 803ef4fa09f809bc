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


def compiled(model: Any, shape: tuple[int, ...], device: str = "cuda", **settings: Any) -> Any:
    def loss(model: Any, x: Any) -> Any:
        y = model(x)
        return graphc.mean(y * y)

    x = graphc.spec(shape)
    return graphc.compile(loss, model, x, update=optim.SGD(lr=0.1), device=device, **settings)


def layouts(program: Program) -> dict[str, Layout]:
    """Of all images with several channels that kernels make, by the kernel."""
    return {
        n.op.kernel: v.type.layout
        for n in kernels_in(program.graph)
        for v in n.outputs
        if v.type.rank == 4 and v.type.shape[2] > 1 and n.op.template != "relayout"
    }


def test_images_between_convolutions_have_channels_last_and_gradients_of_weights_do_not():
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU())
    found = layouts(compiled(model, (2, 3, 64, 64)))
    forward = {k: v for k, v in found.items() if "wgrad" not in k and "update" not in k}
    assert {v.width for v in forward.values() if v.axis == 1} == {8}
    assert all(v.axis is None for k, v in found.items() if "wgrad" in k or "update" in k)


def test_all_changed_weights_are_converted_in_one_launch_and_others_before_calls():
    model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)))
    program = compiled(model, (16, 8, 64, 64))
    (node,) = (n for n in kernels_in(program.graph) if n.op.template == "relayout")
    assert len(node.inputs) == 4  # and the images
    whole = graphc.compile(
        lambda m, x: m(x), model, graphc.spec((16, 8, 64, 64)), device="cuda", streams=1
    )
    assert sum(".last" in binding.value.name for binding in whole.plan.state) == 3


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
