"""examples/train_in_browser in Chromium, the network off and the server ended: it has the bits of
Python, learns, reads what is drawn, and goes on from a saved state to the bit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.browser import Browser, chromium, find_chromium, served
from tests.tools import ROOT, need_command, need_module

LIMIT = 240.0
"""Seconds that the build, or a part of training, may take on a loaded machine."""
STROKES = {
    0: [[(50, 15), (33, 25), (27, 50), (33, 75), (50, 85), (67, 75), (73, 50), (67, 25), (50, 15)]],
    1: [[(38, 30), (52, 15), (52, 85)]],
    2: [[(30, 30), (40, 17), (58, 17), (68, 30), (62, 45), (30, 82), (72, 82)]],
    4: [[(42, 15), (28, 55), (74, 55)], [(62, 35), (58, 86)]],
    5: [[(68, 17), (36, 17), (33, 45), (50, 42), (66, 52), (68, 68), (55, 82), (30, 80)]],
}
"""Digits as lines through points, in hundredths of the field."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page."""
    find_chromium()
    need_module("sklearn")
    need_command("g++", "clang++")
    if "CXX" not in os.environ:
        need_module("ziglang")
    folder = tmp_path_factory.mktemp("page")
    program = ROOT / "examples" / "train_in_browser" / "build.py"
    result = subprocess.run(
        [sys.executable, program, folder / "out"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert result.returncode == 0, result.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def browser(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page in a browser, when its server has ended."""
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        with served(built) as port:
            browser.visit(port)
        yield browser
        assert browser.problems == []


def text(browser: Browser, selector: str) -> str:
    return browser.js(f"document.querySelector('{selector}').innerText")


def train(browser: Browser, amount: str) -> None:
    """Train for so much, a value of the page's choices."""
    browser.js(f"document.getElementById('amount').value = '{amount}'")
    browser.click("#start")
    browser.until("document.body.dataset.running === 'false'", LIMIT)
    assert text(browser, "#status").startswith("Paused after ")


def save(browser: Browser, folder: Path) -> bytes:
    """The file that the page offers."""
    folder.mkdir()
    options = {"behavior": "allow", "downloadPath": str(folder)}
    browser.call("Browser.setDownloadBehavior", **options)
    browser.click("#save")
    end = time.monotonic() + LIMIT
    while not (files := list(folder.glob("*.state"))):
        assert time.monotonic() < end
        browser.js("new Promise((done) => setTimeout(done, 20))")
    return files[0].read_bytes()


def restore(browser: Browser, path: Path) -> None:
    """Give the page a file."""
    node = browser.call("Runtime.evaluate", expression="document.getElementById('file')")
    browser.js("document.getElementById('status').textContent = ''")
    browser.call("DOM.setFileInputFiles", files=[str(path)], objectId=node["result"]["objectId"])
    browser.until("document.getElementById('status').textContent")


def test_it_has_the_bits_of_python_and_goes_on_from_a_file_to_the_bit(
    browser: Browser, built: Path, tmp_path: Path
) -> None:
    assert text(browser, "#madd") == "relaxed SIMD, fused"
    compared = json.loads((built / "about.json").read_text())["compared"]
    browser.click("#reset")
    browser.until("document.getElementById('status').textContent.startsWith('Back at ')")
    train(browser, "10")
    assert text(browser, "#same") == "yes, after 10 steps"
    state = save(browser, tmp_path / "ten")
    assert hashlib.sha256(state).hexdigest() == compared["sha256"]
    assert compared["steps"] == 10
    train(browser, "10")
    expected = save(browser, tmp_path / "twenty")
    damaged = bytearray(state)
    damaged[1000] ^= 1
    (tmp_path / "damaged.state").write_bytes(damaged)
    restore(browser, tmp_path / "damaged.state")
    assert text(browser, "#status.bad")
    assert save(browser, tmp_path / "same") == expected
    restore(browser, tmp_path / "ten" / "digits-step-10.state")
    assert text(browser, "#status") == "Goes on from step 10."
    train(browser, "10")
    assert save(browser, tmp_path / "again") == expected != state


def test_it_learns_to_read_what_is_drawn(browser: Browser) -> None:
    for _ in range(12):
        train(browser, "epoch")
        accuracy = float(text(browser, "#accuracy").split()[0])
        if accuracy >= 97:
            break
    assert accuracy >= 97
    wrong = round((1 - accuracy / 100) * 297)
    browser.click("#only")
    assert browser.js("document.querySelectorAll('#tests .wrong').length") == wrong
    assert f"{wrong} of all 297 are read wrong" in text(browser, "#wrong")
    assert [draw(browser, strokes) for strokes in STROKES.values()] == list(STROKES)


def draw(browser: Browser, strokes: list[list[tuple[int, int]]]) -> int:
    """What the page reads when the mouse draws lines through points."""
    browser.click("#clear")
    assert text(browser, "#reading") == "Draw with mouse, pen or finger."
    browser.js("document.getElementById('field').scrollIntoView({block: 'center'})")
    x, y, size = browser.js(
        "(({x, y, width}) => [x, y, width])"
        "(document.getElementById('field').getBoundingClientRect())"
    )
    for stroke in strokes:
        for i, point in enumerate([*stroke, stroke[-1]]):
            kind = ("mousePressed", "mouseMoved", "mouseReleased")[(i > 0) + (i == len(stroke))]
            at = {"x": x + point[0] * size / 100, "y": y + point[1] * size / 100}
            event = {"type": kind, "button": "left", "buttons": 1, "clickCount": 1, **at}
            browser.call("Input.dispatchMouseEvent", **event)
    # The answer to the last question comes after those to all before.
    browser.until("document.body.dataset.asking === 'false'")
    return int(text(browser, "#reading").split()[3].rstrip(","))


def test_it_can_be_drawn_by_keyboard(browser: Browser) -> None:
    browser.click("#clear")
    browser.js("document.getElementById('field').focus()")
    browser.key(" ", " ")
    for _ in range(12):
        browser.key("ArrowDown")
    browser.until("document.body.dataset.asking === 'false'")
    assert text(browser, "#reading").startswith("The net reads ")
    seen = "document.getElementById('seen').getContext('2d').getImageData(0, 0, 8, 8).data"
    alpha = browser.js(f"[...{seen}].filter((_, i) => i % 4 === 3)")
    columns = [sum(alpha[x::8]) for x in range(8)]
    assert all(columns[3:5]) and not any(columns[:2] + columns[6:])  # a line down the middle
    browser.key("Delete")
    assert text(browser, "#reading") == "Draw with mouse, pen or finger."


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits_every_width(browser: Browser, width: int) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.call("Emulation.setDeviceMetricsOverride", **metrics)
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    browser.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it(browser: Browser, dark: bool) -> None:
    browser.scheme(dark)
    pale = browser.js(CONTRAST)
    browser.scheme(False)
    assert pale == []


CONTRAST = """(() => {
  const rgb = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => rgb(color).slice(0, 3)
    .map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return rgb(color)[3] === 0 ? behind(element.parentElement) : color;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return [...document.body.querySelectorAll('*')]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => e.getClientRects().length && !e.matches('#hint, :disabled'))
    .map((e) => {
      const style = getComputedStyle(e);
      const ink = e instanceof SVGElement ? style.fill : style.color;
      return [e.id || e.tagName, ratio(light(ink), light(behind(e)))];
    })
    .filter(([, found]) => found < 4.5);
})()"""
"""Elements with text whose contrast is below WCAG's 4.5, with it."""


def test_every_control_has_a_name(browser: Browser) -> None:
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "combobox", "checkbox", "application", "image", "img")
    named = [(n["role"]["value"], n.get("name", {}).get("value")) for n in nodes if "role" in n]
    controls = [(role, name) for role, name in named if role in roles]
    assert len(controls) >= 8
    assert all(name for _, name in controls), controls
