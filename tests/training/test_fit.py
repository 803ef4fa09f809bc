"""fit: what it calls, what it records, how it stops and goes on."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.data import Batches
from graphc.training import Callback, Checkpoints, EarlyStopping, History, ReduceOnPlateau, Run

LINE = r"( \(test_fit\.py:\d+\))?"
X = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32)


def programs(rate: Any = 0.05, size: Any = 4) -> tuple[graphc.Program, graphc.Program]:
    """A training program and one that evaluates, both of a new model."""

    def loss_fn(model: Any, x: Any, y: Any) -> Any:
        difference = model(x) - y
        return graphc.mean(difference**2), {"error": graphc.mean(graphc.abs(difference))}

    graphc.seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 1))
    specs = graphc.spec((size, 3)), graphc.spec((size, 1))
    step = graphc.compile(loss_fn, model, *specs, update=optim.Adam(lr=rate), device="reference")
    return step, graphc.compile(loss_fn, model, *specs, device="reference")


def batches(**options: Any) -> Batches:
    return Batches((X, Y), 4, **{"shuffle": 1, **options})


def fit(*args: Any, **options: Any) -> History:
    return graphc.fit(*args, **{"progress": False, **options})


def test_fit_is_the_loop_that_one_would_write() -> None:
    (step, evaluate), (own, own_evaluate) = programs(), programs()
    history = fit(step, batches(), 3, evaluate=(evaluate, batches(shuffle=None)))
    data = batches()
    for epoch in range(3):
        losses = [own(x, y) for x, y in data]
        assert history[epoch]["loss"] == np.mean([float(loss) for loss, _ in losses])
        assert history[epoch]["error"] == np.mean([float(m["error"]) for _, m in losses])
        values = [float(own_evaluate(x, y)[0]) for x, y in batches(shuffle=None)]
        assert history[epoch]["val_loss"] == pytest.approx(np.mean(values))
    assert len(history) == 3 and history.steps == 15
    assert history["loss"] == [epoch["loss"] for epoch in history]
    for name, array in step.state_dict().items():
        assert (array == own.state_dict()[name]).all(), name


@pytest.mark.parametrize("last", ["bucket", "pad"])
def test_means_are_those_of_samples(last: str) -> None:
    seen = []

    def program(x: Any, *weight: Any) -> float:
        real = x[weight[0] == 1] if weight else x
        seen.extend(real.tolist())
        return float(real.mean())

    values = np.arange(10, dtype=np.float64)
    history = fit(program, Batches(values, 4, last=last), 1)
    assert sorted(seen) == values.tolist()
    assert history[0]["loss"] == pytest.approx(4.5)


def test_batches_may_be_tuples_dicts_or_single_arrays() -> None:
    given: list[Any] = []

    def program(*args: Any, **named: Any) -> dict[str, float]:
        given.append((args, named))
        return {"loss": 1.0, "more": np.zeros(3)}

    assert fit(program, [(1, 2), {"x": 3}, 4, [5, 6]], 1)[:] == [{"loss": 1.0}]
    assert given == [((1, 2), {}), ((), {"x": 3}), ((4,), {}), ((5, 6), {})]


def test_an_evaluation_is_a_function_too() -> None:
    history = fit(lambda: 1.0, [()], 1, evaluate=lambda: {"accuracy": 0.5})
    assert history[:] == [{"loss": 1.0, "accuracy": 0.5}]
    assert fit(lambda: 1.0, [()], 1, evaluate=lambda: 3)[:] == [{"loss": 1.0, "val": 3.0}]


def test_callbacks_are_told_in_order() -> None:
    told: list[str] = []

    class Tell(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def begin(self, run: Run) -> None:
            told.append(f"begin {self.name}")

        def step(self, run: Run) -> None:
            told.append(f"step {run.history.steps} {self.name}")

        def epoch(self, run: Run) -> None:
            told.append(f"epoch {run.epoch} {self.name}")

        def end(self, run: Run) -> None:
            told.append(f"end {self.name}")

    fit(lambda: 1.0, [()], 1, callbacks=[Tell("a"), lambda run: told.append("f"), Tell("b")])
    assert told == [
        *("begin a", "begin b", "step 1 a", "step 1 b"),
        *("epoch 1 a", "f", "epoch 1 b", "end b", "end a"),
    ]
    told.clear()
    with pytest.raises(ZeroDivisionError):
        fit(lambda: 1 / 0, [()], 1, callbacks=[Tell("a")])
    assert told == ["begin a", "end a"]


def numbers(values: list[float]) -> Any:
    left = iter(values)
    return lambda: next(left)


def test_early_stopping_waits_for_a_better_value() -> None:
    values = [3.0, 2.0, 2.5, 1.9, float("nan"), 1.85, 1.0]
    stopping = [EarlyStopping("loss", patience=2, min_delta=0.1)]
    assert len(fit(numbers(values), [()], 9, callbacks=stopping)) == 4
    assert len(fit(numbers(values), [()], 7, callbacks=[EarlyStopping("loss", 2)])) == 7
    upwards = [EarlyStopping("loss", patience=1, mode="max")]
    history = fit(numbers([1.0, 2.0, 1.5]), [()], 9, callbacks=upwards)
    assert len(history) == 3
    assert len(fit(numbers([]), [()], 9, callbacks=upwards, history=history)) == 3


def test_a_rate_falls_on_a_plateau_also_when_a_run_goes_on() -> None:
    def rates(*parts: int) -> list[float]:
        step, _ = programs()
        found, history = [], History()
        losses = numbers([1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
        for epochs in parts:
            fit(
                step,
                batches(),
                epochs,
                evaluate=lambda: {"known": losses()},
                callbacks=[
                    ReduceOnPlateau("known", factor=0.5, patience=1),
                    lambda run: found.append(run.program.lr),
                ],
                history=history,
            )
        return found

    assert rates(9) == rates(2, 5, 9) == [0.05] * 2 + [0.025] * 3 + [0.0125] * 2 + [0.00625] * 2


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Python's own handler, also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class StopAt(Callback):
    """Ctrl-C in a step."""

    def __init__(self, step: int) -> None:
        self.number = step

    def step(self, run: Run) -> None:
        if run.history.steps == self.number:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stop", [1, 7, 10])
def test_a_run_that_ctrl_c_stopped_goes_on_with_the_same_bits(
    stop: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, evaluate = programs()
    expected = fit(whole, batches(), 3, evaluate=(evaluate, batches(shuffle=None)))

    step, evaluate = programs()
    with pytest.raises(KeyboardInterrupt):
        fit(
            step,
            batches(),
            3,
            evaluate=(evaluate, batches(shuffle=None)),
            callbacks=[Checkpoints(tmp_path), StopAt(stop)],
        )
    assert "stops after this step; Ctrl-C again stops at once" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again, evaluate = programs(rate=0.05)
    history = fit(
        again,
        batches(),
        3,
        evaluate=(evaluate, batches(shuffle=None)),
        callbacks=[Checkpoints(tmp_path)],
    )
    assert history[:] == expected[:] and history.steps == 15
    for name, array in whole.state_dict().items():
        assert (again.state_dict()[name] == array).all(), name
    assert fit(again, batches(), 3, callbacks=[Checkpoints(tmp_path)])[:] == expected[:]


def test_a_run_that_failed_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    whole, _ = programs()
    expected = fit(whole, batches(), 3)

    class Fail(Callback):
        def step(self, run: Run) -> None:
            if run.history.steps == 9:
                raise OSError("the power is gone")

    step, _ = programs()
    with pytest.raises(OSError, match=r"^the power is gone$"):
        fit(step, batches(), 3, callbacks=[Checkpoints(tmp_path, every=4), Fail()])
    again, _ = programs()
    history = fit(again, batches(), 3, callbacks=[Checkpoints(tmp_path, every=4)])
    assert history[:] == expected[:] and history.steps == 15


def test_a_history_alone_goes_on_in_the_same_process() -> None:
    whole, _ = programs()
    expected = fit(whole, batches(), 3)
    (step, _), history, data = programs(), History(), batches()
    with pytest.raises(KeyboardInterrupt):
        fit(step, data, 3, callbacks=[StopAt(8)], history=history)
    assert fit(step, data, 3, history=history)[:] == expected[:]


def test_batches_without_a_position_begin_the_epoch_anew() -> None:
    history, given = History(), []
    data = [(1.0,), (2.0,), (4.0,)]

    def program(x: float) -> float:
        given.append(x)
        return x

    with pytest.raises(KeyboardInterrupt):
        fit(program, data, 2, callbacks=[StopAt(5)], history=history)
    fit(program, data, 2, history=history)
    assert given == [1, 2, 4, 1, 2, 1, 2, 4] and history["loss"] == [7 / 3, 7 / 3]


def test_a_second_ctrl_c_stops_at_once() -> None:
    class Twice(StopAt):
        def step(self, run: Run) -> None:
            super().step(run)
            super().step(run)
            raise AssertionError("came here")

    with pytest.raises(KeyboardInterrupt):
        fit(lambda: 1.0, [()], 1, callbacks=[Twice(1)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_thread_trains_without_handlers() -> None:
    found: list[History] = []
    thread = threading.Thread(target=lambda: found.append(fit(lambda: 1.0, [()], 2)))
    thread.start()
    thread.join()
    assert found[0]["loss"] == [1.0, 1.0]


def test_the_best_and_the_last_checkpoint_are_kept(tmp_path: Path) -> None:
    step, _ = programs()
    values = numbers([3.0, 1.0, float("nan"), 2.0])
    weights = []
    fit(
        step,
        batches(),
        4,
        evaluate=lambda: {"score": values()},
        callbacks=[
            Checkpoints(tmp_path, best="score", every=2, keep=2),
            lambda run: weights.append(run.program.state_dict()["0.weight"]),
        ],
    )
    assert sorted(p.name for p in tmp_path.glob("*.safetensors")) == [
        "step-18.safetensors",
        "step-20.safetensors",
    ]
    found = graphc.load_checkpoint(tmp_path / "best", step)
    assert found is not None and found.step == 10
    assert (step.state_dict()["0.weight"] == weights[1]).all()
    history = History()
    history.restore(found.data)
    assert history["score"] == [3.0, 1.0]


def test_numbers_that_json_lacks_are_kept() -> None:
    history, again = History(), History()
    history.means.add({"loss": float("nan")}, 2)
    history.close({"most": float("inf")})
    history.means.add({"loss": 1.5}, 3)
    again.restore(history.state(None))
    assert repr(again) == repr(history) == "History([{'loss': nan, 'most': inf}])"
    assert again.means.values() == {"loss": 1.5}


def unknown() -> Any:
    return fit(lambda: 1.0, [()], 1)["accuracy"]


# fmt: off
WRONG = [
    (lambda: fit(3, [], 1),
     "fit: expected a program that was compiled with update=, got int"),
    (lambda: fit(programs()[1], [], 1),
     "fit: expected a program that was compiled with update=, got one without it"),
    (lambda: fit(print, [], -1), "fit: epochs expected a whole number from 0 up, got -1"),
    (lambda: fit(print, [], 1, evaluate=3),
     "fit: evaluate expected a function or (program, batches), got 3"),
    (lambda: fit(print, [], 1, evaluate=(programs()[0], [])),
     "fit: evaluate expected a program without update=, got one that trains"),
    (lambda: fit(print, [], 1, callbacks=[EarlyStopping]),
     f"fit: callbacks expected callbacks and functions, got {EarlyStopping!r}"),
    (lambda: fit(lambda: np.zeros(3), [()], 1),
     "fit: expected a program whose result begins with a loss, got none"),
    (lambda: fit(lambda: 1.0, iter([()]), 2),
     "fit: expected batches, got none; an iterator is used up after one epoch"),
    (lambda: fit(lambda: 1.0, [()], 1, evaluate=(lambda: 1.0, [])),
     "fit: expected batches, got none; an iterator is used up after one epoch"),
    (lambda: EarlyStopping("loss", 0),
     "EarlyStopping: patience expected a number from 1 up, got 0"),
    (lambda: EarlyStopping("loss", min_delta=-1),
     "EarlyStopping: min_delta expected a number from 0 up, got -1"),
    (lambda: EarlyStopping("loss", mode="up"),
     "EarlyStopping: mode expected 'min' or 'max', got 'up'"),
    (lambda: Checkpoints("run", mode="up"), "Checkpoints: mode expected 'min' or 'max', got 'up'"),
    (lambda: Checkpoints("run", every=0),
     "Checkpoints: every expected a number from 1 up or None, got 0"),
    (lambda: History().restore({}), "history: expected what History.state returned"),
    (unknown, "history: expected one of loss, got 'accuracy'"),
]
# fmt: on


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_mistake_is_named(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=f"^{re.escape(message)}{LINE}$"):
        make()
