"""What a run shows: its line, its curve, its event files."""

from __future__ import annotations

import io
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.training import Curve, History, Progress, TensorBoard
from tests.tools import need_module


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(**options: Any) -> History:
    """Two epochs of two steps."""
    losses = iter([4.0, 2.0, 1.0, 0.5])
    return graphc.fit(
        lambda: (next(losses), {"accuracy": 0.25}), [(), ()], 2, **{"progress": False, **options}
    )


@pytest.mark.parametrize("tqdm", [False, True])
def test_epochs_are_told_where_no_terminal_is(
    tqdm: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run(callbacks=[Progress(tqdm)])
    text = re.sub(r"\d+\.\d s", "T", capsys.readouterr().err)
    assert text == ("epoch 1/2: loss 3, accuracy 0.25, T\nepoch 2/2: loss 0.75, accuracy 0.25, T\n")


def test_a_terminal_has_a_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("graphc.training.progress.REDRAW", -1.0)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    history = run(progress=True)
    text = terminal.getvalue()
    assert "\r\033[Kepoch 1/2: step 1/2, loss 4, accuracy 0.25\r" in text
    assert re.search(r"\r\033\[Kepoch 2/2: loss 0.75, accuracy 0.25, \d+\.\d s\n", text)
    graphc.fit(lambda: 1.0, [()], 2, history=history)
    assert terminal.getvalue().endswith("goes on after epoch 2/2\n")


def test_a_terminal_has_the_line_of_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    need_module("tqdm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run(progress=True)
    text = terminal.getvalue()
    assert "epoch 1/2:   0%|" in text
    assert re.search(r"epoch 2/2: loss 0.75, accuracy 0.25, \d+\.\d s\n", text)


def test_a_curve_is_a_picture_on_disk(tmp_path: Path) -> None:
    need_module("matplotlib")
    path = tmp_path / "curve.png"
    run(callbacks=[Curve(path)])
    picture = path.read_bytes()
    width, height = struct.unpack(">II", picture[16:24])
    assert picture.startswith(b"\x89PNG") and (width, height) == (1024, 896)
    run(callbacks=[Curve(path, names=["loss"])])
    assert struct.unpack(">II", path.read_bytes()[16:24]) == (1024, 448)
    with pytest.raises(GraphError, match=r"^Curve: cannot write .*: No such file or directory$"):
        run(callbacks=[Curve(tmp_path / "absent" / "curve.png")])


def test_event_files_hold_steps_and_epochs(tmp_path: Path) -> None:
    need_module("tensorboardX")
    history = run(callbacks=[TensorBoard(tmp_path)])
    assert events(tmp_path) == {
        ("step/loss", 1): 4.0,
        ("step/loss", 2): 2.0,
        ("step/loss", 3): 1.0,
        ("step/loss", 4): 0.5,
        **{("step/accuracy", step): 0.25 for step in (1, 2, 3, 4)},
        ("epoch/loss", 2): 3.0,
        ("epoch/loss", 4): 0.75,
        **{("epoch/accuracy", step): 0.25 for step in (2, 4)},
    }
    assert history["loss"] == [3.0, 0.75]
    rare = tmp_path / "rare"
    run(callbacks=[TensorBoard(rare, every=None)])
    assert {name for name, _ in events(rare)} == {"epoch/loss", "epoch/accuracy"}


def events(folder: Path) -> dict[tuple[str, int], float]:
    """The scalars of the event files of a folder, read as TensorFlow's records."""
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for path in folder.glob("events*"):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            for value in event.summary.value:
                found[value.tag, event.step] = value.simple_value
            data = data[12 + length + 4 :]
    return found


@pytest.mark.parametrize(
    ("make", "absent", "message"),
    [
        (
            Curve,
            ("matplotlib.figure",),
            "Curve: matplotlib is not installed: pip install 'graphc[fit]'",
        ),
        (
            lambda: TensorBoard("run"),
            ("tensorboardX", "torch.utils.tensorboard"),
            "TensorBoard: tensorboardX is not installed: pip install 'graphc[fit]'",
        ),
    ],
)
def test_what_is_not_installed_is_named(
    make: Any, absent: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    line = r" \(test_shown_runs\.py:\d+\)"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}{line}$"):
        make()


def test_a_frequency_is_checked(tmp_path: Path) -> None:
    message = "TensorBoard: every expected a number from 1 up or None, got 0"
    with pytest.raises(GraphError, match=f"^{message} "):
        TensorBoard(tmp_path, every=0)
