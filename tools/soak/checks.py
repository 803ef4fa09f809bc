"""All checks, with the amounts of work of the campaign and of the tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

Function = Callable[[int, Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Check:
    """A check and how much of it is done."""

    place: str
    """Its module and function, `module.function`."""
    about: str
    """What is done."""
    amount: int
    """How much of it the campaign does."""
    quick: int
    """How much of it the tests do."""
    seconds: float = 300.0
    """After which it counts as hanging."""

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.place.partition(".")[2]

    def function(self) -> Function:
        """Return the function."""
        module, _, name = self.place.partition(".")
        found: Function = getattr(import_module(f"tools.soak.{module}"), name)
        return found


CHECKS = (
    Check("steps.train_mlp", "training steps of a perceptron", 200_000, 3000),
    Check("steps.train_lstm", "training steps of an LSTM", 200_000, 3000),
    Check("steps.fit_batches", "steps by `fit` with shuffled `Batches`", 200_000, 3000),
    Check("steps.train_simulated", "training steps on the simulated GPU", 4000, 100),
    Check("interrupts.in_steps", "Ctrl-C in steps, reading and loading of state", 2000, 200),
    Check("interrupts.in_steps_on_other_devices", "the same on other devices", 200, 20),
    Check("interrupts.in_compile", "Ctrl-C in `compile`", 100, 4),
    Check("interrupts.in_checkpoints", "Ctrl-C in writing and reading checkpoints", 300, 20),
    Check("interrupts.in_fit", "Ctrl-C in `fit` with checkpoints", 200, 10),
    Check("interrupts.in_builds", "Ctrl-C while kernels are compiled", 60, 3),
    Check("threads.different_programs", "threads that train networks of their own", 8000, 200),
    Check("threads.one_program", "threads that call the same programs", 20_000, 400),
    Check("forks.fork_after_use", "forks beside threads that train and compile", 60, 2),
    Check("forks.loaders", "forks in a loop over `Batches`", 200, 10),
    Check("forks.workers", "workers of `multiprocessing` by each start method", 8, 2),
    Check("programs.many_programs", "programs at once, dropped", 1000, 20),
    Check("programs.one_again", "compiling and dropping one program", 1000, 20),
    Check("programs.compiled_kernels", "programs with compiled kernels", 60, 2),
    Check("kills.kill_checkpoints", "SIGKILL while checkpoints are written", 50, 2),
    Check("kills.kill_programs", "SIGKILL while programs are saved", 50, 2),
    Check("limits.few_files", "few file descriptors", 10, 2),
    Check("limits.little_memory", "little memory", 20, 2),
    Check("limits.small_files", "files of few bytes, as with a quota", 8, 1),
    Check("limits.no_threads", "refused threads", 4, 1),
    Check("limits.few_processes", "few processes", 8, 1),
    Check("limits.unusable_caches", "a cache that cannot be used", 1, 1),
    Check("limits.full_disks", "full disks", 8, 1),
)
