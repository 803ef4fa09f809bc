"""What is said on standard error."""

from __future__ import annotations

import re

import pytest

import graphc
from graphc.messages import log
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
