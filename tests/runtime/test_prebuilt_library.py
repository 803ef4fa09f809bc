"""The library of prebuilt kernels: built once, found without a compiler, never broken."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.compilers import compiler, prebuilt_library
from graphc.runtime.compilers.prebuilt_library import PrebuiltLibrary, build_library, find_library
from tests.runtime.compiling import calling, calls, own_cache

__all__ = ["own_cache"]

FIRST = 'int second(); extern "C" int first() { return 40 + second(); }'
SECOND = "int second() { return 2; }"


@pytest.fixture(autouse=True)
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a library of two files, one of which needs the other."""
    folder = tmp_path / "prebuilt"
    folder.mkdir()
    (folder / "first.cpp").write_text(FIRST)
    (folder / "second.cpp").write_text(SECOND)
    monkeypatch.setattr(prebuilt_library, "SOURCES", folder)
    forget(monkeypatch)
    return folder


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(prebuilt_library, "_loaded", {})
    monkeypatch.setattr(prebuilt_library, "_begun", {})


def answer(library: PrebuiltLibrary | None) -> int:
    assert library is not None
    address = library.address("first")
    assert address is not None
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def test_a_library_is_built_once_file_by_file(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(build_library()) == 42 == answer(find_library())
    assert calls(tmp_path) == 3
    forget(monkeypatch)
    assert answer(build_library()) == 42
    assert calls(tmp_path) == 3
    forget(monkeypatch)
    (sources / "second.cpp").write_text("int second() { return 3; }")
    assert answer(build_library()) == 43
    assert calls(tmp_path) == 5  # that file, and the library of both
    assert build_library().address("third") is None


def test_a_missing_library_is_built_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_library() is None
    (thread,) = prebuilt_library._begun.values()
    assert find_library() is None or answer(find_library()) == 42
    thread.finish()
    assert calls(tmp_path) == 3
    assert answer(find_library()) == 42


def test_a_damaged_library_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_library()
    for path in (tmp_path / "cache" / "cpu").glob("prebuilt-*.so"):
        content = path.read_bytes()
        path.unlink()  # not written to: it is loaded
        path.write_bytes(content[:-100])
        path.chmod(0o600)
    forget(monkeypatch)
    assert answer(build_library()) == 42
    assert calls(tmp_path) == 4


def test_a_library_is_found_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_library()
    forget(monkeypatch)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert answer(find_library()) == 42
    monkeypatch.setenv("GRAPHC_ISA", "sse2")
    assert find_library() is None
    with pytest.raises(CompileError, match=r"^no C\+\+ compiler: "):
        build_library()


def test_a_file_that_does_not_compile_is_an_error(sources: Path) -> None:
    (sources / "second.cpp").write_text("int second() { return; }")
    with pytest.raises(
        CompileError, match=r"^the library of prebuilt kernels does not compile: .*error: "
    ):
        build_library()
    assert find_library() is None


def test_what_was_built_before_an_end_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = 'case "$*" in --version | *first.cpp*) exec g++ "$@";; esac'
    calling(tmp_path, monkeypatch, f"{works}\necho > {tmp_path}/hangs; exec sleep 300")
    assert find_library() is None
    while not (tmp_path / "hangs").exists() or not [*(tmp_path / "cache/cpu").glob("first-*.o")]:
        pass
    (thread,) = prebuilt_library._begun.values()
    thread.end()
    forget(monkeypatch)
    before = calls(tmp_path)
    calling(tmp_path, monkeypatch, 'exec g++ "$@"')
    assert answer(build_library()) == 42
    assert calls(tmp_path) == before + 2
    assert compiler.find_compiler().command == (os.environ["CXX"],)
