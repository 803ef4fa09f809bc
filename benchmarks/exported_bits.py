"""Ten training steps of exported models, whose states must have one checksum for each batch.

    python -m benchmarks.exported_bits                  # all models and targets
    python -m benchmarks.exported_bits gpt x86-64 cuda

In Python the steps run on one to three streams and one to four threads, in exports on one, two and
four threads where the target has threads, and on a GPU, which is the simulated one, on one to three
streams. A GPU adds in an order of its own, so it has a checksum of its own, Python's on the device.
Prints a table; fails where a checksum is another one.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.exported import MissingError, build, check, state_after, states, tested
from benchmarks.exported_models import MODELS, STEPS, training_step
from graphc.export.targets import MACHINES

BATCHES = {"lenet": (5, 16), "lstm": (1, 8), "gpt": (1, 4)}
"""The sizes of batches: the usual one, and a smaller one."""
STREAMS, THREADS = (1, 2, 3), (1, 2, 4)


def in_python(
    name: str,
    batch: int,
    streams: Sequence[int] = STREAMS,
    threads: Sequence[int] = THREADS,
) -> dict[str, str]:
    """The checksums of the programs of Python, by what they ran on."""
    found = {}
    for s, t in itertools.product(streams, threads):
        step, batches = training_step(name, batch, streams=s, threads=t)
        found[f"{s} streams, {t} threads"] = state_after(step, batches)
    return found


def of_machine(name: str, batch: int, target: str) -> dict[str, str]:
    """The checksums of an export, by the threads. Raises MissingError."""
    check(target)
    step, batches = training_step(name, batch)
    counts = THREADS if MACHINES[target].hosted else (1,)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / target
        threads = len(counts) > 1
        step.export(folder, target, name=name, calls=STEPS, inputs=batches, threads=threads)
        build(folder, target)
        return {
            f"{count} threads": states(tested(folder, name, target, count))[-1] for count in counts
        }


def of_gpu(name: str, batch: int) -> dict[str, str]:
    """The checksums of exports for a GPU, by the streams; they have Python's bits."""
    from tests.export import fake_gpu

    found = {}
    with fake_gpu.simulated_kernels():
        for streams in STREAMS:
            step, batches = training_step(name, batch, device="sim", streams=streams)
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made) / "cuda"
                step.export(folder, "cuda", name=name, calls=STEPS, inputs=batches)
                lines = fake_gpu.selftest(folder, name)
            assert fake_gpu.all_equal(lines), lines
            found[f"{streams} streams"] = states(lines)[-1]
    return found


def rows(names: list[str], targets: list[str]) -> Iterator[tuple[list[str], bool]]:
    """The rows of the table, and whether each has one checksum."""
    for name in names:
        for batch in BATCHES[name]:
            whole = in_python(name, batch)
            counted = [f"Python {len(whole)}"]
            for target in targets:
                if target == "cuda":
                    continue
                try:
                    found = of_machine(name, batch, target)
                except MissingError as reason:
                    print(f"{target} is left out: {reason}", file=sys.stderr)
                    continue
                whole |= {f"{target}, {what}": state for what, state in found.items()}
                counted.append(f"{target} {len(found)}")
            yield row(name, batch, whole, counted)
            if "cuda" in targets:
                found = of_gpu(name, batch)
                yield row(name, batch, found, [f"cuda {len(found)}"])


def row(name: str, batch: int, found: dict[str, str], counted: list[str]) -> tuple[list[str], bool]:
    """A row of the table for these checksums, and whether they are one."""
    seen = sorted(set(found.values()))
    same = len(seen) == 1
    runs = f"{len(found)} the same" if same else f"not the same: {found}"
    return [name, str(batch), ", ".join(seen), runs, ", ".join(counted)], same


def main(words: list[str]) -> Any:
    """Print the table of the models and targets among the words; the exit status."""
    names = [word for word in words if word in MODELS] or [*MODELS]
    known = [*MACHINES, "cuda"]
    targets = [word for word in words if word in known] or known
    print("| model | batch | state | runs | of |")
    print("| --- | --- | --- | --- | --- |")
    fine = True
    for cells, same in rows(names, targets):
        print(f"| {' | '.join(cells)} |", flush=True)
        fine &= same
    return not fine


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
