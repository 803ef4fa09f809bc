"""A process under a fault: `python -m tools.soak.victim JSON`.

It compiles a network, trains it for some steps and prints "right DIGEST", or "refused TYPE MESSAGE"
where graphc raises one of its own exceptions or Python's MemoryError. With "wait" it goes on until
all kernels are compiled, trains again and prints "ready DIGEST"; with "save" it writes checkpoints
to that folder, and goes on training where that is refused. The faults, which begin after all
modules are imported:

- "limit": name and value of a limit, as RLIMIT_NOFILE; "memory": so many more MiB of addresses than
  there are;
- "threads": whether the system refuses threads;
- "user": the number of the user to become; "home": whether HOME is kept.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import struct
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

import graphc
from tools.soak.nets import batch, trainer, trajectory

STEPS = 4
MODULES = (
    "runtime.cpu.executable",
    "runtime.planner.planner",
    "runtime.plan_store",
    "runtime.compilers.translation_units",
    "runtime.tuning.stream_autotuner",
    "kernels.cpu.lower",
    "program.checkpoint",
)
"""What a compile imports."""
OURS = (graphc.GraphError, graphc.CompileError, graphc.PlanError, graphc.RunError)


def main() -> None:
    """Begin the faults, then train."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    trajectory(trainer(device="reference"), 1)
    for name in MODULES:
        import_module(f"graphc.{name}")
    sysconfig.get_config_vars()
    if not given.get("home", True):
        os.environ.pop("HOME", None)
    if "user" in given:
        os.setgroups([])
        os.setgid(given["user"])
        os.setuid(given["user"])
    if "limit" in given:
        name, value = given["limit"]
        resource.setrlimit(getattr(resource, name), (value, value))
    if "memory" in given:
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + (given["memory"] << 20)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if given.get("threads"):
        refuse_threads()
    try:
        program = trainer()
        first = program.state_dict()
        print("right", trajectory(program, STEPS)[-1], flush=True)
        if given.get("wait"):
            program.wait()
            program.load_state_dict(first)
            print("ready", trajectory(program, STEPS)[-1], flush=True)
        if "save" in given:
            save(program, Path(given["save"]))
    except OURS as error:
        print("refused", type(error).__name__, " ".join(str(error).split()), flush=True)
    except MemoryError:
        print("refused MemoryError", flush=True)


def save(program: Any, folder: Path) -> None:
    """Write checkpoints of many steps and the program until both are refused; the last checkpoint
    that was written is whole, and training goes on."""
    written, refused = -1, 0
    for step in range(1000):
        try:
            graphc.save_checkpoint(folder, step, program, keep=None)
            written = step
        except graphc.GraphError as error:
            refused += 1
            assert "No space left on device" in str(error), error
            if refused == 3:
                break
        program(*batch(step))
    found = graphc.load_checkpoint(folder, program)
    assert found is not None and found.step == written and not found.skipped, found
    left = [path.name for path in folder.iterdir() if "partial" in path.name]
    assert refused == 3 and not left, (refused, left)
    try:
        program.save(folder / "program")
    except graphc.GraphError as error:
        assert "No space left on device" in str(error), error
    print("saved", written, flush=True)


def refuse_threads() -> None:
    """Let the system refuse new threads, but not processes, from now on (Linux, seccomp)."""
    machine = platform.machine()
    clone, clone3 = (56, 435) if machine == "x86_64" else (220, 435)
    load, jump_equal, jump_bits, give = 0x20, 0x15, 0x45, 0x06
    allow, fail, thread = 0x7FFF0000, 0x00050000, 0x10000
    again, no_call = 11, 38
    program = [
        (load, 0, 0, 0),  # the number of the call
        (jump_equal, 0, 1, clone3),
        (give, 0, 0, fail | no_call),  # the library then calls clone, whose flags can be seen
        (jump_equal, 0, 3, clone),
        (load, 0, 0, 16),  # the first argument, the flags
        (jump_bits, 0, 1, thread),
        (give, 0, 0, fail | again),
        (give, 0, 0, allow),
    ]
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    memory = ctypes.create_string_buffer(code)
    header = struct.pack("@HxxxxxxQ", len(program), ctypes.addressof(memory))
    library = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, filter_mode = 38, 22, 2
    word = ctypes.c_ulong
    failed = library.prctl(no_new_privileges, word(1), word(0), word(0), word(0))
    failed |= library.prctl(seccomp, word(filter_mode), ctypes.create_string_buffer(header))
    if failed:
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    main()
