"""compile(precision=): what is multiplied is what the reference multiplies, on every device; how
far that is from float32; and what a program says of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ops.pointwise.tf32 import nearest_tf32
from tests.small_models import MODELS, loss_fn

BOUNDS = {"tf32": 2.0**-10, "bfloat16": 2.0**-7, "float32x3": 2.0**-20}
"""Of the error of a sum of products, relative to the sum of their magnitudes."""
EPS = 2.0**-24


def transposed(x: Any) -> Any:
    return graphc.permute_dims(x, (1, 0))


def product(a: Any, b: Any) -> Any:
    return graphc.matmul(a, transposed(b))


def operands(seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    a, b = (random.standard_normal(s).astype(np.float32) for s in [(19, 75), (23, 75)])
    return a * 2.0 ** random.integers(-20, 20, a.shape).astype(np.float32), b


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("device", ["cpu", "sim", "reference"])
def test_a_sum_is_as_near_as_is_said(precision: str, device: str):
    a, b = operands(0)
    specs = graphc.spec(a.shape), graphc.spec(b.shape)
    got = graphc.compile(product, *specs, device=device, precision=precision)(a, b)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    magnitude = np.abs(a).astype(np.float64) @ np.abs(b.T).astype(np.float64)
    error = np.abs(got - exact) / magnitude
    bound = BOUNDS[precision] + 3 * 75 * EPS
    assert error.max() <= bound
    if precision != "float32x3":
        assert error.max() > 75 * EPS, "the operands are rounded"


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_devices_multiply_the_same_numbers(precision: str, device: str):
    a, b = operands(1)
    specs = graphc.spec(a.shape), graphc.spec(b.shape)
    got, want = (
        graphc.compile(product, *specs, device=d, precision=precision)(a, b)
        for d in (device, "reference")
    )
    magnitude = np.abs(a) @ np.abs(b.T)
    assert (np.abs(got - want) <= 75 * 2 * EPS * magnitude).all()


def test_float32_is_exact_on_tensor_cores_devices():
    a, b = operands(2)
    program = graphc.compile(product, graphc.spec(a.shape), graphc.spec(b.shape), device="sim")
    assert all("Registers<" in text for text in program.kernels.values())
    assert (np.abs(program(a, b) - a @ b.T) <= 75 * 2 * EPS * (np.abs(a) @ np.abs(b.T))).all()


def test_numbers_are_rounded_to_the_nearest_of_ten_bits():
    one = np.float32(1)
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-11 - 2.0**-20, np.inf, np.nan], "f4")
    want = np.array([1, 1 + 2.0**-9, -1 - 2.0**-10, np.inf, np.nan], "f4")
    np.testing.assert_array_equal(nearest_tf32(x), want)
    assert nearest_tf32(one).shape == ()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_every_product_of_a_training_step_takes_tensor_cores(name: str, precision: str):
    """Those in loops too, and those that hoisting took out of them; but for some of few sums."""
    model, shape = MODELS[name]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    program = graphc.compile(
        loss_fn,
        model(),
        *specs,
        update=optim.SGD(lr=0.1),
        device="cuda",
        streams=1,
        precision=precision,
        disable="fuse_products",
    )
    contractions = [k for k in program.plan.kernels.values() if k.template == "contract"]
    assert contractions
    few = [
        k
        for k in contractions
        if not re.search("TensorCores<|Persistent(Product|Parts)<", k.source)
    ]
    said = {"tf32": "products of tf32", "bfloat16": "products of bf16"}[precision]
    assert sum(said in note for note in program.plan.notes) == len(contractions) - len(few)
    assert len(few) < len(contractions) / 2
    for kernel in few:
        why = "no tensor cores: for sums so few they are estimated to be slower"
        assert f"{kernel.name}: {why}" in program.plan.notes
    assert ("read_tf32" if precision == "tf32" else "bf16") in str(program.graph)


@pytest.mark.parametrize(
    ("precision", "name"),
    [("tf32", "mlp"), pytest.param("bfloat16", "recurrent", marks=pytest.mark.slow)],
)
def test_training_on_devices_follows_the_reference(precision: str, name: str):
    model, shape = MODELS[name]
    random = np.random.default_rng(0)
    x = random.standard_normal(shape).astype(np.float32)
    y = random.integers(0, 4, shape[:1]).astype(np.int32)

    def losses(device: str, **settings: Any) -> list[float]:
        graphc.seed(0)
        specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
        rule = optim.SGD(lr=0.1)
        step = graphc.compile(
            loss_fn, model(), *specs, update=rule, device=device, precision=precision, **settings
        )
        return [float(step(x, y)) for _ in range(3)]

    want = losses("reference")
    np.testing.assert_allclose(losses("cpu"), want, rtol=2.0**-10)
    got = losses("sim", streams=1)
    np.testing.assert_allclose(got, want, rtol=2.0**-10)
    assert losses("sim", streams=3) == got


def test_what_is_narrow_already_is_not_rounded_again():
    model = nn.Linear(24, 12).to("bfloat16")
    specs = (graphc.spec((8, 24), "bfloat16"),)
    plain, asked = (
        graphc.compile(model, *specs, device="cuda", streams=1, precision=p)
        for p in ("float32", "bfloat16")
    )
    assert plain.kernels == asked.kernels


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_behind_the_rounding_the_meaning_is_proved(precision: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")
    model, shape = MODELS["mlp"]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    program = graphc.compile(
        loss_fn, model(), *specs, update=optim.SGD(lr=0.1), device="cuda", precision=precision
    )
    (note,) = (n for n in program.plan.notes if n.startswith("meaning: "))
    assert note.endswith("results proved equal")


def test_what_loops_round_behind_hoisting_is_meant(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHC_CHECK", "meaning")
    h, w = graphc.spec((4, 8)), graphc.spec((8, 8))

    def fn(h: Any, w: Any) -> Any:
        return graphc.scan(lambda h, _: (graphc.tanh(h @ w), None), h, np.zeros(3, "f4"))[0]

    program = graphc.compile(fn, h, w, device="cuda", precision="bfloat16")
    assert "read_bf16" in str(program.graph)
    assert "meaning: 1 of 1 results proved equal" in program.plan.notes
