"""Programs that are found in the cache: they are those that were planned, and never others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ops.base import REGISTRY, Pointwise
from graphc.program import loading
from graphc.program.update import Update
from graphc.runtime import plan_store
from graphc.runtime.plan.saved import decoded, encoded
from graphc.trace import emit
from tests.tools import need_command

X = np.linspace(-1.0, 1.0, 3 * 5 * 8 * 7, dtype=np.float32).reshape(3, 5, 8, 7)
LABELS = np.array([0, 2, 1], np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels stay from test to test, plans do not."""
    need_command("g++", "clang++")
    for path in files(folder):
        path.unlink()
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(folder))
    monkeypatch.setenv("GRAPHC_PLAN_CACHE", "1")


def files(folder: Path) -> list[Path]:
    return sorted((folder / "plans").glob("*.plan"))


class Net(nn.Module):
    """A convolution whose weights are packed, statistics, dropout, a loop, large constants, one
    of which a pass computes."""

    def __init__(self) -> None:
        graphc.seed(3)
        self.conv = nn.Conv2d(5, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.25)
        self.rnn = nn.LSTM(6, 4)
        self.head = nn.Linear(4, 3)
        self.places = np.arange(56, dtype=np.float32)[:, None]

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        y = self.drop(graphc.relu(self.norm(self.conv(x))))
        rows = graphc.transpose(graphc.reshape(y, (3, 6, 56)), (2, 0, 1))
        rows = (
            rows * graphc.sin(graphc.reshape(rows[0] * 0.0, (18, 1))[:1] + self.places)[:, :, None]
        )
        hidden, _ = self.rnn(rows)
        return self.head(hidden[-1])


def loss_fn(model: Net, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.cross_entropy(model(x), y)


def trained(**options: Any) -> tuple[graphc.Program, list[Any]]:
    """A program, and what three steps of it gave and left."""
    graphc.seed(0)
    options = {"update": optim.Adam(lr=0.01), "device": "cpu", "streams": 1, "seed": 1, **options}
    specs = graphc.spec(X.shape), graphc.spec(LABELS.shape, "int32")
    step = graphc.compile(loss_fn, Net(), *specs, **options)
    losses = [step(X, LABELS) for _ in range(3)]
    return step, [*losses, *step.state_dict().values()]


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("planned again")


def test_what_was_planned_is_found_again_and_is_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, expected = trained()
    assert len(files(folder)) == 1
    monkeypatch.setattr(loading, "planned", refuse)
    monkeypatch.setattr(loading, "lowered", refuse)
    differentiate = Update.differentiate
    monkeypatch.setattr(Update, "differentiate", refuse)
    again, got = trained()
    monkeypatch.setattr(Update, "differentiate", differentiate)
    assert str(again.plan) == str(first.plan)
    assert again.plan == first.plan
    assert again.kernels == first.kernels
    assert list(again.state_dict()) == list(first.state_dict())
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)
    assert {n: str(g) for n, g in again.stages.items()} == {
        n: str(g) for n, g in first.stages.items()
    }
    assert str(again.graph) == str(first.graph)


def test_what_is_found_can_be_explained_and_profiled(tmp_path: Path) -> None:
    first, _ = trained()
    again, _ = trained()
    kernel = next(iter(first.kernels))
    assert str(again.explain(kernel)) == str(first.explain(kernel))
    assert str(again.memory()) == str(first.memory())
    assert len(again.profile(X, LABELS, repeats=2).rows) == len(
        first.profile(X, LABELS, repeats=2).rows
    )
    again.dump(tmp_path / "dump")
    assert list((tmp_path / "dump").iterdir())


def test_lazy_stages_are_not_made_by_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    trained()
    again, _ = trained()
    assert "stages" not in vars(again)
    assert next(iter(again.stages)) == "trace"
    assert "stages" in vars(again)


def ends_in_bias(name: str) -> bool:
    return name.endswith("bias")


REST: dict[str, Any] = {"params": lambda name: True}
CHANGES: dict[str, dict[str, Any]] = {
    "pass": {"disable": ("commute",)},
    "precision": {"precision": "bfloat16"},
    "streams": {"streams": 2},
    "threads": {"threads": 1 if graphc.base.config.read().threads > 1 else 2},
    "rule": {"update": optim.SGD(lr=0.01)},
    "betas": {"update": optim.Adam(lr=0.01, betas=(0.8, 0.9))},
    "clip": {"update": optim.Adam(lr=0.01, clip_grad_norm=1.0)},
    "group": {"update": optim.Adam([{"params": ends_in_bias, "lr": 0.1}, REST], lr=0.01)},
    "train": {"train": ends_in_bias},
    "mode": {"training": False},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_asked_for_is_part_of_the_key(change: str, folder: Path) -> None:
    def compiled(**changed: Any) -> None:
        options: dict[str, Any] = {"update": optim.Adam(lr=0.01), "streams": 1, **changed}
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5))
        loss = lambda m, x: graphc.mean(m(x))  # noqa: E731
        graphc.compile(loss, model, graphc.spec((4, 8)), device="cpu", **options)

    compiled()
    compiled(**CHANGES[change])
    assert len(files(folder)) == 2


class TwoHeads(nn.Module):
    """A head that the loss reads and no gradient reaches, and one that it does not read."""

    def __init__(self) -> None:
        graphc.seed(3)
        self.body, self.still, self.unread = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        hidden = self.body(x)
        return graphc.mean(hidden) + graphc.mean(graphc.stop_gradient(self.still(hidden)))


def test_what_has_no_gradient_is_left_alone_again() -> None:
    def compiled() -> tuple[graphc.Program, TwoHeads, optim.Adam]:
        model, rule = TwoHeads(), optim.Adam(lr=0.01)
        loss = lambda m, x: m(x)  # noqa: E731
        spec = graphc.spec((4, 8))
        step = graphc.compile(loss, model, spec, update=rule, device="cpu", streams=1)
        step(np.ones((4, 8), np.float32))
        return step, model, rule

    (first, _, rule), (again, model, other) = compiled(), compiled()
    assert "stages" not in vars(again)
    assert list(rule.state_dict()) == list(other.state_dict())
    assert not any("still" in name or "unread" in name for name in other.state_dict())
    for name, array in first.state_dict().items():
        np.testing.assert_array_equal(array, again.state_dict()[name])
    model.body.weight.trainable = False
    with pytest.raises(graphc.base.errors.GraphError, match=r"body\.weight had trainable=True"):
        again(np.ones((4, 8), np.float32))


def test_rules_that_update_in_a_way_of_their_own_are_not_remembered(folder: Path) -> None:
    class Looks(optim.SGD):
        def emit(self, builder: Any, gradients: Any) -> None:
            super().emit(builder, gradients)

    model, spec = nn.Linear(8, 8), graphc.spec((4, 8))
    for rule in (Looks(lr=0.1), optim.SGD(lr=0.1)):
        graphc.compile(lambda m, x: graphc.mean(m(x)), model, spec, update=rule, device="cpu")
        assert len(files(folder)) == isinstance(rule, Looks) ^ 1


def small(function: Callable[..., Any] = lambda x: graphc.exp(x) * 2.0, **options: Any) -> Any:
    return graphc.compile(function, graphc.spec((4, 3)), device="cpu", streams=1, **options)


def test_the_environment_and_the_sources_are_part_of_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small()
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "7")
    small()
    assert len(files(folder)) == 2
    monkeypatch.setattr(plan_store, "sources_stamp", lambda: "other sources")
    small()
    monkeypatch.setattr(plan_store, "toolchain", lambda: "other compiler")
    small()
    assert len(files(folder)) == 4


@pytest.mark.parametrize("how", ["check", "tune", "limit", "lean", "off"])
def test_what_depends_on_more_is_not_remembered(
    how: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {}
    if how == "check":
        monkeypatch.setenv("GRAPHC_CHECK", "nan")
    elif how == "off":
        monkeypatch.setenv("GRAPHC_PLAN_CACHE", "0")
    else:
        options = {"tune": True} if how == "tune" else {"memory": "1M" if how == "limit" else how}
    np.testing.assert_allclose(
        small(**options)(np.zeros((4, 3), np.float32)), np.full((4, 3), 2.0), rtol=1e-6
    )
    assert files(folder) == []


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_is_no_plan(damage: str, folder: Path) -> None:
    small()
    (path,) = files(folder)
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(
        {
            "cut": content[:half],
            "changed": content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :],
            "empty": b"",
        }[damage]
    )
    x = np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(small()(x), small()(x))
    assert path.read_bytes() == content


def test_a_plan_that_does_not_hold_is_refused(folder: Path) -> None:
    chain = lambda x: graphc.sum(graphc.exp(x) @ graphc.transpose(graphc.exp(x)), 0)  # noqa: E731
    small(chain)
    (path,) = files(folder)
    body, keys = plan_store.cache.unsealed(path.read_bytes())
    text = body.decode()
    assert '"work",0,' in text
    moved = text.replace('"work",0,', '"work",4,', 1)
    path.write_bytes(plan_store.cache.sealed(moved.encode(), keys))
    with pytest.raises(graphc.base.errors.PlanError):
        small(chain)


def test_kernels_that_left_the_cache_are_built_again(folder: Path) -> None:
    x = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)
    expected = small()(x)
    for path in (folder / "cpu").glob("*.so"):
        if not path.name.startswith("player"):
            path.unlink()
    np.testing.assert_array_equal(small()(x), expected)
    assert len(files(folder)) == 1


def test_programs_with_ops_of_the_users_own_are_not_remembered(folder: Path) -> None:
    for power in (2, 3):
        members = {
            "name": "power",
            "meaning": lambda x, power=power: x**power,
            "expression": " * ".join(["{a}"] * power),
        }
        op: Any = type("Power", (Pointwise,), members)()
        try:
            found = small(lambda x, op=op: emit(op, x))(np.full((4, 3), 2.0, np.float32))
        finally:
            REGISTRY.pop("power")
        np.testing.assert_array_equal(found, np.full((4, 3), 2.0**power, np.float32))
    assert files(folder) == []


def test_other_weights_and_lines_of_another_model_are_not_mixed_up() -> None:
    def doubled(x: graphc.Tensor) -> graphc.Tensor:
        return x * np.full(40, 2.0, np.float32)

    def tripled(x: graphc.Tensor) -> graphc.Tensor:
        return x * np.full(40, 3.0, np.float32)

    tripled.__name__ = "doubled"
    x = np.ones(40, np.float32)
    for function, factor in ((doubled, 2), (tripled, 3), (doubled, 2)):
        found = graphc.compile(function, graphc.spec((40,)), device="cpu", streams=1)(x)
        np.testing.assert_array_equal(found, factor * x)


def test_plans_are_written_and_read_without_loss() -> None:
    step, _ = trained(streams=2)
    plan = step.plan
    assert plan is not None
    assert decoded(encoded(plan)) == plan
    with pytest.raises(TypeError, match="no part of a plan: ndarray"):
        encoded((1, np.zeros(3)))


def test_the_stamp_of_the_sources_is_another_when_a_file_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "a.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("not a source")
    monkeypatch.setattr(plan_store, "_PACKAGE", tmp_path)

    def stamp() -> str:
        plan_store.sources_stamp.cache_clear()
        return plan_store.sources_stamp()

    first = stamp()
    (tmp_path / "notes.txt").write_text("still none")
    assert stamp() == first
    (tmp_path / "inside" / "a.py").write_text("x = 22")
    assert (second := stamp()) != first
    os.utime(tmp_path / "inside" / "a.py", ns=(1, 1))
    assert (third := stamp()) not in (first, second)
    (tmp_path / "inside" / "b.py").write_text("")
    assert stamp() not in (first, second, third)
    plan_store.sources_stamp.cache_clear()
