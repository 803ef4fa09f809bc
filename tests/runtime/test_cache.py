"""The cache: whose it is, what is loaded from it, how large it grows, what `clear` removes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from graphc.base.errors import CompileError
from graphc.cli import main
from graphc.runtime.compilers import cache, compiler, shared_objects
from graphc.runtime.compilers.shared_objects import CppSource
from graphc.runtime.compilers.translation_units import build_kernels
from tests.runtime.compiling import calls, objects, own_cache
from tests.runtime.handmade import kernel
from tests.support.translation_units import ANSWER, answer_of, many, results

__all__ = ["own_cache"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "cpu"


def test_folders_and_files_are_their_users_alone_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        build_kernels({"answer": ANSWER})
        shared_objects.build(
            [CppSource("one", 'extern "C" int one() { return 1; }', "a test")], "headers"
        )
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in (folder.parent, folder)} == {0o700}
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}
    build_kernels({"answer": ANSWER})


OTHERS = (
    "the cache of compiled kernels is not used: others may write {} (mode {}), and what lies there "
    "is run; chmod go-w it if you trust what is there, else remove it, or let GRAPHC_CACHE_DIR "
    "name another folder"
)


@pytest.mark.parametrize(("which", "mode"), [("", 0o777), ("cpu", 0o770), ("object", 0o666)])
def test_what_others_may_write_is_refused(folder: Path, which: str, mode: int) -> None:
    build_kernels({"answer": ANSWER})
    path = {"": folder.parent, "cpu": folder}.get(which) or next(folder.glob("*.so"))
    path.chmod(mode)
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == OTHERS.format(path, f"{mode:o}")
    path.chmod(0o700)
    assert answer_of({"answer": ANSWER}) == 42


@pytest.mark.parametrize("which", ["", "cpu", "object"])
def test_what_belongs_to_another_user_is_refused(
    folder: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_kernels({"answer": ANSWER})
    path = {"": folder.parent, "cpu": folder}.get(which) or next(folder.glob("*.so"))
    me = os.geteuid()
    if me == 0:
        os.chown(path, 1234, -1)
        other, own = 1234, me
    else:  # a user like any other cannot give files away: everything is another's
        monkeypatch.setattr(os, "geteuid", lambda: 1234)
        path, other, own = folder.parent, me, 1234
    with pytest.raises(CompileError) as caught:
        build_kernels({"answer": ANSWER})
    assert str(caught.value) == (
        f"the cache of compiled kernels is not used: {path} belongs to user {other}, not to {own}, "
        "and what lies there is run; remove it, or let GRAPHC_CACHE_DIR name a folder of your own"
    )


@pytest.mark.parametrize("what", ["pipe", "link", "folder of scratch"])
def test_what_is_no_file_is_replaced(folder: Path, what: str, tmp_path: Path) -> None:
    build_kernels({"answer": ANSWER})
    (path,) = objects(tmp_path)
    path.unlink()
    if what == "pipe":
        os.mkfifo(path, 0o600)
    elif what == "link":
        path.symlink_to("/dev/zero")
    else:
        (folder / "building-old").mkdir()
    assert answer_of({"answer": ANSWER}) == 42
    assert path.is_file() and not path.is_symlink()


def test_a_pipe_in_the_place_of_a_source_or_a_log_does_not_hang(folder: Path) -> None:
    bad = kernel("bad", "missing();")
    for _ in range(2):
        with pytest.raises(CompileError, match=r"^kernel bad does not compile: "):
            build_kernels({"bad": bad})
        (file,) = folder.glob("bad-*.cpp")
        file.unlink()
        os.mkfifo(file, 0o600)
    assert cache.read(file) is None


def test_an_object_of_another_kernel_is_built_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_kernels({"answer": ANSWER})
    (answer,) = objects(tmp_path)
    monkeypatch.setenv("GRAPHC_CACHE_DIR", str(tmp_path / "other"))
    build_kernels({"k7": many(8)["k7"]})
    (other,) = (tmp_path / "other" / "cpu").iterdir()
    (tmp_path / "other" / "cpu" / answer.name).write_bytes(other.read_bytes())
    (tmp_path / "other" / "cpu" / answer.name).chmod(0o600)
    assert results({"answer": ANSWER, "k7": many(8)["k7"]}) == {"answer": 42, "k7": 7}
    assert answer_of({"answer": ANSWER}) == 42
    assert calls(tmp_path) == 3


def test_an_object_of_another_source_is_built_again(folder: Path, tmp_path: Path) -> None:
    def source(number: int) -> CppSource:
        text = f'extern "C" int one{number}() {{ return {number}; }}'
        return CppSource(f"one{number}", text, "a test")

    first = shared_objects.build_object(source(1), "headers", "cpu")
    second = shared_objects.build_object(source(2), "headers", "cpu")
    (path,) = folder.glob("one1-*.so")
    path.write_bytes(second)
    assert shared_objects.build_object(source(1), "headers", "cpu") == first
    assert calls(tmp_path) == 3


def fill(folder: Path, count: int, nbytes: int) -> list[Path]:
    """Objects of so many bytes, the first used the longest ago."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.parent.chmod(0o700)
    paths = [folder / f"{number:032x}.so" for number in range(count)]
    for age, path in enumerate(reversed(paths), 1):
        path.write_bytes(bytes(nbytes))
        path.chmod(0o600)
        os.utime(path, (time.time() - 7200 * age,) * 2)
    return paths


def test_what_was_used_the_longest_ago_leaves_a_cache_that_is_too_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_LIMIT", "1M")
    paths = fill(folder, 10, 150_000)
    other = folder / "notes.txt"
    other.write_bytes(bytes(2_000_000))
    assert cache.read(paths[0]) is not None  # used now
    assert answer_of({"answer": ANSWER}) == 42
    left = [path for path in paths if path.exists()]
    assert left == [paths[0], *paths[-len(left) + 1 :]] and 4 <= len(left) <= 5
    assert other.exists() and answer_of({"answer": ANSWER}) == 42
    assert sum(entry.nbytes for entry in cache.entries()) <= 0.8 * (1 << 20)


def test_a_limit_smaller_than_one_kernel_still_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_CACHE_LIMIT", "1")
    for _ in range(2):
        assert results(many(5)) == {f"k{i}": i for i in range(5)}
        assert objects(tmp_path) == []


def test_folders_of_killed_builds_are_swept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHC_COMPILE_SECONDS", "100")
    fill(folder, 0, 0)
    dead, running, foreign = (folder / name for name in ("building-a", "building-b", "tmpc"))
    for path in (dead, running, foreign):
        path.mkdir()
        (path / "unit.cpp").write_text("")
    for path, age in ((dead, 201), (running, 150), (foreign, 9999)):
        os.utime(path, (time.time() - age,) * 2)
    build_kernels({"answer": ANSWER})
    assert not dead.exists() and running.exists() and foreign.exists()


def test_clear_removes_what_graphc_made_and_nothing_else(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = folder.parent
    build_kernels({"answer": ANSWER})
    (folder / "building-x").mkdir()
    (folder / "thesis.cpp").write_text("mine")
    (home / "sim").mkdir()
    (home / "sim" / f"{'0' * 32}.so").write_text("")
    (home / ".profile").write_text("mine")
    (home / "photos").mkdir()
    (home / "photos" / f"{'0' * 32}.so").write_text("mine")
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "removed; graphc did not make .profile, cpu, photos"
    ]
    left = {str(p.relative_to(home)) for p in home.rglob("*") if p.is_file()}
    assert left == {".profile", "cpu/thesis.cpp", f"photos/{'0' * 32}.so"}
    assert not (home / "sim").exists() and not (folder / "building-x").exists()


def test_a_file_that_another_process_removes_is_not_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = fill(folder, 3, 10)
    assert sum(entry.files for entry in cache.entries()) == 3
    listed = cache._listed(folder)
    monkeypatch.setattr(cache, "_listed", lambda where: listed if where == folder else [])
    paths[1].unlink()
    assert sum(entry.files for entry in cache.entries()) == 2
    cache._remove(cache.entries())
    assert list(folder.iterdir()) == []


def test_whole_contents_are_told_from_others() -> None:
    content = cache.sealed(b"body", ["a", "b"])
    assert cache.unsealed(content) == (b"body", frozenset({"a", "b"}))
    for broken in (None, b"", content[:-1], content[1:], b"x" + content[1:]):
        assert cache.unsealed(broken) == (b"", frozenset())


def test_the_words_of_cxx_are_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = os.environ["CXX"]
    flagged = CppSource("one", 'extern "C" int one() { return ANSWER; }', "a test")
    for number in (41, 42, 41):
        monkeypatch.setenv("CXX", f"{compiler} -DANSWER={number}")
        (library,) = shared_objects.build([flagged], "headers")
        assert library.one() == number
    assert len(objects(tmp_path)) == 2


def test_a_compiler_behind_a_tool_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "ccache"
    tool.write_text('#!/bin/sh\n[ "$1" = --version ] && echo ccache 4.8 && exit\nexec "$@"\n')
    tool.chmod(0o700)
    versions = set()
    for number in (1, 2):
        behind = tmp_path / f"g++-{number}"
        behind.write_text(f"#!/bin/sh\necho g++ {number}.0\n")
        behind.chmod(0o700)
        monkeypatch.setenv("CXX", f"{tool} {behind}")
        versions.add(compiler.find_compiler().version)
    assert versions == {"g++ 1.0", "g++ 2.0"}
