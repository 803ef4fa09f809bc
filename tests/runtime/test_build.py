"""Compilers and the content cache: what is built again, what is not, and every error."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from graphc.errors import CompileError
from graphc.ir import Where
from graphc.kernels.kernel import Kernel
from graphc.runtime import build
from graphc.runtime.build import FLAGS, KERNEL_HEADERS, Source, build_kernels, cpu_target
from tests.runtime.handmade import kernel
from tests.tools import ROOT, need_command

ANSWER = kernel("answer", "*(int*)arguments[0] = 42;")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, clean_environment):
    """An empty cache folder, and a compiler that writes a line per call into `calls`."""
    clean_environment.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "cache"))
    need_command("g++", "clang++")
    calling(tmp_path, clean_environment, f'exec {shutil.which("g++") or "clang++"} "$@"')


def calling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> Path:
    """Let CXX be a script that notes its call and then does `command`."""
    script = tmp_path / f"compiler{hashlib.sha256(command.encode()).hexdigest()[:8]}"
    note = f'[ "$1" = --version ] || echo "$@" >> {tmp_path}/calls'
    script.write_text(f"#!/bin/sh\n{note}\n{command}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(script))
    return script


def calls(tmp_path: Path) -> int:
    path = tmp_path / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def answer_of(kernels: dict[str, Kernel]) -> int:
    """What the kernel `answer` writes."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    result = ctypes.c_int(0)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    function(build_kernels(kernels)["answer"])(arguments, 0, 0)
    return result.value


def objects(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "cpu").glob("*.so"))


def test_a_kernel_is_built_once(tmp_path):
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 1
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 1
    assert sorted(p.suffix for p in (tmp_path / "cache" / "cpu").iterdir()) == [".cpp", ".so"]


def test_kernels_are_found_by_name_and_see_the_headers():
    included = kernel("included", "", top="#ifndef __OPTIMIZE__\n#error flags are missing\n#endif")
    functions = build_kernels({"answer": ANSWER, "included": included})
    assert set(functions) == {"answer", "included"}
    assert build_kernels({}) == {}
    assert (KERNEL_HEADERS / "cpu").is_dir()


def test_another_line_of_the_model_is_no_other_object(tmp_path):
    first = replace(ANSWER, source=f"// answer: add  model.py:3\n{ANSWER.source}")
    second = replace(ANSWER, source=f"// answer: add  model.py:4\n{ANSWER.source}")
    assert answer_of({"answer": first}) == answer_of({"answer": second}) == 42
    assert calls(tmp_path) == 1


def test_another_source_header_or_flag_is_another_object(tmp_path):
    one = Source("one", 'extern "C" int one() { return 1; }', "a test")
    variants = [
        (one, "headers"),
        (one, "other headers"),
        (Source("one", one.text + "\n", "a test"), "headers"),
        (Source("one", one.text, "a test", flags=("-DOTHER",)), "headers"),
    ]
    for number, (source, headers) in enumerate(variants, 1):
        (library,) = build.build([source], headers)
        assert library.one() == 1
        assert len(objects(tmp_path)) == number


def test_the_digest_of_headers_knows_names_and_contents(tmp_path):
    seen = set()
    for name, text in (("a.h", "1"), ("a.h", "2"), ("b.h", "2"), ("b.cpp", "3")):
        (tmp_path / name).write_text(text)
        seen.add(build.headers_digest(tmp_path))
    assert len(seen) == 3


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "not an object"])
def test_a_corrupt_object_is_built_again(tmp_path, monkeypatch, damage):
    build_kernels({"answer": ANSWER})
    (good,) = objects(tmp_path)
    content = good.read_bytes()
    junk = b"junk"
    damaged = {
        "cut": content[: len(content) // 2],
        "changed": content[:5000] + bytes([content[5000] ^ 1]) + content[5001:],
        "empty": b"",
        "not an object": junk + hashlib.sha256(junk).digest(),
    }[damage]
    # In another cache: the good one is loaded by now.
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "corrupt"))
    path = tmp_path / "corrupt" / "cpu" / good.name
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged)
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 2
    assert build._intact(path)


def test_two_processes_may_build_the_same_kernel(tmp_path):
    program = (
        "from tests.runtime.handmade import kernel\n"
        "from graphc.runtime.build import build_kernels\n"
        "made = [kernel(f'k{i}', '*(int*)arguments[0] = 42;') for i in range(3)]\n"
        "assert len(build_kernels({k.name: k for k in made})) == 3\n"
    )
    command = [sys.executable, "-c", program]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [p.wait(timeout=120) for p in running] == [0, 0, 0]
    found = objects(tmp_path)
    assert len(found) == 3 and all(build._intact(path) for path in found)
    assert not [p for p in (tmp_path / "cache" / "cpu").iterdir() if p.is_dir()]


def test_a_compile_error_names_kernel_line_file_command_and_error(tmp_path):
    bad = Kernel("bad", "pointwise", 'extern "C" void bad() { return missing; }')
    with pytest.raises(CompileError) as caught:
        build_kernels({"bad": bad}, {"bad": Where("conv1", ("lenet.py:14",))})
    (file,) = (tmp_path / "cache" / "cpu").glob("bad-*.cpp")
    first, command = str(caught.value).split("\n")
    compiler = os.environ["CXX"]
    flags = [*FLAGS, f"-DGRAPHC_LANES={cpu_target().lanes}", f"-I{KERNEL_HEADERS}"]
    assert command == "command: " + shlex.join([compiler, *flags, str(file), "-o", "/dev/null"])
    start = f"kernel bad (conv1 lenet.py:14) does not compile: {file}:1:"
    assert first.startswith(start) and "missing" in first and "error: " in first
    assert file.read_text() == bad.source
    again = build._run(shlex.split(command)[1:])
    assert again.returncode == 1 and first.split(" does not compile: ")[1] in again.stderr


def test_a_compiler_that_fails_silently(tmp_path, monkeypatch):
    script = calling(tmp_path, monkeypatch, '[ "$1" = --version ] && echo mute 1.0 || exit 3')
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    (file,) = (tmp_path / "cache" / "cpu").glob("answer-*.cpp")
    flags = [*FLAGS, f"-DGRAPHC_LANES={cpu_target().lanes}", f"-I{KERNEL_HEADERS}"]
    command = [str(script), *flags, str(file), "-o", "/dev/null"]
    assert str(caught.value) == (
        "kernel answer does not compile: the compiler ended with status 3\n"
        f"command: {shlex.join(command)}"
    )


def test_without_a_compiler_the_error_names_the_remedy(monkeypatch):
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        "no C++ compiler: g++ and clang++ are not on the PATH. Install one (Debian and Ubuntu: "
        "apt install g++; macOS: xcode-select --install) or let CXX name it; "
        'device="reference" runs without a compiler'
    )


def test_a_cxx_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        "no C++ compiler: CXX names 'no-such-compiler -O1', which is not on the PATH. Install one "
        "(Debian and Ubuntu: apt install g++; macOS: xcode-select --install) or let CXX name it; "
        'device="reference" runs without a compiler'
    )


def test_a_cxx_may_carry_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", os.environ["CXX"] + " -DANSWER=43")
    flagged = kernel("answer", "*(int*)arguments[0] = ANSWER;")
    assert answer_of({"answer": flagged}) == 43


def test_a_cache_that_cannot_be_made_is_an_error(tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(blocked))
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        f"cannot write the cache of compiled kernels in {blocked / 'cpu'}: Not a directory; "
        "make room there, or let GRAPHC_CACHE_DIR name another folder"
    )


def test_a_full_disk_is_an_error_and_leaves_no_object(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        f"cannot write the cache of compiled kernels in {tmp_path / 'cache' / 'cpu'}: No space "
        "left on device; make room there, or let GRAPHC_CACHE_DIR name another folder"
    )
    assert objects(tmp_path) == []


def test_the_target_is_known_without_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "no-such-compiler")
    cpu_target.cache_clear()
    assert cpu_target().device == "cpu" and cpu_target().arch


def test_the_targets_lanes_are_those_that_the_compiler_has():
    macros = subprocess.run(
        [*build.find_compiler().command, "-march=native", "-dM", "-E", "-x", "c++", os.devnull],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lanes = 16 if "__AVX512F__" in macros else 8 if "__AVX2__" in macros else 4
    assert cpu_target().lanes == lanes


def test_kernels_may_be_built_for_fewer_lanes():
    lanes = kernel("answer", "*(int*)arguments[0] = GRAPHC_LANES;")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    result = ctypes.c_int(0)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    for wanted in (4, 8):
        function(build_kernels({"answer": lanes}, lanes=wanted)["answer"])(arguments, 0, 0)
        assert result.value == wanted
