"""A run in a notebook has one bar, one table and one picture, however many epochs it has."""

from __future__ import annotations

import json
import re
import struct
import sys
import types
from typing import Any

import pytest

import graphc
from graphc.training import Callback, Curve, History
from tests.support.examples import EXAMPLES
from tests.tools import need_command, need_module

NOTEBOOK = EXAMPLES / "fit.ipynb"


class Shown:
    """A stand-in for IPython in a notebook; `outputs` has all states of each output."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.outputs: list[list[Any]] = []
        notebook, pictures = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        notebook.version_info = (9, 0)  # which matplotlib asks for
        notebook.get_ipython = lambda: types.SimpleNamespace(kernel=object())
        pictures.display = self.display
        pictures.HTML = lambda text: text
        pictures.Image = lambda **image: image
        patch.setitem(sys.modules, "IPython", notebook)
        patch.setitem(sys.modules, "IPython.display", pictures)
        patch.setattr("graphc.training.notebook.REDRAW", -1.0)

    def display(self, content: Any, display_id: bool) -> Any:
        assert display_id
        states = [content]
        self.outputs.append(states)
        return types.SimpleNamespace(update=states.append)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return Shown(monkeypatch)


def run(epochs: int, *callbacks: Callback, history: History | None = None) -> History:
    """Epochs of two steps."""
    losses = iter(range(2 * epochs, 0, -1))
    return graphc.fit(
        lambda: (float(next(losses)), {"a<b": 0.25}),
        [(), ()],
        epochs,
        callbacks=callbacks,
        history=history,
    )


def cells(page: str) -> list[list[str]]:
    """The texts of a table, row by row."""
    rows = re.findall("<tr>(.*?)</tr>", page)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def test_a_bar_moves_and_leaves_a_table(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    run(2)
    (states,) = shown.outputs
    bars = [re.search(r'value="(.*?)" max="2".*</progress> (.*?)</div>', page) for page in states]
    assert [bar and bar[1] for bar in bars] == [
        *("0.000", "0.500", "1.000", "1.000", "1.500", "2.000", "2.000"),
        None,
    ]
    assert bars[1] and bars[1][2] == "epoch 1/2, step 1/2, loss 4, a&lt;b 0.25"
    assert bars[5] and bars[5][2] == "epoch 2/2, step 2/2, loss 1, a&lt;b 0.25, 0 s left"
    assert re.match(r"<div>2 of 2 epochs, 4 steps, \d+\.\d s</div><table", states[-1])
    head, *rows = cells(states[-1])
    assert head == ["epoch", "loss", "a&lt;b", "seconds"]
    assert [row[:3] for row in rows] == [["1", "3.5", "0.25"], ["2", "1.5", "0.25"]]
    assert capsys.readouterr() == ("", "")


def test_a_table_has_the_last_epochs(shown: Shown) -> None:
    run(11)
    assert [row[0] for row in cells(shown.outputs[0][-1])[1:]] == [str(n) for n in range(4, 12)]


def test_a_table_goes_on_with_a_history(shown: Shown) -> None:
    history = run(1)
    history.means.add({"loss": 9.0}, 1)
    history.close({})
    run(4, history=history)
    first, last = shown.outputs[1][0], shown.outputs[1][-1]
    assert 'value="2.000" max="4"' in first
    assert [row[0] for row in cells(last)[1:]] == ["1", "2", "3", "4"]
    assert cells(last)[2] == ["2", "9", "", ""]
    assert cells(last)[1][3] == "" != cells(last)[3][3]


def test_a_run_that_fails_leaves_no_bar(shown: Shown) -> None:
    class Fail(Callback):
        def epoch(self, run: Any) -> None:
            raise ValueError("after the first epoch")

    with pytest.raises(ValueError, match=r"^after the first epoch$"):
        run(3, Fail())
    assert "<progress" not in shown.outputs[0][-1]
    assert shown.outputs[0][-1].startswith("<div>1 of 3 epochs, 2 steps, ")


def test_one_picture_grows(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    need_module("matplotlib")
    monkeypatch.setattr("graphc.training.curve.REDRAW", -1.0)
    run(3, Curve(None))
    assert [len(states) for states in shown.outputs] == [11, 3]
    for picture in shown.outputs[1]:
        assert struct.unpack(">II", picture["data"][16:24]) == (1024, 896)
        assert (picture["width"], picture["height"]) == (640, 560)


def test_short_epochs_share_a_picture_but_the_last_is_drawn(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_module("matplotlib")
    monkeypatch.setattr("graphc.training.curve.REDRAW", 1e6)
    drawn: list[int] = []
    curve = Curve(None)
    draw = curve.draw
    monkeypatch.setattr(curve, "draw", lambda history: drawn.append(len(history)) or draw(history))
    run(1, curve)
    run(5, curve)
    assert drawn == [1, 1, 5]


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) == 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_notebook_runs_in_jupyter(monkeypatch: pytest.MonkeyPatch) -> None:
    need_command("g++", "clang++")
    for name in ("sklearn", "matplotlib", "ipykernel"):
        need_module(name)
    client = need_module("nbclient")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent), prepend=":")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    *_, fit, accuracy = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [set(output.get("data", {})) for output in fit.outputs]
    assert kinds == [{"text/html", "text/plain"}, {"image/png", "text/plain"}]
    page = fit.outputs[0].data["text/html"]
    page = page if isinstance(page, str) else "".join(page)
    assert page.startswith("<div>30 of 30 epochs, 900 steps, ")
    learned = re.fullmatch(r"'([\d.]+) % of .*'", accuracy.outputs[0].data["text/plain"])
    assert learned and float(learned[1]) > 90
