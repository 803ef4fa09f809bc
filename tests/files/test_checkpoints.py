"""Checkpoints: a run goes on with the bits that it would have had, or nothing is changed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from tests.files.rewriting import rewritten
from tests.files.training import RULES, Net, bits, data, loss_fn, train, trainer
from tests.tools import run_python


class Fixed(optim.Rule):
    """A rule whose steps depend on no rate, so that groups add no state."""

    def __init__(self, lr: float = 1.0, groups: optim.rule.Groups = ()) -> None:
        super().__init__(lr, 0.0, None, groups)

    def apply(self, weight: graphc.Tensor, gradient: graphc.Tensor, *_: object) -> object:
        return (weight - 0.1 * gradient,)


RESUME = """
import sys
import graphc
from tests.files.rewriting import rewritten
from tests.files.training import bits, train, trainer
step = trainer(sys.argv[1], seed=1)
found = graphc.load_checkpoint(sys.argv[2], step)
assert (found.step, found.data, found.skipped) == (5, {"epoch": [1, 2.5]}, ())
losses = train(step, 5, 10)
for name, content in bits(step).items():
    print(name, content.hex())
print("losses", b"".join(losses).hex())
"""


@pytest.mark.parametrize("rule", RULES)
def test_a_run_goes_on_in_a_new_process(rule: str, tmp_path: Path) -> None:
    step = trainer(rule)
    train(step, 0, 5)
    path = graphc.save_checkpoint(tmp_path, 5, step, data={"epoch": [1, 2.5]})
    assert path == tmp_path / "step-5.safetensors"
    losses = train(step, 5, 10)
    said = run_python("-c", RESUME, rule, str(tmp_path)).splitlines()
    expected = [f"{name} {content.hex()}" for name, content in bits(step).items()]
    assert said == [*expected, f"losses {b''.join(losses).hex()}"]


@pytest.mark.parametrize("device", ["reference", "sim"])
def test_other_devices_go_on_too(device: str, tmp_path: Path) -> None:
    first, second = (trainer("adam", seed, device) for seed in (0, 1))
    train(first, 0, 2)
    graphc.save_checkpoint(tmp_path, 2, first)
    graphc.load_checkpoint(tmp_path, second)
    assert train(first, 2, 4) == train(second, 2, 4)
    assert bits(first) == bits(second)


def test_learning_rates_that_were_set_are_kept(tmp_path: Path) -> None:
    first, second = trainer("groups"), trainer("groups", 1)
    first.lr = 0.003
    first.update.groups[1].lr = 0.25
    second.update.groups[1].lr = 7.0
    graphc.save_checkpoint(tmp_path / "a", 0, first)
    graphc.load_checkpoint(tmp_path / "a", second)
    assert [second.lr, *(group.lr for group in second.update.groups)] == [0.003, 0.5, 0.25]
    second.update.groups[1].follow()
    graphc.save_checkpoint(tmp_path / "b", 0, second)
    graphc.load_checkpoint(tmp_path / "b", first)
    assert first.update.groups[1].own_lr is None


def test_programs_that_share_a_model_are_one_checkpoint(tmp_path: Path) -> None:
    def both(seed: int) -> dict[str, graphc.Program | nn.Module]:
        graphc.seed(seed)
        model, rule = Net(), optim.Adam(lr=0.01)
        x, y = graphc.spec((6, 4)), graphc.spec((6, 2))
        step = graphc.compile(loss_fn, model, x, y, update=rule)
        infer = graphc.compile(lambda m, x: m(x), model, x, training=False)
        return {"train": step, "infer": infer, "whole": model}

    first, second = both(0), both(1)
    train(first["train"], 0, 3)
    path = graphc.save_checkpoint(tmp_path, 3, first)
    names = [name.partition("/")[2] for name in graphc.load_weights(path)]
    assert len(names) == len(set(names))
    graphc.load_checkpoint(tmp_path, second)
    x, _ = data(9)
    np.testing.assert_array_equal(first["infer"](x), second["infer"](x))
    other = both(2)
    twin = {**other, "infer": both(3)["infer"]}
    before = bits(other["train"])
    with pytest.raises(
        GraphError, match=r"does not fit\n(  .+\n)*  infer: last.bias was shared with another, and "
        r"is not by now",
    ):  # fmt: skip
        graphc.load_checkpoint(tmp_path, twin)
    assert bits(other["train"]) == before
    apart = graphc.save_checkpoint(tmp_path / "apart", 3, twin)
    with pytest.raises(GraphError, match=r"infer: last.bias is shared with another, and was not"):
        graphc.load_checkpoint(apart, other)


def test_programs_of_any_size_go_on_once_they_have_a_plan(tmp_path: Path) -> None:
    def any_size(seed: int) -> graphc.SizedProgram:
        graphc.seed(seed)
        specs = graphc.spec(("batch", 4)), graphc.spec(("batch", 2))
        step = graphc.compile(
            loss_fn, Net(), *specs, update=optim.Adam(lr=0.01), device="reference"
        )
        assert isinstance(step, graphc.SizedProgram)
        return step

    first, second = any_size(0), any_size(1)
    audit = graphc.Audit(tmp_path / "audit")
    with pytest.raises(
        GraphError, match=r"^loss_fn: a checkpoint needs a plan, which says what state there is; "
    ):
        graphc.save_checkpoint(tmp_path, 2, first)
    train(first, 0, 2)
    audit(2, first)
    graphc.save_checkpoint(tmp_path, 2, first)
    second.at(batch=3)
    graphc.load_checkpoint(tmp_path, second)
    audit(2, second)
    assert train(first, 2, 4) == train(second, 2, 4)
    with pytest.raises(
        GraphError, match=r"^loss_fn: save\(path\) belongs to the program of one size, such as "
    ):
        first.save(tmp_path / "f")
    size = first.at(batch=6)
    size.save(tmp_path / "f")
    assert train(graphc.load(tmp_path / "f"), 4, 5) == train(size, 4, 5)


def test_the_newest_intact_one_is_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step = trainer("adam")
    assert graphc.load_checkpoint(tmp_path / "none", step) is None
    assert graphc.load_checkpoint(tmp_path, step) is None
    for number in (9, 10, 11, 12):
        train(step, number, number + 1)
        graphc.save_checkpoint(tmp_path, number, step, keep=4)
    kept = bits(step)
    flipped, cut = (tmp_path / f"step-{n}.safetensors" for n in (12, 11))
    content = bytearray(flipped.read_bytes())
    content[-5] ^= 1
    flipped.write_bytes(content)
    os.truncate(cut, cut.stat().st_size - 1)
    found = graphc.load_checkpoint(tmp_path, step)
    assert found is not None
    assert found.step == 10
    assert found.path.name == "step-10.safetensors"
    reason = "its digest is that of other contents: it is truncated or changed"
    assert found.skipped == (f"{flipped.name}: {reason}", f"{cut.name}: {reason}")
    assert f"graphc: load_checkpoint: skipped {flipped}: {reason}" in capfd.readouterr().err
    assert bits(step) != kept
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    kept = bits(step)
    with pytest.raises(
        GraphError, match=rf"^load_checkpoint: every checkpoint in {re.escape(str(tmp_path))} is "
        r"damaged\n  step-12.safetensors: it does not begin as a file of graphc does\n",
    ):  # fmt: skip
        graphc.load_checkpoint(tmp_path, step)
    with pytest.raises(GraphError, match=r"^load_checkpoint: \S+: it does not begin as a file"):
        graphc.load_checkpoint(cut, step)
    assert bits(step) == kept


def test_old_ones_and_unfinished_ones_are_removed(tmp_path: Path) -> None:
    step = trainer("momentum")
    (tmp_path / "step-3.safetensors.17-0.partial").write_bytes(b"half")
    (tmp_path / "notes.partial").write_text("mine")
    for number in (2, 9, 10, 11):
        graphc.save_checkpoint(tmp_path, number, step, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "notes.partial",
        "step-10.safetensors",
        "step-11.safetensors",
    ]
    graphc.save_checkpoint(tmp_path, 1, step, keep=1)
    graphc.save_checkpoint(tmp_path, 0, step, keep=None)
    assert {p.name for p in tmp_path.glob("step*")} == {
        f"step-{number}.safetensors" for number in (0, 1, 11)
    }


def test_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    step = trainer("adam")
    path = graphc.save_checkpoint(tmp_path, 1, step)
    shown = re.escape(str(path))
    specs = graphc.spec((6, 4)), graphc.spec((6, 2))
    other = graphc.compile(loss_fn, nn.Linear(4, 2), *specs, update=optim.SGD(lr=0.1))
    before = bits(other)
    with pytest.raises(GraphError, match=rf"^load_checkpoint: {shown} does not fit\n") as problem:
        graphc.load_checkpoint(tmp_path, other)
    lines = str(problem.value).splitlines()
    assert "  program: missing bias : f32[2]" in lines
    assert "  program: unexpected calls" in lines
    model = nn.Linear(4, 9)
    wide = graphc.save_checkpoint(tmp_path / "wide", 1, model)
    with pytest.raises(GraphError, match=r"program: bias: expected f32\[2\], got f32\[9\]\n"):
        graphc.load_checkpoint(wide, nn.Linear(4, 2))
    with pytest.raises(
        GraphError, match=r"does not fit\n  missing a\n  unexpected program\n  programs "
        r"that train: expected \['a'\], the file has \['program'\]$",
    ):  # fmt: skip
        graphc.load_checkpoint(tmp_path, {"a": other})
    assert bits(other) == before


def test_rates_that_no_program_holds_change_nothing(tmp_path: Path) -> None:
    step = trainer("adam", device="reference")
    path = graphc.save_checkpoint(tmp_path, 1, step)
    train(step, 0, 1)
    before = bits(step)

    def edit(document: dict[str, dict[str, list[float]]]) -> None:
        document["rates"]["program"][0] = 1e308

    path.write_bytes(rewritten(path.read_bytes(), edit))
    message = r"^Adam: lr expected a number in \[0, 3\.40282e\+38\), got 1e\+308"
    with pytest.raises(GraphError, match=message):
        graphc.load_checkpoint(path, step)
    assert bits(step) == before


def test_schedules_and_groups_have_to_be_made_again(tmp_path: Path) -> None:
    graphc.save_checkpoint(tmp_path / "a", 1, trainer("schedule"))
    number = trainer("schedule")
    number.lr = 0.5
    with pytest.raises(
        GraphError, match=r"^load_checkpoint: \S+: program: was saved with a schedule of learning "
        r"rates, the rule has 0\.5: make the rule with its schedule$",
    ):  # fmt: skip
        graphc.load_checkpoint(tmp_path / "a", number)
    specs = graphc.spec((6, 4)), graphc.spec((6, 2))
    plain, grouped = (
        graphc.compile(loss_fn, nn.Linear(4, 2), *specs, update=rule)
        for rule in (Fixed(), Fixed([{"params": lambda name: True}]))
    )
    graphc.save_checkpoint(tmp_path / "b", 1, plain)
    with pytest.raises(
        GraphError, match=r": program: was saved with 0 parameter groups, the rule has 1$"
    ):
        graphc.load_checkpoint(tmp_path / "b", grouped)


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    layer = nn.Linear(2, 1)
    with pytest.raises(
        GraphError, match=r"^save_checkpoint: step expected a whole number from 0 up, got "
    ):
        graphc.save_checkpoint(tmp_path, -1, layer)
    with pytest.raises(
        GraphError, match=r"^save_checkpoint: keep expected a number from 1 up or None, got "
    ):
        graphc.save_checkpoint(tmp_path, 1, layer, keep=0)
    with pytest.raises(
        GraphError, match=r"^save_checkpoint: expected a program, a module or a dict from names to "
        r"them, got list at 'program' \(test_checkpoints\.py:\d+\)$",
    ):  # fmt: skip
        graphc.save_checkpoint(tmp_path, 1, [layer])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r": expected a program or module, got an empty dict"):
        graphc.load_checkpoint(tmp_path, {})
    for wrong in ({"a": object()}, {"a": float("nan")}):
        with pytest.raises(GraphError, match=r"^save_checkpoint: data expected data for JSON: "):
            graphc.save_checkpoint(tmp_path, 1, layer, data=wrong)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphError, match=r"^save_checkpoint: cannot write \S+: Not a directory"):
        graphc.save_checkpoint(tmp_path / "file", 1, layer)
    with pytest.raises(GraphError, match=r"^load_checkpoint: \S+: cannot read it: No such file"):
        graphc.load_checkpoint(tmp_path / "no.safetensors", layer)


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "step-1.safetensors")
    with pytest.raises(GraphError, match=r"step-1.safetensors: no regular file"):
        graphc.load_checkpoint(tmp_path, nn.Linear(2, 1))


def test_generators_of_numpy_are_data(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    generator.random(5)
    layer = nn.Linear(2, 1)
    graphc.save_checkpoint(tmp_path, 1, layer, data=generator.bit_generator.state)
    again, found = np.random.default_rng(0), graphc.load_checkpoint(tmp_path, layer)
    assert found is not None
    again.bit_generator.state = found.data
    assert again.random() == generator.random()


def test_the_library_of_the_format_reads_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    from safetensors.numpy import load_file

    layer = nn.Linear(3, 2)
    path = graphc.save_checkpoint(tmp_path, 1, layer)
    assert "safetensors" in sys.modules
    np.testing.assert_array_equal(load_file(path)["program/weight"], layer.weight.numpy())
