"""Reports in a browser from file://, the network off: searched, opened and closed, clicked, pointed
at, by keyboard and in the dark; nothing on the console."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphc.report.data import program_data
from tests.report.browser import Browser, chromium
from tests.report.programs import training

TEXT = "document.getElementById('view').innerText"
DETAILS = "document.getElementById('inspector').innerText"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of several programs."""
    folder = tmp_path_factory.mktemp("reports")
    training("lenet").report(folder / "lenet.html")
    training("lenet", streams=2).report(folder / "streams.html")
    training("recurrent").report(folder / "recurrent.html")
    training("mlp", "reference").report(folder / "reference.html")
    training("lenet").report(folder / "two.html", versus=training("lenet", streams=2))
    return folder


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(started: Browser) -> Iterator[Browser]:
    started.problems.clear()
    yield started
    assert started.problems == []


def test_the_first_screen_tells_the_story(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html")
    strip = browser.js("document.querySelector('.strip').innerText")
    data = program_data(training("lenet"))
    assert f"{data.summary.ops} → {len(data.kernels)}" in strip
    text = browser.js(TEXT)
    slowest = browser.js("document.querySelector('.ranked button').innerText")
    assert slowest in training("lenet").kernels
    assert "What holds the peak" in text
    assert re.search(r"small_models\.py:\d+", text)
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    "view", ["overview", "graph", "source", "passes", "kernels", "memory", "timeline"]
)
@pytest.mark.parametrize("report", ["lenet", "recurrent", "two"])
def test_every_view_draws(browser: Browser, folder: Path, report: str, view: str) -> None:
    browser.open(folder / f"{report}.html", view)
    browser.until(f"{TEXT}.length > 40")
    assert browser.js("document.querySelector('[aria-selected=true]').dataset.view") == view
    assert "NaN" not in browser.js("document.getElementById('view').innerHTML")
    assert "undefined" not in browser.js(TEXT)


def test_search_finds_a_kernel_by_keyboard_and_shows_it(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html")
    name = next(k for k in training("lenet").kernels if "conv2" in k and "wgrad" in k)
    browser.key("/", "/")
    browser.write(name[:10])
    browser.until("!document.getElementById('found').hidden")
    hits = browser.js("[...document.querySelectorAll('#found li')].map((li) => li.innerText)")
    assert hits[0].split("\n")[0].startswith(name[:10])
    browser.key("Enter")
    browser.until("!document.getElementById('inspector').hidden")
    details = browser.js(DETAILS)
    assert details.split("\n")[1].startswith(name[:10])
    assert "small_models.py:" in details
    assert 'extern "C" void' in details
    browser.key("Escape")
    browser.js("document.activeElement.blur()")
    browser.key("Escape")
    assert browser.js("document.getElementById('inspector').hidden")


def test_a_search_for_nothing_that_is_there_says_so(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html")
    browser.click("#search")
    browser.write("no such thing")
    browser.until("!document.getElementById('found').hidden")
    assert browser.js("document.getElementById('found').innerText") == "nothing found"


def test_modules_of_the_graph_close_and_open(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html", "graph")
    browser.until("document.querySelectorAll('.node').length > 5")
    boxes = "document.querySelectorAll('.node').length"
    before = browser.js(boxes)
    browser.click('button[aria-label="Close every module"]')
    closed = browser.js(boxes)
    assert closed < before
    module = browser.js("document.querySelector('.node[data-module]').dataset.module")
    browser.js("document.querySelector('.node[data-module]').focus()")
    browser.key(" ", " ")
    assert browser.js(boxes) > closed
    browser.until("document.activeElement.getAttribute('aria-expanded') === 'true'")
    assert module in browser.js("document.activeElement.textContent")
    browser.key("Enter")
    assert browser.js(boxes) == closed
    browser.click('button[aria-label="Open every module"]')
    assert browser.js(boxes) >= before


def test_a_kernel_in_the_graph_shows_its_line_reasons_and_source(
    browser: Browser, folder: Path
) -> None:
    browser.open(folder / "lenet.html", "graph")
    browser.click('button[aria-label="Open every module"]')
    name = browser.js("document.querySelector('.node[data-kernel]').dataset.kernel")
    browser.click(f'.node[data-kernel="{name}"]')
    details = browser.js(DETAILS)
    assert details.split("\n")[1] == name
    assert "Generated source" in details
    assert "What it computes" in details
    kernel = next(k for k in program_data(training("lenet")).kernels if k.name == name)
    assert all(line in details for line in kernel.lines)
    assert kernel.source.strip() in details
    assert browser.js("document.querySelectorAll('.node.selected').length") == 1
    browser.click("#inspector .link")


def test_a_line_leads_to_its_kernels_and_they_to_the_graph(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html", "source")
    browser.until("document.querySelector('button.row')")
    line = browser.js("document.querySelector('button.row').dataset.line")
    browser.click("button.row")
    assert browser.js(DETAILS).split("\n")[1] == line
    browser.click("#inspector li .link")
    name = browser.js("document.querySelector('#inspector h2').innerText")
    assert name in training("lenet").kernels
    browser.js("[...document.querySelectorAll('#inspector button')].at(-1).click()")
    browser.until("document.querySelector('.node.selected')")
    assert browser.js("document.querySelector('.node.selected').dataset.kernel") == name


def test_a_buffer_tells_of_itself_under_the_pointer(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html", "memory")
    browser.until("document.querySelector('.memory .mark')")
    largest = max(program_data(training("lenet")).buffers, key=lambda b: b.stop - b.start)
    browser.point(f'.memory .mark[data-buffer="{largest.value}"]')
    browser.until("!document.getElementById('tip').hidden")
    tip = browser.js("document.getElementById('tip').innerText")
    for told in (largest.value, largest.type, largest.producer, "last used by", *largest.lines):
        assert told in tip
    browser.click(f'.memory .mark[data-buffer="{largest.value}"]')
    assert browser.js(DETAILS).split("\n")[1] == largest.value


@pytest.mark.parametrize("view", ["memory", "timeline", "kernels"])
def test_drawings_are_operable_by_keyboard(browser: Browser, folder: Path, view: str) -> None:
    browser.open(folder / "lenet.html", view)
    browser.until("document.querySelector('svg.chart')")
    browser.js("document.querySelector('svg.chart').focus()")
    for _ in range(3):
        browser.key("ArrowRight")
    assert browser.js("document.querySelectorAll('.mark.current').length") == 1
    title = browser.js("document.querySelector('#tip strong').innerText")
    browser.key("Enter")
    assert title in browser.js(DETAILS)


def test_tabs_follow_the_arrow_keys(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html")
    browser.js("document.querySelector('[role=tab][aria-selected=true]').focus()")
    browser.key("ArrowRight")
    assert browser.js("document.activeElement.dataset.view") == "graph"
    assert browser.js("location.hash") == "#graph"


def test_events_and_the_critical_path_are_drawn(browser: Browser, folder: Path) -> None:
    browser.open(folder / "streams.html", "timeline")
    plan = training("lenet", streams=2).plan
    assert browser.js("document.querySelectorAll('path.event').length") > 0
    critical = program_data(training("lenet", streams=2)).critical
    assert 0 < browser.js("document.querySelectorAll('.mark.critical').length") <= len(plan.steps)
    assert len(critical) > 1
    shown = browser.js("document.querySelectorAll('.timeline .mark[data-step]').length")
    assert shown == 2 * len(plan.kernels)
    browser.click('button[aria-label="Zoom in"]')
    assert browser.js("document.querySelectorAll('.timeline .mark[data-step]').length") < shown


def test_passes_show_what_they_changed(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html", "passes")
    browser.js(
        "[...document.querySelectorAll('.passes li button')]"
        ".find((b) => b.innerText.startsWith('fuse_contract')).click()"
    )
    assert browser.js("document.querySelectorAll('.diff .add').length") > 0
    assert "relu" in browser.js("document.querySelector('.diff .gone').parentElement.innerText")
    assert "= kernel conv1_" in browser.js(TEXT)


def test_a_table_is_sorted_by_its_heads(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html", "kernels")
    names = (
        "[...document.querySelectorAll('table.kernels [data-kernel]')].map((r) => r.dataset.kernel)"
    )
    first = browser.js(names)
    browser.js("document.querySelector('table.kernels th button').click()")
    assert browser.js(names) == sorted(first)


def test_the_dark_scheme_is_dark_and_legible(browser: Browser, folder: Path) -> None:
    for view in ("overview", "memory"):
        browser.open(folder / "lenet.html", view, dark=True)
        browser.until(f"{TEXT}.length > 40")
        ground = browser.js("getComputedStyle(document.body).backgroundColor")
        assert luminance(ground) < 0.05
        for selector in ("h1", ".strip dt", ".link, .muted", "[role=tab]"):
            colour = browser.js(f"getComputedStyle(document.querySelector('{selector}')).color")
            assert contrast(colour, ground) >= 4.5, selector
    browser.open(folder / "lenet.html")
    assert luminance(browser.js("getComputedStyle(document.body).backgroundColor")) > 0.8


def test_on_paper_the_views_stand_below_each_other(browser: Browser, folder: Path) -> None:
    browser.open(folder / "lenet.html")
    browser.js("dispatchEvent(new Event('beforeprint'))")
    assert browser.js(
        "[...document.querySelectorAll('.printed > h1')].map((h) => h.innerText)"
    ) == [
        *("Overview", "Kernels", "Memory", "Timeline"),
    ]
    browser.js("dispatchEvent(new Event('afterprint'))")
    assert browser.js("document.querySelector('.printed')") is None


def test_two_programs_are_compared(browser: Browser, folder: Path) -> None:
    browser.open(folder / "two.html")
    rows = browser.js(
        "[...document.querySelectorAll('#view tbody tr')].map((r) => r.innerText.split('\\t'))"
    )
    assert ["streams", "1", "2", "2.00×"] in rows
    browser.click('[data-view="memory"]')
    assert browser.js("document.querySelectorAll('svg.memory').length") == 2


def test_without_a_plan_the_graph_is_left(browser: Browser, folder: Path) -> None:
    browser.open(folder / "reference.html")
    tabs = browser.js("[...document.querySelectorAll('[role=tab]')].map((t) => t.innerText)")
    assert tabs == ["Overview", "Graph", "Source", "Passes"]
    browser.click('[data-view="graph"]')
    browser.until("document.querySelector('.node')")


def luminance(colour: str) -> float:
    """Of WCAG, from 0 to 1, of `rgb(r, g, b)`."""
    parts = [int(p) / 255 for p in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Of WCAG: from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
