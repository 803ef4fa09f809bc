"""Compilers, the target, and the content cache of single sources."""

from __future__ import annotations

import functools
import os
import subprocess

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.compilers import player_library, shared_objects
from graphc.runtime.compilers.shared_objects import CppSource, cpu_target
from tests.runtime.compiling import calls, objects, own_cache

__all__ = ["own_cache"]

ONE = CppSource("one", 'extern "C" int one() { return 1; }', "a test")


def test_another_source_header_or_flag_is_another_object(tmp_path):
    variants = [
        (ONE, "headers"),
        (ONE, "other headers"),
        (CppSource("one", ONE.text + "\n", "a test"), "headers"),
        (CppSource("one", ONE.text, "a test", flags=("-DOTHER",)), "headers"),
    ]
    for number, (source, headers) in enumerate(variants, 1):
        (library,) = shared_objects.build([source], headers)
        assert library.one() == 1
        assert len(objects(tmp_path)) == number


def test_a_source_is_built_once_and_stays_beside_its_object(tmp_path):
    commented = CppSource("one", f"// another line\n{ONE.text}", "a test")
    for source in (ONE, ONE, commented):
        shared_objects.build([source], "headers")
    assert calls(tmp_path) == 1
    (path,) = objects(tmp_path)
    assert path.with_suffix(".cpp").read_text() == ONE.text


def test_the_digest_of_headers_knows_names_and_contents(tmp_path):
    seen = set()
    for name, text in (("a.h", "1"), ("a.h", "2"), ("b.h", "2"), ("in/b.h", "2"), ("b.cpp", "3")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        seen.add(shared_objects.headers_digest(tmp_path))
    assert len(seen) == 4


def test_a_corrupt_object_of_a_source_is_built_again(tmp_path):
    source = CppSource("one", 'extern "C" int one() { return 1; }', "a test")
    first = shared_objects.build_object(source, "headers", "cpu")
    (path,) = objects(tmp_path)
    path.write_bytes(first[: len(first) // 2])
    assert shared_objects.build_object(source, "headers", "cpu") == first
    assert calls(tmp_path) == 2


def test_the_player_is_built_ahead_and_its_errors_come_to_who_asks_for_it(monkeypatch):
    monkeypatch.setattr(
        player_library, "_player", functools.cache(player_library._player.__wrapped__)
    )
    player_library.begin_player.cache_clear()
    with monkeypatch.context() as context:
        context.setenv("CXX", "no-such-compiler")
        player_library.begin_player().join()
        with pytest.raises(CompileError, match="'no-such-compiler'"):
            player_library.player_library()
    assert player_library.player_library() is player_library.player_library()


def test_without_a_compiler_the_error_names_the_remedy(monkeypatch):
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError) as caught:
        shared_objects.build([ONE], "headers")
    assert str(caught.value) == (
        "no C++ compiler: g++ and clang++ are not on the PATH. Install one (Debian and Ubuntu: "
        "apt install g++; macOS: xcode-select --install) or let CXX name it; "
        'device="reference" runs without a compiler'
    )


def test_a_cxx_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(CompileError) as caught:
        shared_objects.build([ONE], "headers")
    assert str(caught.value) == (
        "no C++ compiler: CXX names 'no-such-compiler -O1', which is not on the PATH. Install one "
        "(Debian and Ubuntu: apt install g++; macOS: xcode-select --install) or let CXX name it; "
        'device="reference" runs without a compiler'
    )


def test_a_cxx_may_carry_flags(monkeypatch):
    monkeypatch.setenv("CXX", os.environ["CXX"] + " -DANSWER=43")
    flagged = CppSource("one", 'extern "C" int one() { return ANSWER; }', "a test")
    (library,) = shared_objects.build([flagged], "headers")
    assert library.one() == 43


def test_the_target_is_known_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "no-such-compiler")
    shared_objects._cpu_target.cache_clear()
    assert cpu_target().device == "cpu" and cpu_target().arch


def test_the_targets_lanes_are_those_that_the_compiler_has():
    macros = subprocess.run(
        [
            *shared_objects.find_compiler().command,
            "-march=native",
            "-dM",
            "-E",
            "-x",
            "c++",
            os.devnull,
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lanes = 16 if "__AVX512F__" in macros else 8 if "__AVX2__" in macros else 4
    assert cpu_target().lanes == lanes
