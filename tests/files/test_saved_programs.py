"""Programs as files: what is loaded computes, trains and looks as what was saved."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError, PlanError
from graphc.runtime.plan.certificate import Certificate
from graphc.runtime.plan.plan import Plan
from tests.files.rewriting import rewritten
from tests.files.training import Net, bits, cosine, data, train, trainer
from tests.tools import run_python

X = graphc.spec((3, 4))
ONES = np.ones((3, 4), np.float32)


def structured(model: nn.Module, batch: dict[str, Any], pair: tuple[Any, Any]) -> dict[str, Any]:
    first, second = pair
    hidden = model(batch["x"]) * batch["scale"] + batch["more"][0]
    return {"sum": graphc.sum(hidden), 3: [hidden, (first, None)], "second": second + 1}


@pytest.mark.parametrize("device", ["cpu", "reference", "sim"])
def test_arguments_and_results_keep_their_structure(device: str, tmp_path: Path) -> None:
    leaf = graphc.spec((3, 2))
    arguments = (
        {"x": X, "scale": 0.5, "more": [leaf]},
        (graphc.spec((), "int32"), graphc.spec(2, "bool")),
    )
    first = graphc.compile(structured, nn.Linear(4, 2), *arguments, device=device)
    first.save(tmp_path / "f")
    second = graphc.load(tmp_path / "f")
    batch = {"x": ONES, "scale": 0.5, "more": [ONES[:, :2]]}
    pair = np.int32(3), np.array([True, False])
    expected = first(batch, pair)
    found = second(pair=pair, batch=batch)
    assert graphc.ir.tree.structure(found) == graphc.ir.tree.structure(expected)
    leaves = zip(graphc.ir.tree.leaves(found), graphc.ir.tree.leaves(expected), strict=True)
    for (name, mine), (other, theirs) in leaves:
        assert name == other
        np.testing.assert_array_equal(mine, theirs)
    message = r"^structured: batch\.scale: was compiled for 0\.5, got 0\.25$"
    with pytest.raises(GraphError, match=message):
        second({**batch, "scale": 0.25}, pair)
    assert (second.name, second.target.device) == ("structured", device)
    assert bits(second) == bits(first)
    assert repr(second) == repr(first)
    assert str(second.graph) == str(first.graph)


def test_a_loaded_program_goes_on_training(tmp_path: Path) -> None:
    step = trainer("groups")
    train(step, 0, 3)
    step.lr = 0.02
    step.save(tmp_path / "step.graphc")
    again = graphc.load(tmp_path / "step.graphc")
    assert again.lr == 0.02
    assert train(again, 3, 5) == train(step, 3, 5)
    again.lr = step.lr = 0.5
    assert train(again, 5, 7) == train(step, 5, 7)
    assert bits(again) == bits(step)
    graphc.save_checkpoint(tmp_path, 7, again)
    later = graphc.load(tmp_path / "step.graphc")
    graphc.load_checkpoint(tmp_path, later)
    assert later.lr == 0.5
    later.save(tmp_path / "later.graphc")
    assert train(graphc.load(tmp_path / "later.graphc"), 7, 9) == train(step, 7, 9)


def test_a_schedule_is_given_again(tmp_path: Path) -> None:
    step, path = trainer("schedule"), tmp_path / "step.graphc"
    train(step, 0, 3)
    step.save(path)
    with pytest.raises(
        GraphError, match=rf"^load: {re.escape(str(path))}: the program was saved with a schedule "
        r"of learning rates, which no file holds: give it as lr=$",
    ):  # fmt: skip
        graphc.load(path)
    again = graphc.load(path, lr=cosine)
    assert train(again, 3, 6) == train(step, 3, 6)
    graphc.compile(graphc.relu, X).save(tmp_path / "relu")
    with pytest.raises(
        GraphError, match=r": lr= is given, but the program was saved without update="
    ):
        graphc.load(tmp_path / "relu", lr=0.1)


def test_loops_draws_constants_and_taps(tmp_path: Path) -> None:
    table = np.arange(40, dtype=np.float32).reshape(10, 4)

    def fn(x: graphc.Tensor) -> Any:
        last, all = graphc.scan(lambda c, e: (graphc.tanh(c + e), c * 2), graphc.zeros(4), x)
        return graphc.tap(last, "last"), graphc.dropout(all @ graphc.as_tensor(table).T, 0.5)

    first = graphc.compile(fn, X, training=True, device="cpu")
    first(ONES)
    first.save(tmp_path / "f")
    second = graphc.load(tmp_path / "f")
    for _ in range(2):
        for mine, theirs in zip(second(ONES), first(ONES), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(second.taps["last"], first.taps["last"])


def test_show_prints_and_functions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graphc.compile(lambda x: graphc.show(x, "x"), X, device="reference").save(tmp_path / "f")
    graphc.load(tmp_path / "f")(ONES)
    assert capsys.readouterr().out.startswith("x: mean 1, min 1, max 1, 0 NaN of 12 (test_saved_")
    calling = graphc.compile(lambda x: graphc.show(x, "x", id), X, device="reference")
    with pytest.raises(
        GraphError, match=r"^save: show\('x'\) calls a function, which no file can hold: without "
        r"callback, it prints$",
    ):  # fmt: skip
        calling.save(tmp_path / "g")
    assert not (tmp_path / "g").exists()


class Named(NamedTuple):
    a: Any


@dataclass
class Record:
    a: Any


@pytest.mark.parametrize("kind", [Named, Record])
def test_classes_of_the_user_are_refused(kind: Any, tmp_path: Path) -> None:
    program = graphc.compile(lambda x: kind(x + 1), X, device="reference")
    with pytest.raises(
        GraphError, match=rf"^save: the result is of {kind.__name__}: a file can hold tuples, "
        r"lists and dicts with keys of str or int$",
    ):  # fmt: skip
        program.save(tmp_path / "f")


def test_schedules_of_groups_and_odd_names_are_refused(tmp_path: Path) -> None:
    step = trainer("groups")
    step.update.groups[0].lr = cosine
    with pytest.raises(
        GraphError, match=r"^save: loss_fn: a parameter group has a schedule of learning rates, "
        r"which no file can hold: set a number$",
    ):  # fmt: skip
        step.save(tmp_path / "f")
    odd = graphc.compile(lambda d: d["a\nb"], {"a\nb": X}, device="reference")
    with pytest.raises(GraphError, match=r"^save: function: control characters or backslashes in"):
        odd.save(tmp_path / "f")
    with pytest.raises(GraphError, match=r"^save: cannot write \S+: No such file or directory$"):
        graphc.compile(graphc.relu, X, device="reference").save(tmp_path / "none" / "f")


def test_settings_are_those_of_compile(tmp_path: Path) -> None:
    options = {"streams": 2, "precision": "bfloat16", "memory": "1G", "disable": ["layout"]}
    first = graphc.compile(Net(), graphc.spec((6, 4)), device="cpu", **options)
    first.save(tmp_path / "f")
    second = graphc.load(tmp_path / "f", threads=1)
    assert first.plan is not None
    assert second.plan is not None
    assert second.plan.verify().digest == first.plan.verify().digest
    assert "layout" not in second.stages
    x, _ = data(0)
    np.testing.assert_array_equal(first(x), second(x))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    graphc.compile(nn.Linear(4, 2), X, device="cpu").save(tmp_path / "f")
    return tmp_path / "f"


def test_other_kernels_are_refused_or_planned_anew(saved: Path) -> None:
    def change(**fields: Any) -> None:
        def edit(document: dict[str, Any]) -> None:
            document["record"] |= fields

        saved.write_bytes(rewritten(saved.read_bytes(), edit))

    shown = re.escape(str(saved))
    kernels = {"linear": "0" * 32}
    change(kernels=kernels)
    with pytest.raises(
        PlanError, match=rf"^load: {shown}: \d kernels are others than those saved, such as .+, "
        r"though graphc and the machine are the same$",
    ):  # fmt: skip
        graphc.load(saved)
    change(machine=["another"])
    assert graphc.load(saved)(ONES).shape == (3, 2)
    change(stated=False)
    with pytest.raises(
        GraphError, match=rf"^load: {shown}: .+: with this CPU results may differ in the last "
        r"bits; replan=True accepts that$",
    ):  # fmt: skip
        graphc.load(saved)
    assert graphc.load(saved, replan=True)(ONES).shape == (3, 2)
    change(sources="older", stated=True)
    with pytest.raises(GraphError, match=r": with this version of graphc results may differ in th"):
        graphc.load(saved)
    assert graphc.load(saved, replan=True)(ONES).shape == (3, 2)


def test_a_plan_in_the_cache_is_found_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_PLAN_CACHE", "1")
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    step = trainer("adam")
    step.save(tmp_path / "f")
    proved: list[str] = []
    prove = Plan.prove

    def proving(plan: Plan) -> Certificate:
        proved.append(plan.name)
        return prove(plan)

    with monkeypatch.context() as patch:
        patch.setattr("graphc.program.making.optimize", lambda *_: pytest.fail("passes ran"))
        patch.setattr(Plan, "prove", staticmethod(proving))
        again = graphc.load(tmp_path / "f")
    assert proved == ["loss_fn"]
    assert train(again, 0, 2) == train(step, 0, 2)
    assert next(iter(again.stages)) == "saved"


def test_a_file_that_says_nonsense_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["settings"]["precision"] = "exact"

    saved.write_bytes(rewritten(saved.read_bytes(), edit))
    with pytest.raises(GraphError, match=r"^load: \S+ holds no program: KeyError: 'exact'$"):
        graphc.load(saved)

    def short(path: object) -> None:
        raise MemoryError

    monkeypatch.setattr("graphc.program.saved_program.read_bytes", short)
    with pytest.raises(GraphError, match=r"^load: \S+ needs more memory than there is$"):
        graphc.load(saved)


def test_denormals_are_those_that_were_saved(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    with pytest.raises(
        GraphError, match=r"^load: \S+ was saved with GRAPHC_DENORMALS=flush, here it is keep$"
    ):
        graphc.load(saved)


@pytest.mark.parametrize("isa", ["sse2", "avx2"])
def test_another_instruction_set_plans_anew_with_the_same_bits(isa: str, tmp_path: Path) -> None:
    graphc.seed(0)
    first = graphc.compile(
        nn.Sequential(nn.Linear(4, 37), nn.LayerNorm(37)), X, device="cpu", streams=1
    )
    first.save(tmp_path / "f")
    load = (
        "import sys, numpy as np, graphc; f = graphc.load(sys.argv[1]); "
        "print(f(np.ones((3, 4), np.float32)).tobytes().hex())"
    )
    said = run_python("-c", load, str(tmp_path / "f"), environment={"GRAPHC_ISA": isa})
    assert said.strip() == first(ONES).tobytes().hex()


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"^load: cannot read \S+: No such file or directory$"):
        graphc.load(tmp_path / "none")
    layer = nn.Linear(4, 2)
    graphc.save_weights(tmp_path / "weights", layer)
    with pytest.raises(GraphError, match=r"^load: \S+: it does not begin as a file of graphc does"):
        graphc.load(tmp_path / "weights")
    path = graphc.save_checkpoint(tmp_path, 1, layer)
    with pytest.raises(
        GraphError, match=r": expected a 'graphc program 1', it is a 'graphc checkpoint 1'$"
    ):
        graphc.load(path)


def test_equal_programs_are_equal_files(tmp_path: Path) -> None:
    def write(name: str) -> bytes:
        graphc.seed(0)
        graphc.compile(nn.Linear(4, 2), X, device="cpu", streams=1).save(tmp_path / name)
        return (tmp_path / name).read_bytes()

    assert write("a") == write("b")
    header = json.loads(write("a")[8 : 8 + int.from_bytes(write("a")[:8], "little")])
    assert json.loads(header["__metadata__"]["document"])["binaries"] is None


def test_a_program_says_how_it_is_kept(tmp_path: Path) -> None:
    import pickle

    program = graphc.compile(graphc.relu, X, device="reference", update=None)
    with pytest.raises(
        GraphError, match=r"^relu: a program cannot be pickled or copied: program\.save writes it "
        r"to a file, which graphc\.load reads$",
    ):  # fmt: skip
        pickle.dumps(program)
