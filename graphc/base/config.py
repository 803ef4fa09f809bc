"""All settings from the environment, checked in one place.

The variables are read at use, never at import. An argument of the same meaning beats its
variable; an empty variable counts as unset. Anything else is a GraphError that names the variable
(or the argument), what was expected and what was got.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from graphc.base.cores import usable_cores
from graphc.base.errors import CompileError, GraphError

CHECKS = ("nan", "race", "bounds", "meaning")
DENORMALS = ("flush", "keep")
INSTRUCTION_SETS = {"sse2": 4, "avx2": 8, "avx512": 16}
"""Instruction sets that CPU kernels may be built for, with the float32 in a vector register."""
LOG_LEVELS = ("error", "warning", "info", "debug")
LIBRARIES = "libraries"
"""What `tune` is for measurements that try libraries too."""
SIMULATED = ("h100", "t4", "a100", "rtx4090", "b200")
"""The GPUs that the simulated one may stand for, the default first."""
MAX_STREAMS = 8
"""Queues of kernels that a plan may have."""

T = TypeVar("T")


@dataclass(frozen=True)
class Config:
    """The settings of one compile or call. The defaults are those of an empty environment."""

    streams: int | str = "auto"
    """1 to 8, or "auto"."""
    threads: int = 1
    """Workers of the CPU device, the calling thread included; default: the cores that this
    process may use."""
    device: str | None = None
    """"cpu", "cuda", "cuda:N", "sim" or "reference"; None: a GPU if there is one, else the CPU."""
    dump: Path | None = None
    """A folder that every compile writes its stages, kernels and plan to."""
    cache_dir: Path = Path()
    """Where compiled kernels and measurements are kept."""
    plan_cache: bool = True
    """Whether programs are found in the cache that were planned before."""
    cache_limit: int = 4 << 30
    """Bytes beyond which what was used the longest ago leaves the cache."""
    compile_seconds: float = 600.0
    """How long one command of a compiler may take."""
    tier: str = ""
    """How CPU kernels begin: "0", as prebuilt functions, which they stay; "1", compiled before the
    first call; "", as prebuilt functions until they are compiled."""
    tune: bool = False
    """Whether to choose among candidate kernels by measurement."""
    libraries: bool = False
    """Whether calls of libraries are among them."""
    memory_limit: int | None = None
    """The most bytes that a plan's work memory may take; None: no limit."""
    memory_search: bool = False
    """Whether to look for a tighter packing for some seconds."""
    memory_lean: bool = False
    """Whether kernels run again, within a share of the time, so that less is held."""
    check: frozenset[str] = frozenset()
    """Checks that calls make, and of what passes do: a subset of `CHECKS`."""
    isa: str = ""
    """One of `INSTRUCTION_SETS`, for CPU kernels that use no other; "": all that the CPU has."""
    denormals: str = "flush"
    """One of `DENORMALS`: whether kernels take numbers below the smallest normal one for zeros."""
    early_launch: bool = False
    """Whether a GPU may begin launches before those that they wait for have ended."""
    multiplies_groups: bool = False
    """Whether kernels for a GPU may multiply by wgmma."""
    copies_in_bulk: bool = False
    """Whether TMA may copy what they multiply so."""
    adds_in_clusters: bool = False
    """Whether blocks of a cluster may add the parts of a product on a GPU."""
    draws_tickets: bool = True
    """Whether the last of a GPU's blocks to end may add what others have left."""
    profile: bool = False
    """Whether to print the profile of every program that was called when the process ends."""
    disable: tuple[str, ...] = ()
    """Names of optional passes that are left out."""
    log: str = "warning"
    """One of `LOG_LEVELS`."""


def read(
    streams: int | str | None = None,
    threads: int | None = None,
    device: str | None = None,
    tune: bool | str | None = None,
    disable: Iterable[str] = (),
    optional: Collection[str] | None = None,
    memory: int | str | None = None,
    wait: bool | None = None,
) -> Config:
    """Return the settings: each argument if given, else its variable, else the default.

    Raises GraphError for a bad value. `disable` adds to GRAPHC_DISABLE; both hold names of
    `optional`, if it is given.
    """

    def names(text: str) -> tuple[str, ...]:
        return _names(text, optional)

    dump = _setting("GRAPHC_DUMP", Path)
    wanted = None if memory is None else _parsed("memory", memory, _memory)
    tuning = _choose("tune", tune, "GRAPHC_TUNE", _tuning)
    waits = None if wait is None else _parsed("wait", wait, _truth)
    named = tuple(name for entry in disable for name in _parsed("disable", entry, names))
    return Config(
        streams=_choose("streams", streams, "GRAPHC_NUM_STREAMS", _streams) or "auto",
        threads=_choose("threads", threads, "GRAPHC_NUM_THREADS", _threads) or usable_cores(),
        device=_choose("device", device, "GRAPHC_DEVICE", _device),
        dump=dump.expanduser() if dump else None,
        cache_dir=cache_dir(),
        plan_cache=_given(_setting("GRAPHC_PLAN_CACHE", _flag), Config.plan_cache),
        cache_limit=cache_limit(),
        compile_seconds=compile_seconds(),
        tier="1" if waits else _first_tier(waits),
        tune=bool(tuning),
        libraries=tuning == LIBRARIES,
        memory_limit=wanted if isinstance(wanted, int) else _setting("GRAPHC_MEMORY_LIMIT", _bytes),
        memory_search=wanted == "search",
        memory_lean=wanted == "lean",
        check=_setting("GRAPHC_CHECK", _checks) or frozenset(),
        isa=isa(),
        denormals=denormals(),
        early_launch=early_launch(),
        multiplies_groups=multiplies_groups(),
        copies_in_bulk=copies_in_bulk(),
        adds_in_clusters=adds_in_clusters(),
        draws_tickets=draws_tickets(),
        profile=bool(_setting("GRAPHC_PROFILE", _flag)),
        disable=tuple(dict.fromkeys((*named, *(_setting("GRAPHC_DISABLE", names) or ())))),
        log=log_level(),
    )


def cache_dir() -> Path:
    """Return the folder of the caches, which need not exist yet.

    It is GRAPHC_CACHE_DIR, else `graphc` in XDG_CACHE_HOME, else `~/.cache/graphc`. It raises
    CompileError if there is no home folder.
    """
    chosen = os.environ.get("GRAPHC_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser().absolute() / "graphc"
    except RuntimeError:  # no HOME, and a user whom the system does not know
        raise CompileError(
            "no home folder to have the cache of compiled kernels in: let GRAPHC_CACHE_DIR name a "
            "folder"
        ) from None


def cubins() -> Path | None:
    """Return the folder of compiled CUDA kernels to share between machines: GRAPHC_CUBINS."""
    chosen = os.environ.get("GRAPHC_CUBINS")
    return Path(chosen).expanduser().absolute() if chosen else None


def cache_limit() -> int:
    """Return the most bytes that the cache may hold: GRAPHC_CACHE_LIMIT."""
    return _given(_setting("GRAPHC_CACHE_LIMIT", _bytes), Config.cache_limit)


def compile_seconds() -> float:
    """Return the time limit of one compiler command in seconds: GRAPHC_COMPILE_SECONDS."""
    return _given(_setting("GRAPHC_COMPILE_SECONDS", _seconds), Config.compile_seconds)


def isa() -> str:
    """Return the instruction set that CPU kernels are built for, "" for this CPU's: GRAPHC_ISA."""
    return _setting("GRAPHC_ISA", _isa) or Config.isa


def denormals() -> str:
    """Return how kernels treat denormals: GRAPHC_DENORMALS."""
    return _setting("GRAPHC_DENORMALS", _denormals) or Config.denormals


def early_launch() -> bool:
    """Return whether a GPU may begin launches early: GRAPHC_EARLY_LAUNCH."""
    return bool(_setting("GRAPHC_EARLY_LAUNCH", _flag))


def sim_gpu() -> str:
    """Return the GPU that device="sim" stands for: GRAPHC_SIM_GPU."""
    return _setting("GRAPHC_SIM_GPU", _sim_gpu) or SIMULATED[0]


def multiplies_groups() -> bool:
    """Return whether GPU kernels may use wgmma: GRAPHC_WGMMA."""
    return bool(_setting("GRAPHC_WGMMA", _flag))


def copies_in_bulk() -> bool:
    """Return whether TMA may copy the operands of wgmma: GRAPHC_TMA."""
    return bool(_setting("GRAPHC_TMA", _flag))


def adds_in_clusters() -> bool:
    """Return whether the blocks of a cluster may add parts of k: GRAPHC_CLUSTERS."""
    return bool(_setting("GRAPHC_CLUSTERS", _flag))


def draws_tickets() -> bool:
    """Return whether the last block to end may add partial sums: GRAPHC_TICKETS."""
    return _given(_setting("GRAPHC_TICKETS", _flag), Config.draws_tickets)


def bucket_bytes() -> int | None:
    """Return the bytes of a bucket of gradients, None to choose them: GRAPHC_BUCKET_BYTES."""
    return _setting("GRAPHC_BUCKET_BYTES", _bytes)


def ranks() -> tuple[int, int, str, str] | None:
    """Return (rank, ranks, address, key) of a run over TCP, None where there is none.

    They are GRAPHC_RANK, GRAPHC_RANKS, GRAPHC_ADDRESS (host:port of rank 0) and GRAPHC_KEY, which
    keeps strangers out. Raises GraphError if one of the first three is missing.
    """
    names = ("GRAPHC_ADDRESS", "GRAPHC_RANK", "GRAPHC_RANKS")
    missing = [name for name in names if not os.environ.get(name, "").strip()]
    if len(missing) == len(names):
        return None
    if missing:
        raise GraphError(f"{missing[0]}: expected beside {names[0]}, GRAPHC_RANK and GRAPHC_RANKS")
    rank, count = (_setting(name, _count) or 0 for name in names[1:])
    if rank >= count:
        raise GraphError(f"GRAPHC_RANK: expected a number below GRAPHC_RANKS={count}, got {rank}")
    address = os.environ[names[0]].strip()
    if not re.fullmatch(r".+:\d{1,5}", address):
        raise GraphError(f"GRAPHC_ADDRESS: expected host:port, got {address!r}")
    return rank, count, address, os.environ.get("GRAPHC_KEY", "")


def _first_tier(waits: bool | None) -> str:
    """GRAPHC_TIER, unless it says to wait and the argument says not to."""
    tier = _setting("GRAPHC_TIER", _tier) or Config.tier
    return Config.tier if tier == "1" and waits is not None else tier


def log_level() -> str:
    """Return the log level, one of `LOG_LEVELS`: GRAPHC_LOG."""
    return _setting("GRAPHC_LOG", _log_level) or "warning"


def _setting(variable: str, parse: Callable[[str], T]) -> T | None:
    text = os.environ.get(variable, "").strip()
    return _parsed(variable, text, parse) if text else None


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _choose(argument: str, value: object, variable: str, parse: Callable[[str], T]) -> T | None:
    if value is None:
        return _setting(variable, parse)
    return _parsed(argument, value, parse)


def _parsed(name: str, value: object, parse: Callable[[str], T]) -> T:
    try:
        return parse(str(value))
    except _ExpectedError as expected:
        raise GraphError(f"{name}: expected {expected}, got {value!r}") from None


class _ExpectedError(ValueError):
    """A bad value; the message is what the parser accepts."""


def _streams(text: str) -> int | str:
    if text == "auto":
        return text
    if text.isdecimal() and 1 <= int(text) <= MAX_STREAMS:
        return int(text)
    raise _ExpectedError(f"a whole number from 1 to {MAX_STREAMS} or auto")


def _threads(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= 1024:
        return int(text)
    raise _ExpectedError("a whole number from 1 to 1024")


def _device(text: str) -> str:
    if text in ("cpu", "cuda", "sim", "reference") or re.fullmatch(r"cuda:\d{1,3}", text):
        return text
    raise _ExpectedError("cpu, cuda, cuda:N, sim or reference")


def _sim_gpu(text: str) -> str:
    if text in SIMULATED:
        return text
    raise _ExpectedError(f"one of {', '.join(SIMULATED)}")


def _count(text: str) -> int:
    if text.isdecimal() and int(text) <= 1 << 20:
        return int(text)
    raise _ExpectedError("a whole number")


def _flag(text: str) -> bool:
    values = {"0": False, "1": True, "False": False, "True": True}
    if text in values:
        return values[text]
    raise _ExpectedError("0 or 1")


def _truth(text: str) -> bool:
    if text in ("True", "False"):
        return text == "True"
    raise _ExpectedError("True, False or None")


def _tier(text: str) -> str:
    if text in ("0", "1"):
        return text
    raise _ExpectedError("0 or 1")


def _tuning(text: str) -> bool | str:
    if text == LIBRARIES:
        return text
    try:
        return _flag(text)
    except _ExpectedError as expected:
        raise _ExpectedError(f"{expected}, or {LIBRARIES}") from None


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text)
    if match is None:
        raise _ExpectedError("a number of bytes such as 1500000, 512M or 2G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " "))


def _memory(text: str) -> int | str:
    if text in ("search", "lean"):
        return text
    try:
        return _bytes(text)
    except _ExpectedError as expected:
        raise _ExpectedError(f"{expected}, or search or lean") from None


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0:
        raise _ExpectedError("a number of seconds such as 600")
    return float(text)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def _names(text: str, known: Collection[str] | None) -> tuple[str, ...]:
    names = _words(text)
    if known is not None and not set(names) <= set(known):
        raise _ExpectedError(f"names of {', '.join(known)}")
    return names


def _checks(text: str) -> frozenset[str]:
    names = frozenset(_words(text))
    if not names <= set(CHECKS):
        raise _ExpectedError(f"a comma-separated list of {', '.join(CHECKS)}")
    return names


def _isa(text: str) -> str:
    if text in INSTRUCTION_SETS:
        return text
    raise _ExpectedError(f"one of {', '.join(INSTRUCTION_SETS)}")


def _denormals(text: str) -> str:
    if text in DENORMALS:
        return text
    raise _ExpectedError(" or ".join(DENORMALS))


def _log_level(text: str) -> str:
    if text in LOG_LEVELS:
        return text
    raise _ExpectedError(f"one of {', '.join(LOG_LEVELS)}")
