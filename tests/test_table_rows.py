"""Updates of tables write only the rows that a step reads, where the rule leaves the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.optim import rows
from tests.tools import need_module, need_nvrtc

ROWS, WIDTH = 40, 5
DEVICES = ["cpu", "sim", "reference"]


class Words(nn.Module):
    """A table and a layer behind it; `forward` looks rows up once or several times."""

    def __init__(self, padding: int | None = None) -> None:
        self.table = nn.Embedding(ROWS, WIDTH, padding)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.table(x))


def once(model: Words, x: Any) -> Any:
    return graphc.mean(graphc.square(model(x) - 1.0))


def twice(model: Words, x: Any) -> Any:
    """Two lookups of one table, the second of which is of fewer rows."""
    return once(model, x) + graphc.mean(graphc.exp(model.table(x[:3] // 2)) * 0.5)


def taken(model: Words, x: Any) -> Any:
    return graphc.mean(graphc.square(model.head(graphc.take(model.table.weight, x, 0)) - 1.0))


def subscripts(model: Words, x: Any) -> Any:
    return graphc.mean(graphc.square(model.head(model.table.weight[x]) - 1.0))


def batches(*shape: int) -> list[np.ndarray]:
    """Row numbers of five steps, with repeated ones and some that no row has."""
    random = np.random.default_rng(7)
    drawn = [random.integers(0, ROWS // 2, shape) for _ in range(5)]
    drawn[1].flat[:2] = ROWS + 3  # which no row has
    drawn[2][...] = 4
    return drawn


def rules() -> dict[str, Callable[[bool], optim.Rule]]:
    """Rules by name; with `whole` they do the same, and keep averages, which all rows have."""

    def average(whole: bool) -> float | None:
        return 0.9 if whole else None

    return {
        "sgd": lambda whole: optim.SGD(0.3, ema=average(whole)),
        "maximize": lambda whole: optim.SGD(0.3, maximize=True, ema=average(whole)),
        "scheduled": lambda whole: optim.SGD(lambda step: 0.3 / (1 + step), ema=average(whole)),
        "adagrad": lambda whole: optim.Adagrad(0.3, lr_decay=0.1, ema=average(whole)),
    }


def trained(
    loss: Any, rule: optim.Rule, x: list[np.ndarray], device: str = "cpu", **options: Any
) -> tuple[Words, Any]:
    graphc.seed(0)
    model = Words(options.pop("padding", None))
    spec = graphc.spec(x[0].shape, "i64")
    program = graphc.compile(loss, model, spec, update=rule, device=device, **options)
    for numbers in x:
        program(numbers)
    return model, program


def same_bits(ours: Words, theirs: Words) -> None:
    for name, array in ours.state_dict().items():
        np.testing.assert_array_equal(array, theirs.state_dict()[name], name)


def gradients_of_tables(program: Any) -> set[tuple[int, ...]]:
    """The shapes of the sums by row number that the program computes."""
    last = list(program.stages.values())[-1]
    values = (value for node in last.nodes for value in node.outputs)
    return {value.type.shape for value in values if "take_grad" in value.name}


def has_whole_gradient(program: Any) -> bool:
    """Whether the program computes a gradient of the table's size, or of its rows."""
    shapes = gradients_of_tables(program)
    assert shapes
    return (ROWS, WIDTH) in shapes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", rules())
@pytest.mark.parametrize("loss", [once, twice, taken, subscripts])
def test_rows_that_are_read_have_the_bits_of_an_update_of_all(
    loss: Any, name: str, device: str
) -> None:
    if device == "sim":
        need_nvrtc()
    rule = rules()[name]
    few, program = trained(loss, rule(False), batches(6), device)
    whole, other = trained(loss, rule(True), batches(6), device)
    same_bits(few, whole)
    assert not has_whole_gradient(program) and has_whole_gradient(other)


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 3), (19,)])
@pytest.mark.parametrize("padding", [None, 4])
def test_any_number_of_rows(shape: tuple[int, ...], padding: int | None) -> None:
    few, program = trained(once, optim.SGD(0.3), batches(*shape), padding=padding)
    whole, _ = trained(once, optim.SGD(0.3, ema=0.5), batches(*shape), padding=padding)
    same_bits(few, whole)
    assert not has_whole_gradient(program)


def test_a_lookup_in_each_step_of_a_long_loop() -> None:
    """More of them than Python calls may be inside one another."""
    graphc.seed(0)
    table = nn.Embedding(5_000, 3)

    def loss(table: Any, x: Any) -> Any:
        state = graphc.zeros((2, 3))
        for number in range(1_200):
            state = state * 0.5 + table(x[number])
        return graphc.mean(graphc.square(state))

    traced = graphc.compile(
        loss, table, graphc.spec((1_200, 2), "i64"), update=optim.SGD(0.1), device="reference"
    )
    before = table.weight.numpy().copy()
    traced(np.arange(2_400).reshape(1_200, 2) % 1_000)
    changed = np.any(table.weight.numpy() != before, axis=1)
    assert changed[:1_000].any() and not changed[1_000:].any()


def test_many_rows_of_a_small_table_are_updated_as_a_whole() -> None:
    count = ROWS // rows.SMALL
    _, program = trained(once, optim.SGD(0.3), batches(count))
    assert has_whole_gradient(program)
    _, program = trained(once, optim.SGD(0.3), batches(count - 1))
    assert not has_whole_gradient(program)


def test_a_table_that_is_multiplied_too_is_updated_as_a_whole() -> None:
    def tied(model: Words, x: Any) -> Any:
        return graphc.mean(model.table(x) @ graphc.matrix_transpose(model.table.weight))

    _, program = trained(tied, optim.SGD(0.3), batches(6))
    whole, _ = trained(tied, optim.SGD(0.3, ema=0.9), batches(6))
    same_bits(trained(tied, optim.SGD(0.3), batches(6))[0], whole)
    assert has_whole_gradient(program)


def test_groups_decide_for_their_parameters() -> None:
    """A table with momentum of its own is written whole, the other by its rows."""

    class Two(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Embedding(ROWS, WIDTH), nn.Embedding(ROWS + 1, WIDTH)

    graphc.seed(1)
    model = Two()
    groups = [{"params": model.b, "momentum": 0.9}, {"params": model.a}]
    program = graphc.compile(
        lambda m, x: graphc.mean(graphc.square(m.a(x) + m.b(x))),
        model,
        graphc.spec((4,), "i64"),
        update=optim.SGD(0.1, groups=groups),
    )
    kept = gradients_of_tables(program)
    assert (ROWS + 1, WIDTH) in kept and (ROWS, WIDTH) not in kept
    for numbers in batches(4):
        program(numbers % ROWS)


def test_the_norm_of_gradients_is_that_of_their_rows() -> None:
    few, program = trained(once, optim.SGD(0.3, clip_grad_norm=0.05), batches(6))
    whole, _ = trained(once, optim.SGD(0.3, clip_grad_norm=0.05, ema=0.9), batches(6))
    assert not has_whole_gradient(program)
    for name, array in few.state_dict().items():
        np.testing.assert_allclose(array, whole.state_dict()[name], 1e-5, 1e-6)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_sparse_adam_is_that_of_pytorch(device: str, maximize: bool) -> None:
    torch = need_module("torch")
    if device == "sim":
        need_nvrtc()
    options = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3, "maximize": maximize}
    graphc.seed(3)
    model = Words()
    table = torch.nn.Embedding(ROWS, WIDTH, sparse=True)
    table.weight.data = torch.tensor(model.table.weight.numpy())
    rule = optim.SparseAdam(**options)
    program = graphc.compile(
        lambda m, x: graphc.mean(graphc.square(m.table(x) - 1.0)),
        model,
        graphc.spec((2, 7), "i64"),
        update=rule,
        train=model.table,
        device=device,
    )
    theirs = torch.optim.SparseAdam(table.parameters(), **options)
    for number in range(20):
        x = np.random.default_rng(number).integers(0, ROWS, (2, 7))
        program(x)
        theirs.zero_grad()
        (table(torch.tensor(x)) - 1.0).square().mean().backward()
        theirs.step()
    np.testing.assert_allclose(model.table.weight.numpy(), table.weight.detach(), 2e-5, 1e-6)
    (kept,) = theirs.state.values()
    state = rule.state_dict()
    for moment in ("exp_avg", "exp_avg_sq"):
        np.testing.assert_allclose(state[f"{moment}.table.weight"], kept[moment], 2e-5, 1e-7)


def test_sparse_adam_takes_all_rows_of_a_small_table_too() -> None:
    def loss(model: Words, x: Any) -> Any:
        return graphc.mean(graphc.square(model.table(x) - 1.0))

    graphc.seed(0)
    model = Words()
    program = graphc.compile(
        loss, model, graphc.spec((90,), "i64"), update=optim.SparseAdam(), train=model.table
    )
    unread = model.table.weight.numpy()[5:].copy()
    program(np.arange(90) % 5)
    np.testing.assert_array_equal(model.table.weight.numpy()[5:], unread)


def test_sparse_adam_refuses_what_is_no_table() -> None:
    told = "SparseAdam: expected gradients of lookups (embedding, take) alone, that of head.weight"
    with pytest.raises(GraphError) as caught:
        graphc.compile(once, Words(), graphc.spec((6,), "i64"), update=optim.SparseAdam())
    assert told in str(caught.value)
    assert "f32[3,5] has other parts: update it by optim.Adam" in str(caught.value)
    assert "test_table_rows.py" in str(caught.value)


def test_a_subclass_that_computes_something_else_updates_all_rows() -> None:
    class Shrinking(optim.SGD):
        def apply(self, weight: Any, gradient: Any, moments: Any, scalars: Any) -> Any:
            return (weight * 0.5 - scalars[0] * gradient,)

    class Faster(optim.SGD):
        def scalars(self, rate: Any, step: Any) -> Any:
            return (rate * 2,)

    assert has_whole_gradient(trained(once, Shrinking(0.3), batches(6))[1])
    few, program = trained(once, Faster(0.3), batches(6))
    assert not has_whole_gradient(program)
    same_bits(few, trained(once, optim.SGD(0.6), batches(6))[0])


def test_explain_says_why_all_rows_are_written() -> None:
    for rule, count in ((optim.SGD(0.1, momentum=0.9), 1), (optim.Adam(), 1), (optim.SGD(0.1), 0)):
        _, program = trained(once, rule, batches(6))
        told = str(program.explain("table.weight"))
        assert told.count(f"its update writes all {ROWS} rows, though a step reads 6") == count


def test_a_program_that_was_planned_before_is_the_same(tmp_path: Any) -> None:
    first, _ = trained(once, optim.SGD(0.3), batches(6))
    second, program = trained(once, optim.SGD(0.3), batches(6))
    same_bits(first, second)
    assert not has_whole_gradient(program)


def test_a_step_costs_by_its_rows() -> None:
    """Of 200,000 rows of 256 bytes, 64 are read."""

    class Table(nn.Module):
        def __init__(self, count: int) -> None:
            self.table = nn.Embedding(count, 64)

    def loss(model: Table, x: Any) -> Any:
        return graphc.mean(graphc.square(model.table(x)))

    def median(count: int) -> float:
        x = np.random.default_rng(0).integers(0, count, 64)
        program = graphc.compile(
            loss, Table(count), graphc.spec((64,), "i64"), update=optim.SGD(0.1)
        )
        times = []
        for _ in range(30):
            begin = time.perf_counter()
            program(x)
            times.append(time.perf_counter() - begin)
        return float(np.median(times))

    assert median(200_000) < 10 * median(1_000)
