"""The environment: defaults, every variable, arguments that beat them, every error."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from graphc.base import config
from graphc.base.cores import usable_cores
from graphc.base.errors import GraphError

pytestmark = pytest.mark.usefixtures("clean_environment")


def test_an_empty_environment_gives_the_defaults(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.read() == config.Config(threads=usable_cores(), cache_dir=tmp_path / "graphc")


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("GRAPHC_NUM_STREAMS", "8", "streams", 8),
        ("GRAPHC_NUM_STREAMS", "auto", "streams", "auto"),
        ("GRAPHC_NUM_THREADS", "3", "threads", 3),
        ("GRAPHC_DEVICE", "cuda:1", "device", "cuda:1"),
        ("GRAPHC_DUMP", "/tmp/dump", "dump", Path("/tmp/dump")),
        ("GRAPHC_CACHE_DIR", "/tmp/cache", "cache_dir", Path("/tmp/cache")),
        ("GRAPHC_CACHE_LIMIT", "1G", "cache_limit", 1 << 30),
        ("GRAPHC_PLAN_CACHE", "0", "plan_cache", False),
        ("GRAPHC_COMPILE_SECONDS", "1.5", "compile_seconds", 1.5),
        ("GRAPHC_TUNE", "1", "tune", True),
        ("GRAPHC_TUNE", "0", "tune", False),
        ("GRAPHC_TIER", "0", "tier", "0"),
        ("GRAPHC_TIER", "1", "tier", "1"),
        ("GRAPHC_EARLY_LAUNCH", "1", "early_launch", True),
        ("GRAPHC_WGMMA", "1", "multiplies_groups", True),
        ("GRAPHC_TMA", "1", "copies_in_bulk", True),
        ("GRAPHC_CLUSTERS", "1", "adds_in_clusters", True),
        ("GRAPHC_TICKETS", "0", "draws_tickets", False),
        ("GRAPHC_TUNE", "1", "libraries", False),
        ("GRAPHC_TUNE", "libraries", "tune", True),
        ("GRAPHC_TUNE", "libraries", "libraries", True),
        ("GRAPHC_MEMORY_LIMIT", "1500000", "memory_limit", 1500000),
        ("GRAPHC_MEMORY_LIMIT", "1.5K", "memory_limit", 1536),
        ("GRAPHC_MEMORY_LIMIT", "512MB", "memory_limit", 512 << 20),
        ("GRAPHC_MEMORY_LIMIT", "2G", "memory_limit", 2 << 30),
        ("GRAPHC_CHECK", "nan, race", "check", frozenset({"nan", "race"})),
        ("GRAPHC_DISABLE", "layout,commute", "disable", ("layout", "commute")),
        ("GRAPHC_DENORMALS", "keep", "denormals", "keep"),
        ("GRAPHC_ISA", "avx2", "isa", "avx2"),
        ("GRAPHC_LOG", "debug", "log", "debug"),
    ],
)
def test_each_variable_sets_its_field(monkeypatch, variable, text, field, value):
    monkeypatch.setenv(variable, text)
    assert getattr(config.read(), field) == value


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("GRAPHC_NUM_STREAMS", "9", "a whole number from 1 to 8 or auto"),
        ("GRAPHC_NUM_STREAMS", "two", "a whole number from 1 to 8 or auto"),
        ("GRAPHC_NUM_THREADS", "0", "a whole number from 1 to 1024"),
        ("GRAPHC_DEVICE", "gpu", "cpu, cuda, cuda:N, sim or reference"),
        ("GRAPHC_CACHE_LIMIT", "-1", "a number of bytes such as 1500000, 512M or 2G"),
        ("GRAPHC_COMPILE_SECONDS", "0", "a number of seconds such as 600"),
        ("GRAPHC_COMPILE_SECONDS", "soon", "a number of seconds such as 600"),
        ("GRAPHC_TIER", "2", "0 or 1"),
        ("GRAPHC_TUNE", "yes", "0 or 1, or libraries"),
        ("GRAPHC_MEMORY_LIMIT", "search", "a number of bytes such as 1500000, 512M or 2G"),
        ("GRAPHC_MEMORY_LIMIT", "lots", "a number of bytes such as 1500000, 512M or 2G"),
        ("GRAPHC_CHECK", "nan,inf", "a comma-separated list of nan, race, bounds, meaning"),
        ("GRAPHC_DENORMALS", "zero", "flush or keep"),
        ("GRAPHC_ISA", "sse", "one of sse2, avx2, avx512"),
        ("GRAPHC_LOG", "loud", "one of error, warning, info, debug"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_variable(monkeypatch, variable, text, expected):
    monkeypatch.setenv(variable, text)
    message = f"{variable}: expected {expected}, got {text!r}"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        config.read()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"streams": 9}, "streams: expected a whole number from 1 to 8 or auto, got 9"),
        ({"streams": True}, "streams: expected a whole number from 1 to 8 or auto, got True"),
        ({"threads": 0}, "threads: expected a whole number from 1 to 1024, got 0"),
        ({"threads": 1.5}, "threads: expected a whole number from 1 to 1024, got 1.5"),
        ({"device": "tpu"}, "device: expected cpu, cuda, cuda:N, sim or reference, got 'tpu'"),
        (
            {"memory": "least"},
            "memory: expected a number of bytes such as 1500000, 512M or 2G, or search or lean, "
            "got 'least'",
        ),
        ({"wait": 1}, "wait: expected True, False or None, got 1"),
        ({"tune": "maybe"}, "tune: expected 0 or 1, or libraries, got 'maybe'"),
    ],
)
def test_a_bad_argument_is_an_error_that_names_the_argument(arguments, message):
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        config.read(**arguments)


def test_a_pass_that_is_not_optional_cannot_be_disabled(monkeypatch):
    optional = ("clean", "layout")
    assert config.read(disable=["clean"], optional=optional).disable == ("clean",)
    message = "disable: expected names of clean, layout, got 'fuse'"
    with pytest.raises(GraphError, match=f"^{message}$"):
        config.read(disable=["clean", "fuse"], optional=optional)
    monkeypatch.setenv("GRAPHC_DISABLE", "layout,fuse")
    message = "GRAPHC_DISABLE: expected names of clean, layout, got 'layout,fuse'"
    with pytest.raises(GraphError, match=f"^{message}$"):
        config.read(optional=optional)


def test_an_argument_beats_the_environment(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_STREAMS", "4")
    monkeypatch.setenv("GRAPHC_NUM_THREADS", "4")
    monkeypatch.setenv("GRAPHC_DEVICE", "cuda")
    monkeypatch.setenv("GRAPHC_TUNE", "1")
    monkeypatch.setenv("GRAPHC_DISABLE", "layout")
    settings = config.read(
        streams=2, threads=1, device="cpu", tune=False, disable=("commute", "layout")
    )
    assert (settings.streams, settings.threads, settings.device) == (2, 1, "cpu")
    assert settings.tune is False
    assert settings.disable == ("commute", "layout")


@pytest.mark.parametrize(
    ("variable", "wait", "tier"),
    [
        ("", None, ""),
        ("", True, "1"),
        ("", False, ""),
        ("0", None, "0"),
        ("0", True, "1"),
        ("0", False, "0"),
        ("1", None, "1"),
        ("1", True, "1"),
        ("1", False, ""),
    ],
)
def test_waiting_for_compiled_kernels_is_a_matter_of_the_argument(
    monkeypatch, variable, wait, tier
):
    monkeypatch.setenv("GRAPHC_TIER", variable)
    assert config.read(wait=wait).tier == tier


def test_a_variable_that_an_argument_beats_is_not_looked_at(monkeypatch):
    monkeypatch.setenv("GRAPHC_NUM_STREAMS", "many")
    assert config.read(streams=2).streams == 2


def test_an_empty_variable_counts_as_unset(monkeypatch):
    for variable in ("GRAPHC_NUM_STREAMS", "GRAPHC_DEVICE", "GRAPHC_DUMP", "GRAPHC_CHECK"):
        monkeypatch.setenv(variable, "")
    settings = config.read()
    assert (settings.streams, settings.device, settings.dump) == ("auto", None, None)


def test_the_environment_is_read_at_use(monkeypatch):
    monkeypatch.delenv("GRAPHC_NUM_STREAMS", raising=False)
    assert config.read().streams == "auto"
    monkeypatch.setenv("GRAPHC_NUM_STREAMS", "3")
    assert config.read().streams == 3


def test_every_variable_is_in_the_readme_or_among_the_switches_for_gpus():
    root = Path(__file__).resolve().parent.parent
    source = (root / "graphc" / "base" / "config.py").read_text()
    listed = (root / "README.md").read_text() + (root / "docs" / "gpu.md").read_text()
    variables = set(re.findall(r'"(GRAPHC_[A-Z_]+)"', source))
    assert len(variables) == 29
    assert not [name for name in sorted(variables) if f"`{name}`" not in listed]


def test_no_other_file_reads_the_environment_of_graphc():
    root = Path(__file__).resolve().parent.parent
    readers = [
        str(path.relative_to(root))
        for folder in ("graphc", "kernels", "runtime")
        for path in (root / folder).rglob("*.py")
        if re.search(r"(environ|getenv)[^\n]*GRAPHC_", path.read_text())
    ]
    assert [path for path in readers if os.path.basename(path) != "config.py"] == []
