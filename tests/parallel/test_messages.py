"""What is refused of several ranks, in which words, and what one rank's program says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, ops, optim
from graphc.base.errors import GraphError, PlanError, RunError
from graphc.ir import Type
from graphc.parallel import mpi
from graphc.parallel.join import join
from graphc.runtime.plan.plan import Launch
from graphc.runtime.plan.saved import decoded_plan, encoded

SPEC = graphc.spec((4, 3))


def two(**options: Any) -> Any:
    """Ranks 0 and 1, of which only the first is there: to compile, not to run."""
    parallel = graphc.DataParallel(**options)
    parallel.ranks = 2
    return parallel


def loss_of(model: Any, x: Any) -> Any:
    return graphc.mean(model(x) ** 2)


def step(parallel: Any, model: Any = None, **options: Any) -> Any:
    options = {"update": optim.SGD(lr=0.1), "streams": 1, **options}
    return graphc.compile(loss_of, model or nn.Linear(3, 3), SPEC, parallel=parallel, **options)


def normalized() -> Any:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: graphc.DataParallel(shards=1.5),  # type: ignore[arg-type]
            "shards: expected a whole number or None, got 1.5",
        ),
        (
            lambda: graphc.DataParallel(shards=0),
            "shards: expected a multiple of the 1 ranks, got 0",
        ),
        (lambda: two().part(5), "part: expected a multiple of the 2 ranks, got 5"),
        (lambda: join("udp", 1.0), "transport: expected mpi, tcp, none or None, got 'udp'"),
        (
            lambda: join("tcp", 1.0),
            "transport: tcp expects GRAPHC_ADDRESS, GRAPHC_RANK and GRAPHC_RANKS in the "
            "environment",
        ),
        (
            lambda: step(2),
            "parallel: expected graphc.DataParallel() or PipelineParallel(), got int",
        ),
        (
            lambda: step(two(), update=None),
            "parallel: averages what update= takes, which is not given",
        ),
        (
            lambda: step(two(), update=optim.DPSGD(lr=0.1, clip=1.0, noise=1.0)),
            "parallel: DPSGD expected one process, since its noise is that of one batch",
        ),
        (
            lambda: step(two(), tune=True),
            "tune: with parallel= expected False, since each rank would measure others",
        ),
        (
            lambda: step(graphc.DataParallel(shards=2), accumulate=2),
            "accumulate: with shards=, which are micro-batches too, expected 1",
        ),
        (
            lambda: step(graphc.DataParallel(shards=3)),
            "shards of a rank=3: expected a batch of 3 equal parts, got x 4",
        ),
        (lambda: step(two(), device="sim"), "parallel: expected device='cpu' or 'cuda', got 'sim'"),
        (
            lambda: step(two(sync_batch_norm=True), normalized(), accumulate=2),
            "batch_norm: with sync_batch_norm=True expected no loop around it, such as scan, "
            "accumulate= or shards=",
        ),
        (
            lambda: step(two()).save("step.graphc"),
            "save: loss_of is of 1 ranks that train together, which no file holds: save "
            "checkpoints, or a program of the trained model",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError) as error:
        call()
    assert str(error.value).partition(" (test_messages.py")[0] == message


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"GRAPHC_RANK": "0", "GRAPHC_RANKS": "2"},
            "GRAPHC_ADDRESS: expected beside GRAPHC_ADDRESS, GRAPHC_RANK and GRAPHC_RANKS",
        ),
        (
            {"GRAPHC_RANK": "2", "GRAPHC_RANKS": "2", "GRAPHC_ADDRESS": "localhost:1"},
            "GRAPHC_RANK: expected a number below GRAPHC_RANKS=2, got 2",
        ),
        (
            {"GRAPHC_RANK": "0", "GRAPHC_RANKS": "2", "GRAPHC_ADDRESS": "localhost"},
            "GRAPHC_ADDRESS: expected host:port, got 'localhost'",
        ),
    ],
)
def test_bad_settings_are_named(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GraphError) as error:
        graphc.DataParallel()
    assert str(error.value) == message


def test_mpi_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise ImportError("no mpi4py")

    monkeypatch.setattr(mpi, "import_module", lacking)
    with pytest.raises(RunError) as error:
        mpi.join_mpi(1.0)
    assert str(error.value) == (
        "data-parallel training by MPI needs mpi4py and an MPI library "
        "(pip install 'graphc[mpi]'): no mpi4py"
    )


def test_pieces_must_be_there() -> None:
    with pytest.raises(GraphError) as error:
        ops.AllReduce(2, pieces=3).infer(Type((2, 5), "f32"))
    assert str(error.value) == "all_reduce: expected 3 pieces, got f32[2,5]"


def test_a_sum_of_pieces_has_no_gradient() -> None:
    with pytest.raises(GraphError) as error:
        ops.AllReduce(1, pieces=2).grad(None, (), (), ())  # type: ignore[arg-type]
    assert str(error.value) == "all_reduce: a sum of pieces has no gradient"


def test_parts_for_all_ranks_are_checked() -> None:
    with pytest.raises(GraphError) as error:
        ops.AllToAll(2).infer(Type((3, 4), "f32"))
    assert str(error.value) == "all_to_all: expected 2 parts, got f32[3,4]"


def test_the_meaning_of_one_rank_is_the_sum_of_its_pieces_in_order() -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    (total,) = ops.AllReduce(1, pieces=3).reference(x)
    np.testing.assert_array_equal(total, (x[0] + x[1]) + x[2])
    assert ops.AllReduce(2).reference(x)[0] is x


def test_a_bucket_s_gradients_lie_side_by_side_and_become_the_sums() -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    plan = step(two(), model).plan
    launch = next(s for s in plan.steps if isinstance(s, Launch) and s.kernel == "bucket")
    assert launch.reads == launch.writes
    for one, following in zip(launch.reads, launch.reads[1:], strict=False):
        assert following.start == -(-one.stop // 64) * 64
    assert launch.stream == 1
    assert {s.stream for s in plan.steps if s is not launch} == {0, 1, 2}


def test_updates_of_a_bucket_do_not_wait_for_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_BUCKET_BYTES", "1")
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(4)))
    steps = step(two(), model).plan.steps
    sent = [s.kernel.startswith("bucket") for s in steps if isinstance(s, Launch) and s.stream]
    assert sent.count(True) == 9  # eight gradients and the loss
    assert sent.index(False) == 1
    assert sent[-1] is False


@pytest.mark.parametrize("memory", ["lean", "search", 800])
def test_messages_run_once_however_little_memory_there_is(memory: Any) -> None:
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(3, 3), nn.Tanh())))
    plan = step(two(), model, memory=memory).plan
    launched = [s.kernel for s in plan.steps if isinstance(s, Launch)]
    assert [k for k in launched if plan.kernels[k].message is not None] == ["bucket"]


def test_a_plan_with_messages_is_stored_and_read_again() -> None:
    plan = step(two()).plan
    again = decoded_plan(encoded(plan))
    assert again == plan
    assert again.verify().digest == plan.verify().digest
    assert "bucket" in str(plan)


def test_the_verifier_misses_an_event_behind_a_message() -> None:
    plan = step(two()).plan
    waits = [n for n, s in enumerate(plan.steps) if type(s).__name__ == "Wait"]
    for n in waits:
        fewer = replace(plan, steps=plan.steps[:n] + plan.steps[n + 1 :])
        with pytest.raises(PlanError):
            fewer.verify()
