"""The command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from graphc.cli import main
from tests.tools import ROOT

PROGRAM = """
import graphc
from graphc import nn

def linear():
    return graphc.compile(nn.Linear(4, 3), graphc.spec((2, 4)), device="reference")

def loss(model, x):
    return graphc.mean(model(x))

step = linear()
net = nn.Linear(4, 3)
number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cli_program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("name", ["step", "linear"])
def test_show_prints_the_last_stage(file, name, capsys):
    assert main(["show", f"{file}:{name}"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("graph ")
    assert "= kernel " in output


def test_show_prints_a_stage_by_name(file, capsys):
    assert main(["show", f"{file}:step", "--stage", "trace"]) == 0
    output = capsys.readouterr().out
    assert "= matmul(" in output
    assert "= kernel " not in output


def test_show_diff_prints_what_stages_changed(file, capsys):
    assert main(["show", f"{file}:step", "--stage", "fuse_contract", "--diff"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("--- ")
    assert "\n+ %matmul = kernel bias(" in output or "= kernel " in output
    assert main(["show", f"{file}:step", "--diff"]) == 0
    assert "commute changed nothing" in capsys.readouterr().out.splitlines()
    assert main(["show", f"{file}:step", "--stage", "trace", "--diff"]) == 1
    assert re.fullmatch(
        r"graphc: stage: expected one of .*, fuse_contract, .* with --diff, got 'trace'\n",
        capsys.readouterr().err,
    )


def test_explain_and_memory_print_reasons(file, capsys):
    assert main(["explain", f"{file}:step", "cli_program.py:6"]) == 0
    assert capsys.readouterr().out.startswith("line cli_program.py:6")
    assert main(["explain", f"{file}:step", "nothing"]) == 1
    assert capsys.readouterr().err.startswith("graphc: explain: Linear has no 'nothing'")
    assert main(["memory", f"{file}:step"]) == 0
    assert capsys.readouterr().out.startswith("memory Linear: work peak 0.00 MB")


def test_profile_prints_the_table_and_writes_a_trace(file, capsys, tmp_path):
    trace = tmp_path / "trace.json"
    command = ["profile", f"{file}:step", "--repeats", "2", "--trace", str(trace)]
    assert main(command) == 0
    output = capsys.readouterr().out
    assert output.startswith("profile Linear: ")
    assert output.endswith(f"one call is in {trace}: open it at ui.perfetto.dev\n")
    assert trace.exists()
    assert main(["profile", f"{file}:step", "--by-module", "--repeats", "1"]) == 0
    assert "\nmodule " in capsys.readouterr().out
    assert main(["profile", f"{file}:step", "--repeats", "0"]) == 1
    message = "graphc: profile: expected at least 1 for --repeats, got 0\n"
    assert capsys.readouterr().err == message


def test_a_command_that_is_none_ends_with_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["shaw"])
    assert ended.value.code == 2
    assert "invalid choice: 'shaw'" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_traceback(file):
    program = "import sys; from graphc.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "show", f"{file}:step", "--stage", "trace"]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (141, "")


def test_show_says_that_the_reference_device_has_no_plan(file, capsys):
    assert main(["show", f"{file}:step", "--stage", "plan"]) == 0
    assert capsys.readouterr().out == "no plan: the reference device plays the graph\n"


def test_show_of_an_unknown_stage_lists_the_stages(file, capsys):
    assert main(["show", f"{file}:step", "--stage", "fusion"]) == 1
    error = capsys.readouterr().err
    assert re.fullmatch(
        r"graphc: stage: expected one of trace, .*, kernels, plan, got 'fusion'\n", error
    )


def test_show_of_a_missing_file_is_an_error(capsys):
    assert main(["show", "nowhere.py:step"]) == 1
    message = "graphc: show: expected FILE.py:NAME, got 'nowhere.py:step': no such file\n"
    assert capsys.readouterr().err == message


NOT_A_PROGRAM = "expected {} in cli_program.py to be a program or a function that gives one, got "


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (":number", NOT_A_PROGRAM.format("number") + "int"),
        (":net", NOT_A_PROGRAM.format("net") + "Linear: net is not compiled"),
        (":missing", "cli_program.py has no missing; it has linear, loss, step"),
        (
            ":loss",
            "expected loss in cli_program.py to be a function without arguments that gives a "
            "program, got loss(model, x)",
        ),
        ("", "expected FILE.py:NAME, got '{file}': no name"),
        (":", "expected FILE.py:NAME, got '{file}:': no name"),
    ],
)
def test_show_of_something_else_says_what_is_wrong(file, name, message, capsys):
    assert main(["show", f"{file}{name}"]) == 1
    assert capsys.readouterr().err == f"graphc: show: {message.format(file=file)}\n"


def test_show_of_a_file_of_another_kind_is_an_error(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("notes")
    assert main(["show", f"{tmp_path}/notes.txt:step"]) == 1
    message = "graphc: show: expected FILE.py:NAME, got notes.txt: not a Python file\n"
    assert capsys.readouterr().err == message


def test_doctor_prints_what_it_finds(capsys, clean_environment):
    assert main(["doctor"]) == 0
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert words[:3] == ["graphc", "numpy", "networkx"]
    assert {"machine", "cpu", "compiler", "prebuilt", "gpu", "nvcc", "cache", "settings"} <= set(
        words
    )


def test_doctor_without_a_compiler_says_what_to_do(capsys, clean_environment):
    clean_environment.setenv("PATH", "")
    clean_environment.delenv("CXX", raising=False)
    assert main(["doctor"]) == 1
    assert re.search(r"compiler   .*reference", capsys.readouterr().out)


def test_cache_prints_its_size_and_can_be_cleared(tmp_path, capsys, clean_environment):
    clean_environment.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/cache: 0 files, 0.0 MB\n"
    folder = tmp_path / "cache" / "cpu"
    folder.mkdir(parents=True)
    (folder / f"{'1' * 32}.so").write_bytes(bytes(200_000))
    (folder / f"{'2' * 32}.so").hardlink_to(folder / f"{'1' * 32}.so")
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/cache: 1 files, 0.2 MB\nremoved\n"
    assert not (tmp_path / "cache").exists()


def test_a_bad_setting_is_an_error_on_the_command_line(capsys, clean_environment):
    clean_environment.setenv("GRAPHC_LOG", "loud")
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err == (
        "graphc: GRAPHC_LOG: expected one of error, warning, info, debug, got 'loud'\n"
    )


def test_the_command_is_installed_under_its_name():
    assert 'graphc = "graphc.cli:main"' in (ROOT / "pyproject.toml").read_text()
