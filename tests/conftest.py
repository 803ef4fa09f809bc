"""Fixtures of the whole suite: golden files, a cache folder of the suite's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.quick import mark_slow, plays_prebuilt
from tests.resume import register

pytest.register_assert_rewrite("tests.support")

GOLDEN = Path(__file__).parent / "golden"
TIER = os.environ.get("GRAPHC_TIER")
"""What all tests play if it is set, as `make campaign` does."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files from the results"
    )
    parser.addoption("--resume", help="leave out what passed before at this commit, by this file")


def pytest_configure(config: pytest.Config) -> None:
    # Tests replace parts of the package, which no key of a plan knows. Those of
    # tests/runtime/test_plan_store.py let plans be found.
    os.environ.setdefault("GRAPHC_PLAN_CACHE", "0")
    # What is compiled without saying so depends on no measurement. Those of
    # tests/runtime/test_stream_autotuner.py let it.
    os.environ.setdefault("GRAPHC_NUM_STREAMS", "1")
    register(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Either what is compiled is played, or what is prebuilt: never one until the other is there.
    # Those of tests/runtime/test_tiers.py let one follow the other.
    if TIER is None:
        os.environ["GRAPHC_TIER"] = "0" if plays_prebuilt(item) else "1"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text equals that of `tests/golden/NAME`."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.rstrip("\n") + "\n")
        assert path.exists(), f"{path.name} is missing: run pytest --update-golden and review it"
        assert text.rstrip("\n") + "\n" == path.read_text()

    return check


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No GRAPHC_ variable is set; returns the monkeypatch that tests set theirs with."""
    for variable in [name for name in os.environ if name.startswith("GRAPHC_")]:
        monkeypatch.delenv(variable)
    return monkeypatch


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled for the CPU has its graph, its plan and the texts of its kernels, which no
    compiler is given; it cannot be called."""
    monkeypatch.setattr(
        "graphc.runtime.compilers.translation_units.building", lambda _: nullcontext(lambda: None)
    )
    loaded = SimpleNamespace(run=None, first=SimpleNamespace(note="", prebuilt={}, keys={}))
    monkeypatch.setattr("graphc.runtime.cpu.executable.load", lambda *_, **__: loaded)
