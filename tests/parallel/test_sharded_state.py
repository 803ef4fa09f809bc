"""Ranks that each have a part of the optimizer's state: the same bits, and less memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, ops, optim
from graphc.base.errors import GraphError, PlanError
from graphc.ir import Type
from graphc.ir.sliced_state import SlicedBuffer
from graphc.runtime.plan.plan import Launch
from graphc.runtime.plan.saved import decoded_plan, encoded
from tests.parallel.ranks import over_mpi, over_tcp
from tests.parallel.test_faults import train
from tests.parallel.threads import at_once, groups

MODULE = "tests.parallel.sharded"
SPEC = graphc.spec((4, 3))
RNG = np.random.default_rng(0)


def several(ranks: int = 2, **options: Any) -> Any:
    """Ranks of which only the first is there: to compile, not to run."""
    parallel = graphc.DataParallel(shard_optimizer_state=True, **options)
    parallel.ranks = ranks
    return parallel


def loss_of(model: Any, x: Any) -> Any:
    return graphc.mean(model(x) ** 2)


def step(rule: Any, parallel: Any, model: Any = None, **options: Any) -> Any:
    options = {"streams": 1, **options}
    model = model or nn.Linear(3, 3)
    return graphc.compile(loss_of, model, SPEC, update=rule, parallel=parallel, **options)


@pytest.mark.parametrize(
    ("name", "ranks"), [("cases", 2), ("rules", 3), ("randoms", 3), ("saved", 2), ("unloaded", 2)]
)
def test_bits_are_those_of_whole_state(name: str, ranks: int, tmp_path: Path) -> None:
    more = {"GRAPHC_BUCKET_BYTES": "3000"}
    for ended in over_tcp(ranks, MODULE, name, str(tmp_path), more=more):
        assert all(ended.result.values()), ended.result


def test_ranks_of_mpi_do_the_same() -> None:
    ended = over_mpi(2, "-m", MODULE, "one", "")
    assert ended.code == 0, ended.err
    assert ended.out.count('{"lion": true}') == 2


def test_training_goes_on_with_other_numbers_of_ranks(tmp_path: Path) -> None:
    """Killed on 3 ranks, and ended on 2: the losses are those of one process, to the bit."""
    assert [ended.code for ended in train(3, tmp_path, "killed", "60", "yes")] == [1, -9, 1]
    found = [ended.result for ended in train(2, tmp_path, "", "60", "yes")]
    assert found[0] == found[1]
    whole = train(1, tmp_path / "whole")[0].result
    assert found[0]["first"] in (1, 2)  # the second checkpoint needs what the killed rank had
    assert [found[0][str(n)] for n in (2, 3, 4)] == [whole[str(n)] for n in (2, 3, 4)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_moments_take_an_nth_of_the_memory(ranks: int) -> None:
    model = nn.Sequential(nn.Linear(3, 50), nn.Tanh(), nn.Linear(50, 40), nn.Linear(40, 3))
    plan = step(optim.Adam(), several(ranks), model).plan
    held = {b.value.name: b.value.type.size for b in plan.state}
    for name, parameter in model.named_parameters():
        for moment in ("exp_avg", "exp_avg_sq"):
            assert held[f"{moment}.{name}"] == -(-parameter.type.size // ranks)


def test_no_copies_of_all_weights_are_there_at_once() -> None:
    """What a step needs besides is what it needs with whole state, and some buckets."""
    model = [nn.Sequential(*(nn.Linear(63, 63) for _ in range(12))) for _ in range(2)]
    spec = graphc.spec((2, 63))
    options: dict[str, Any] = {"update": optim.Adam(), "streams": 1}
    parallel = several(2)
    parallel.bucket_bytes = lambda: 20_000
    sharded = graphc.compile(loss_of, model[0], spec, parallel=parallel, **options).plan
    parallel.shard_optimizer_state = False
    options["update"] = optim.Adam()
    whole = graphc.compile(loss_of, model[1], spec, parallel=parallel, **options).plan
    assert sharded.peak_bytes < whole.peak_bytes + 8 * 20_000


class Centred(optim.SGD):
    """Subtracts the mean of the gradient."""

    def apply(self, weight: Any, gradient: Any, moments: Any, scalars: Any) -> Any:
        return super().apply(weight, gradient - graphc.mean(gradient), moments, scalars)


class ByShape(optim.SGD):
    """Divides by the number of rows."""

    def apply(self, weight: Any, gradient: Any, moments: Any, scalars: Any) -> Any:
        return super().apply(weight, gradient / weight.shape[0], moments, scalars)


class Emitting(optim.SGD):
    """Writes its update itself."""

    def emit(self, builder: Any, gradients: Any) -> None:
        super().emit(builder, gradients)


def twice() -> None:
    """One optimizer, whose moments one program divides and another does not."""
    rule, model = optim.Adam(), nn.Linear(3, 3)
    step(rule, several(), model)
    graphc.compile(loss_of, model, SPEC, update=rule)


WHOLE = (
    "updates weight : f32[3,3] by more than each element's own gradient, "
    "expected a rule such as Adam"
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: step(optim.SGD(clip_grad_norm=1.0), several()),
            "shard_optimizer_state: SGD expected clip_grad_norm=None, which needs whole gradients "
            "or weights",
        ),
        (
            lambda: step(optim.Adam(ema=0.9), several()),
            "shard_optimizer_state: Adam expected ema=None, which needs whole gradients or weights",
        ),
        (lambda: step(optim.LAMB(), several()), f"shard_optimizer_state: LAMB {WHOLE}"),
        (
            lambda: step(optim.Muon(), several(), nn.Linear(3, 3, bias=False)),
            f"shard_optimizer_state: Muon {WHOLE}",
        ),
        (lambda: step(Centred(lr=0.1), several()), f"shard_optimizer_state: Centred {WHOLE}"),
        (lambda: step(ByShape(lr=0.1), several()), f"shard_optimizer_state: ByShape {WHOLE}"),
        (
            lambda: step(Emitting(lr=0.1), several()),
            "shard_optimizer_state: Emitting has an emit of its own, expected one that defines "
            "apply",
        ),
        (
            lambda: step(optim.Adam(), several(), mixed="float16"),
            "shard_optimizer_state: expected no scaled loss, since skipping a step needs whole "
            "gradients: mixed='bfloat16' has none",
        ),
        (
            twice,
            "shard_optimizer_state: expected the same of all programs that update a parameter "
            "by one optimizer",
        ),
    ],
)
def test_what_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(GraphError) as error:
        call()
    said = str(error.value).partition(" (test_sharded_state.py")[0]
    assert said == message


def test_one_process_has_all_of_the_state() -> None:
    program = step(optim.Adam(), graphc.DataParallel(shard_optimizer_state=True))
    assert not any(isinstance(buffer, SlicedBuffer) for buffer in program.buffers.values())


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("pieces", "size"), [(1, 1), (1, 1000), (3, 17)])
def test_slices_of_a_sum_are_gathered(ranks: int, pieces: int, size: int) -> None:
    terms = RNG.standard_normal((ranks, pieces, ranks * size)).astype(np.float32)
    expected = terms[0, 0].copy()
    for piece in terms.reshape(-1, ranks * size)[1:]:
        expected += piece
    own = np.empty((ranks, size), np.float32)
    whole = np.empty((ranks, ranks * size), np.float32)
    with groups(ranks) as found:
        at_once(ranks, lambda r: found[r].sum_slices([*terms[r]], own[r]))
        at_once(ranks, lambda r: found[r].gather_slices(own[r], whole[r]))
        again = at_once(ranks, lambda r: found[r].gathered(own[r]))
        at_once(ranks, lambda r: found[r].check())
    np.testing.assert_array_equal(own.reshape(-1), expected)
    for rank in range(ranks):
        np.testing.assert_array_equal(whole[rank], expected)
        np.testing.assert_array_equal(again[rank], own)


@pytest.mark.parametrize("size", [1, 6, 7])
def test_what_a_buffer_saves_it_loads(size: int) -> None:
    kind, contents = Type((size, 2), "bf16"), np.arange(2.0 * size, dtype=np.float32)
    contents = contents.reshape(size, 2)
    slices: list[Any] = [None] * 3
    buffers = [SlicedBuffer(kind, rank, 3, lambda _: np.stack(slices)) for rank in range(3)]
    for rank, buffer in enumerate(buffers):
        buffer.assign(contents)
        slices[rank] = buffer.array
    for buffer in buffers:
        np.testing.assert_array_equal(buffer.numpy(), contents)
        with pytest.raises(GraphError, match=r"state: expected bfloat16\[\d, 2\], got float64\[\]"):
            buffer.assign(1.0)
        with pytest.raises(GraphError) as error:
            buffer.__reduce__()
        assert str(error.value) == (
            "state that is divided among ranks cannot be copied or pickled: state_dict returns the "
            "whole of it"
        )


def test_types_of_messages() -> None:
    x = RNG.standard_normal((3, 2, 5)).astype(np.float32)
    kind = Type(x.shape, "f32")
    assert ops.ReduceScatter(2, 3).infer(kind) == (Type((5,), "f32"),)
    assert ops.ReduceScatter(3).infer(kind) == (Type((2, 5), "f32"),)
    assert ops.AllGather(4).infer(kind) == (Type((4, 3, 2, 5), "f32"),)
    with pytest.raises(
        GraphError, match=r"reduce_scatter: expected \[4\] slices, got f32\[3,2,5\]"
    ):
        ops.ReduceScatter(4).infer(kind)
    np.testing.assert_array_equal(ops.ReduceScatter(2, 3).reference(x)[0], x[:, 0].sum(0))
    np.testing.assert_array_equal(ops.ReduceScatter(3).reference(x)[0], x[0])
    np.testing.assert_array_equal(ops.AllGather(2).reference(x)[0], np.stack([x, x]))


def test_a_bucket_is_reduced_updated_and_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the rest of the backward pass; and the verifier knows the order."""
    monkeypatch.setenv("GRAPHC_BUCKET_BYTES", "1")
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
    plan = step(optim.Adam(), several(), model).plan
    launched = [s.kernel for s in plan.steps if isinstance(s, Launch)]
    kinds = [m.kind for m in (plan.kernels[k].message for k in launched) if m is not None]
    assert kinds == ["all_reduce", *["reduce_scatter", "all_gather"] * 6]
    assert launched.index("updated_4") < launched.index("m0_wgrad")
    again = decoded_plan(encoded(plan))
    assert again == plan
    assert again.verify().digest == plan.verify().digest
    for n, one in enumerate(plan.steps):
        if type(one).__name__ == "Wait":
            with pytest.raises(PlanError):
                replace(plan, steps=plan.steps[:n] + plan.steps[n + 1 :]).verify()


@pytest.mark.parametrize("memory", ["lean", "search", 1500])
def test_messages_run_once_however_little_memory_there_is(memory: Any) -> None:
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(3, 3), nn.Tanh())))
    plan = step(optim.Adam(), several(), model, memory=memory).plan
    launched = [s.kernel for s in plan.steps if isinstance(s, Launch)]
    sent = [k for k in launched if plan.kernels[k].message is not None]
    assert sorted(sent) == ["bucket", "bucket_1", "updated"]


def test_what_nodes_do_is_explained() -> None:
    program = step(optim.Adam(), several())
    assert "adds this rank's slice of what all ranks have" in str(program.explain("bucket"))
    assert "collects the slices of all ranks" in str(program.explain("updated"))
