"""What is said on standard error."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time

import pytest

import graphc
from graphc.base import messages
from graphc.base.messages import log
from tests.tools import need_command


@pytest.mark.parametrize(
    ("level", "said"),
    [("error", "e"), ("", "ew"), ("warning", "ew"), ("info", "ewi"), ("debug", "ewid")],
)
def test_a_message_is_said_up_to_the_level(level, said, capsys, clean_environment):
    clean_environment.setenv("GRAPHC_LOG", level)
    for name in ("error", "warning", "info", "debug"):
        log(name, name[0])
    assert capsys.readouterr().err == "".join(f"graphc: {letter}\n" for letter in said)


def test_info_names_every_pass_with_its_nodes_and_time(capsys, clean_environment):
    clean_environment.setenv("GRAPHC_LOG", "info")
    program = graphc.compile(lambda x: graphc.exp(x) + 1.0, graphc.spec((4,)), device="reference")
    lines = capsys.readouterr().err.splitlines()
    named = [re.fullmatch(r"graphc: (\w+): \d+ -> \d+ nodes in [\d.]+ ms", s) for s in lines]
    assert [match[1] for match in named] == [name for name in program.stages if name != "trace"]


def test_info_names_every_kernel_that_is_built(capsys, clean_environment, tmp_path):
    need_command("g++", "clang++")
    clean_environment.setenv("GRAPHC_LOG", "info")
    clean_environment.setenv("GRAPHC_CACHE_DIR", str(tmp_path))
    for built in (1, 0):
        program = graphc.compile(lambda x: graphc.exp(x), graphc.spec((4,)), device="cpu")
        (name,) = program.kernels
        said = re.findall(rf"graphc: kernel {name}: built in [\d.]+ s", capsys.readouterr().err)
        assert len(said) == built


def test_nothing_is_said_by_default(capsys, clean_environment):
    graphc.compile(lambda x: graphc.exp(x), graphc.spec((4,)), device="reference")
    assert capsys.readouterr().err == ""


HANDLED = """
import io, logging, graphc
from graphc.base.messages import log
said = io.StringIO()
logging.getLogger("graphc").addHandler(logging.StreamHandler(said))
log("info", "first")
logging.getLogger("graphc").setLevel("DEBUG")
log("debug", "second")
logging.getLogger("graphc").setLevel("ERROR")
log("warning", "third")
print(said.getvalue().split())
"""


@pytest.mark.parametrize(("level", "said"), [("info", "['first', 'second']"), ("", "['second']")])
def test_handlers_of_the_standard_library_take_messages(level, said):
    command = [sys.executable, "-c", HANDLED]
    environment = {**os.environ, "GRAPHC_LOG": level}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{said}\n", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_shows_how_far_long_work_is_and_goes_away(terminal, monkeypatch):
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(messages, "BAR_AFTER", 0.0)
    with messages.progress("building kernels", 4) as advance:
        advance(2)
        begin = time.monotonic()
        while terminal and "2/4" not in stream.getvalue():
            assert time.monotonic() < begin + 60
    shown = f"\rgraphc: building kernels [{15 * '#'}{15 * ' '}] 2/4"
    assert (shown in stream.getvalue()) == terminal
    assert stream.getvalue().endswith("\r\033[K" if terminal else "")


def test_short_work_shows_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    with messages.progress("building kernels", 4) as advance:
        advance(4)
    assert stream.getvalue() == ""
