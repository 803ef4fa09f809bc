"""Find the C++ compiler, run several at once, and terminate them.

A compiler's command starts others: g++ starts cc1plus, as and ld, ccache starts g++. So each
command is a process group, and is terminated as a whole: when it exceeds GRAPHC_COMPILE_SECONDS,
when its result is no longer needed, as after Ctrl-C, and when this process ends in whatever way.
For the latter, each group has a watchdog that reads from a pipe, whose other end the operating
system closes when we are killed. Each process of the group may also use no more CPU time than the
command has seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from graphc.base.config import compile_seconds
from graphc.base.cores import usable_cores
from graphc.base.errors import CompileError
from graphc.base.messages import log

S = TypeVar("S")
T = TypeVar("T")


LEAST_PRIORITY = "19"
"""The nice value of processes that everything else goes before."""

WATCHED = """ulimit -t "$1"; shift
exec 3<&0 < /dev/null
(read -r _ <&3; kill -KILL 0) > /dev/null 2>&1 &
exec "$@" 3<&-"""
"""A shell script that runs the arguments after the first, which limits the CPU seconds of each
process, until standard input ends."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler."""

    command: tuple[str, ...]
    """The words of its command."""
    version: str
    """The first line of `--version`; of the compiler itself where the command begins with a tool
    such as ccache."""

    @property
    def is_clang(self) -> bool:
        """Whether it is clang."""
        return "clang" in self.version


class Jobs:
    """The compilers that currently run for one purpose, with the jobs of parts of that purpose.

    With `in_background` they take only the time that no other process wants.
    """

    def __init__(self, in_background: bool = False) -> None:
        self.in_background = in_background
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str] | Jobs] = set()
        self.ended = False

    @contextlib.contextmanager
    def including(self, job: subprocess.Popen[str] | Jobs) -> Iterator[None]:
        """Within the block, `job` is terminated with these."""
        with self._lock:
            self._running.add(job)
            if self.ended:
                _end(job)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(job)

    def end(self) -> None:
        """Terminate running jobs, and any that start from now on."""
        with self._lock:
            self.ended = True
            for job in self._running:
                _end(job)


class _Here(threading.local):
    """The jobs that this thread's compilers belong to."""

    def __init__(self) -> None:
        self.jobs = Jobs()


_here = _Here()


class _Alive:
    """The background threads of this process, and the ends of pipes that keep its compilers
    running."""

    def __init__(self) -> None:
        self.threads: set[BackgroundThread] = set()
        self.watches: set[int] = set()

    def leave_to_parent(self) -> None:
        """In the child of a fork: have nothing to do with the parent's compilers."""
        for thread in tuple(self.threads):
            atexit.unregister(thread.end)
        for watch in tuple(self.watches):
            os.close(watch)
        self.threads.clear()
        self.watches.clear()


_alive = _Alive()
os.register_at_fork(after_in_child=_alive.leave_to_parent)


class BackgroundThread(threading.Thread):
    """Calls a function in the background. Its compilers are terminated when waiting for it is
    interrupted, and when the interpreter ends. Where the system refuses threads, `start` calls the
    function itself."""

    def __init__(self, function: Callable[[], object], name: str, jobs: Jobs | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self._function, self._jobs = function, jobs or Jobs()
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to call the function."""
        if not self.try_start():
            before = _here.jobs
            try:
                self.run()
            finally:
                _here.jobs = before

    def try_start(self) -> bool:
        """Begin to call the function, unless the system refuses a thread; returns whether it has
        not."""
        try:
            super().start()
        except RuntimeError as refused:
            log("info", f"{self.name}: the system refuses a thread: {refused}")
            return False
        return True

    def run(self) -> None:
        """Call the function; the thread does this."""
        _here.jobs = self._jobs
        atexit.register(self.end)
        _alive.threads.add(self)
        try:
            self._function()
        finally:
            _alive.threads.discard(self)
            atexit.unregister(self.end)
            self._over.set()

    def finish(self) -> None:
        """Wait until the function has returned."""
        # Not `join`: interrupted, that takes the thread for ended (Python 3.11).
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Terminate its compilers, and wait until it has cleaned up."""
        self._jobs.end()
        self._wait()

    def _wait(self) -> None:
        while self.is_alive() and not self._over.wait(
            0.2
        ):  # the child of a fork has no such thread
            pass


def side_by_side(function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """The function's result for each item, computed by as many threads as there are cores. If one
    fails, or on Ctrl-C, all compilers are terminated at once."""
    todo, jobs = deque(enumerate(items)), Jobs(_here.jobs.in_background)
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not failures and (next_one := _pop(todo)):
                number, item = next_one
                results[number] = function(item)
        except BaseException as error:
            failures.append(error)
            jobs.end()

    # Threads of our own: those of a pool keep the interpreter from ending until they have ended.
    count = min(usable_cores(), len(todo))
    threads = [BackgroundThread(work, "graphc-build", jobs) for _ in range(count)]
    with _here.jobs.including(jobs):
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.finish()
        except BaseException:
            for thread in threads:
                thread.end()
            raise
    if failures:
        raise failures[0]
    return [results[number] for number in sorted(results)]


def run(command: list[str], scratch: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The completed command, with messages in English. Its temporary files lie in `scratch`, which
    is removed even if it is killed. Raises CompileError if it exceeds its time."""
    seconds, jobs = compile_seconds(), _here.jobs
    begin = ["/bin/sh", "-c", WATCHED, "sh", str(math.ceil(seconds))]
    if jobs.in_background and (nice := shutil.which("nice")):
        begin = [nice, "-n", LEAST_PRIORITY, *begin]
    with _watch() as watched:
        try:
            process = subprocess.Popen(
                [*begin, *command],
                stdin=watched,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C", **({"TMPDIR": str(scratch)} if scratch else {})},
                process_group=0,
            )
        except OSError as error:
            raise _not_started(error, command) from None
        with process:
            try:
                with jobs.including(process):
                    output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise CompileError(
                    f"the compiler did not end within {seconds:g} s and was stopped; "
                    "GRAPHC_COMPILE_SECONDS sets how long it may take"
                    f"\ncommand: {shlex.join(command)}"
                ) from None
            finally:
                if process.returncode is None:
                    _end(process)
    if jobs.ended:
        raise CompileError(f"given up\ncommand: {shlex.join(command)}")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def find_compiler() -> Compiler:
    """The compiler that CXX names, else g++, else clang++. Raises CompileError with the remedy."""
    chosen = os.environ.get("CXX", "").strip()
    for words in [shlex.split(chosen)] if chosen else [["g++"], ["clang++"]]:
        path = shutil.which(words[0])
        if path:
            command = (path, *words[1:])
            return Compiler(command, _version(command))
    missing = f"CXX names {chosen!r}, which is" if chosen else "g++ and clang++ are"
    raise CompileError(
        f"no C++ compiler: {missing} not on the PATH. Install one (Debian and Ubuntu: "
        "apt install g++; macOS: xcode-select --install) or let CXX name it; "
        'device="reference" runs without a compiler'
    )


def failure(
    what: str, where: str, command: list[str], done: subprocess.CompletedProcess[str]
) -> CompileError:
    """The error for a compiler's command that failed."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror: ", line)]
    first = (errors or lines or [f"the compiler ended with status {done.returncode}"])[0]
    whose = f"{what} ({where})" if where else what
    return CompileError(f"{whose} does not compile: {first}\ncommand: {shlex.join(command)}")


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    done = run([*command, "--version"])
    return done.stdout.splitlines()[0] if done.stdout else command[0]


@contextlib.contextmanager
def _watch() -> Iterator[int]:
    """The reading end of a pipe whose other end stays open within the block, in this process
    alone."""
    try:
        watched, watch = os.pipe()
    except OSError as error:
        raise _not_started(error, ()) from None
    _alive.watches.add(watch)
    try:
        yield watched
    finally:
        _alive.watches.discard(watch)
        os.close(watched)
        os.close(watch)


def _not_started(error: OSError, command: Sequence[str]) -> CompileError:
    said = f"\ncommand: {shlex.join(command)}" if command else ""
    return CompileError(f"the compiler cannot be started: {error.strerror}{said}")


def _pop(items: deque[T]) -> T | None:
    """The first item, of a queue shared with other threads; None if it is empty."""
    try:
        return items.popleft()
    except IndexError:
        return None


def _end(job: subprocess.Popen[str] | Jobs) -> None:
    """Terminate jobs, or a command with all processes that it started."""
    if isinstance(job, Jobs):
        job.end()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
