"""The profile table: where the time of a program goes, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from graphc.base import html
from graphc.inspect.subject import Subject
from graphc.inspect.trace_events import Span, trace_events, write_trace
from graphc.ir import Graph, Where
from graphc.ops.fused import kernels_in
from graphc.runtime.plan.plan import Launch, Plan, all_steps
from graphc.runtime.tuning.device_limits import DeviceLimits, limits_of
from graphc.runtime.tuning.timing import Timing

ROUNDS = 4
"""Kernels and whole calls are measured in turn so often, so that both see the same machine."""


class Measurable(Protocol):
    """What plays the program on a device."""

    @property
    def threads(self) -> int: ...
    def profile(self, inputs: Sequence[Any], repeats: int = ...) -> list[Timing]: ...
    def calls(self, inputs: Sequence[Any], repeats: int = ...) -> list[float]: ...


@dataclass(frozen=True)
class ProfileRow:
    """One kernel over all the calls that were measured."""

    kernel: str
    line: str
    """The user's `file:line` that it comes from; "" if there is none."""
    calls: int
    microseconds: float
    """Of all calls."""
    bytes: int
    """Read and written by one call."""
    flops: int
    """Of one call."""
    least: float = 0.0
    """Microseconds of the shortest call."""
    most: float = 0.0
    """Microseconds of the longest call."""
    module: str = ""
    """The path of the module that it belongs to."""
    gradient: str = ""
    """What it differentiates by: a parameter such as `conv1.weight`, or `conv2 input`."""
    limit: float = 0.0
    """The part of its time that the machine's limit of arithmetic or of memory would take."""

    @property
    def mean(self) -> float:
        """Microseconds per call."""
        return self.microseconds / self.calls

    @property
    def gflops(self) -> float:
        """Floating-point operations per nanosecond."""
        return self.flops / (1000 * self.mean) if self.mean else 0.0

    @property
    def bandwidth(self) -> float:
        """Gigabytes (1e9) per second."""
        return self.bytes / (1000 * self.mean) if self.mean else 0.0


@dataclass(frozen=True)
class Profile:
    """Rows in the order of their time, longest first. Prints as a table."""

    program: str
    repeats: int
    """Calls of the program that were measured."""
    rows: tuple[ProfileRow, ...]
    step: float = 0.0
    """Microseconds of a whole call that nobody measures inside, on all streams; 0 if unknown."""
    limits: DeviceLimits | None = None
    spans: tuple[Span, ...] = ()
    """When each launch began and ended in one call, as the streams really ran."""
    plan: Plan | None = field(default=None, compare=False, repr=False)

    @property
    def microseconds(self) -> float:
        """Of one call of the program: the sum over its kernels, one after another."""
        return sum(row.microseconds for row in self.rows) / self.repeats

    @property
    def idle(self) -> float:
        """Microseconds of a call in which no kernel runs: overhead and waits.

        It is negative where kernels on several streams overlap.
        """
        return self.step - self.microseconds if self.step else 0.0

    def __str__(self) -> str:
        head, *rows = [HEAD, *map(self._cells, self.rows), *self._idle_cells()]
        return "\n".join([self._title(), *_aligned([head, *rows])])

    def by_module(self) -> str:
        """The same times added up by module, each above what is in it."""
        paths: dict[str, list[ProfileRow]] = {}
        for row in self.rows:
            parts = row.module.split(".") if row.module else [NO_MODULE]
            for depth in range(len(parts)):
                paths.setdefault(".".join(parts[: depth + 1]), []).append(row)
        lines: list[tuple[str, ...]] = [("module", "calls", "total ms", "%")]
        roots = [path for path in paths if "." not in path]
        for root in sorted(roots, key=lambda path: -_total(paths[path])):
            lines += self._nested(root, paths, 0)
        return "\n".join([self._title(), *_aligned(lines)])

    def to_chrome_trace(self, path: str | Path) -> None:
        """Write one call as a trace for Perfetto and chrome://tracing.

        It has a track per stream, a bar per launch and an arrow per event. It raises GraphError if
        the file cannot be written.
        """
        write_trace(Path(path), trace_events(self.program, self.plan, self.spans))

    def _nested(
        self, path: str, paths: dict[str, list[ProfileRow]], depth: int
    ) -> Iterator[tuple[str, ...]]:
        own, indent = paths[path], "  " * depth
        yield indent + path, "", *self._time(own)
        inside = [p for p in paths if p.rpartition(".")[0] == path]
        for inner in sorted(inside, key=lambda path: -_total(paths[path])):
            yield from self._nested(inner, paths, depth + 1)
        for row in (row for row in own if (row.module or NO_MODULE) == path):
            yield f"{indent}  {row.kernel}", str(row.calls), *self._time([row])

    def _time(self, rows: Iterable[ProfileRow]) -> tuple[str, str]:
        total = sum(row.microseconds for row in rows)
        return f"{total / 1000:.3f}", f"{100 * total / self._total_microseconds:.1f}"

    @property
    def _total_microseconds(self) -> float:
        """Microseconds that shares are of: all calls, or the kernels where those are longer."""
        return self.repeats * max(self.step, self.microseconds) or 1.0

    def _title(self) -> str:
        title = f"profile {self.program}: {self.microseconds / 1000:.3f} ms in kernels"
        if self.step:
            title += f", {self.step / 1000:.3f} ms a call"
        if self.limits:
            title += (
                f"; limits {self.limits.flops / 1000:.0f} GFLOP/s, "
                f"{self.limits.bytes / 1000:.0f} GB/s, {self.limits.origin}"
            )
        return title

    def _cells(self, row: ProfileRow) -> tuple[str, ...]:
        return (
            *(row.kernel, row.gradient, row.line, str(row.calls), *self._time([row])),
            *(f"{row.mean:.1f}", f"{row.least:.1f}", f"{row.most:.1f}"),
            *(f"{row.bytes / 1e6:.2f}", f"{row.gflops:.1f}", f"{row.bandwidth:.1f}"),
            f"{100 * row.limit:.0f}",
        )

    def _idle_cells(self) -> Iterator[tuple[str, ...]]:
        if self.step:
            name = "overhead and idle" if self.idle >= 0 else "gained by streams"
            total = f"{self.idle * self.repeats / 1000:.3f}"
            share = f"{100 * self.idle * self.repeats / self._total_microseconds:.1f}"
            mean = f"{self.idle:.1f}"
            yield name, "", "", str(self.repeats), total, share, mean, *[""] * 6

    def _repr_html_(self) -> str:
        cells = [*map(self._cells, self.rows), *self._idle_cells()]
        rows = [(*row[:3], *map(_number, row[3:])) for row in cells]
        return html.table(self._title(), HEAD, rows)


HEAD = (
    *("kernel", "gradient of", "line", "calls", "total ms", "%", "avg µs", "min µs", "max µs"),
    *("MB", "GFLOP/s", "GB/s", "% limit"),
)
NO_MODULE = "(no module)"


def profile_of(
    program: Subject, executable: Measurable, inputs: Sequence[Any], repeats: int
) -> Profile:
    """Measure the program's kernels and its whole calls, `repeats` of each, in turn."""
    rounds = max(1, min(ROUNDS, repeats))
    timings: list[Timing] = []
    calls: list[float] = []
    for number in range(rounds):
        count = repeats * (number + 1) // rounds - repeats * number // rounds
        timings += executable.profile(inputs, count)
        calls += executable.calls(inputs, count)
    limits = limits_of(program.target.device, executable.threads)
    spans = [Span(*s) for s in getattr(executable, "timeline", lambda _: ())(inputs)]
    rows = profile_rows(program, timings, limits)
    step = sum(calls) / len(calls)
    return Profile(program.name, repeats, rows, step, limits, tuple(spans), program.plan)


def profile_rows(
    program: Subject, timings: Iterable[Timing], limits: DeviceLimits
) -> tuple[ProfileRow, ...]:
    """A row per kernel, the longest first. Launches of the same kernel are added up."""
    found: dict[str, list[Timing]] = {}
    for timing in timings:
        found.setdefault(timing.name, []).append(timing)
    wheres, arguments = _wheres(program.plan), gradients_of(program)
    rows = []
    for name, parts in found.items():
        kernel = program.plan.kernels.get(name) if program.plan else None
        nbytes, flops = (kernel.bytes, kernel.flops) if kernel else (0, 0)
        where, calls = wheres.get(name, Where()), sum(t.calls for t in parts)
        total = sum(t.microseconds for t in parts)
        rows.append(
            ProfileRow(
                name,
                where.lines[0] if where.lines else "",
                calls,
                total,
                nbytes,
                flops,
                min(t.least for t in parts),
                max(t.most for t in parts),
                where.module,
                arguments.get(name, ""),
                limits.share(flops, nbytes, total / calls) if calls else 0.0,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.microseconds))


def gradients_of(program: Subject) -> dict[str, str]:
    """By the name of a backward kernel what it differentiates by: parameters, `conv2 input`."""
    if program.plan is None:
        return {}
    values = _parameters(list(program.stages.values())[-1])
    found = {}
    for step in all_steps(program.plan.steps):
        if isinstance(step, Launch) and step.where.derived and step.where.lines:
            names = [values[place.value] for place in step.writes if place.value in values]
            if "dgrad" in step.kernel and step.where.module:
                names.insert(0, f"{step.where.module} input")
            found[step.kernel] = ", ".join(dict.fromkeys(names))
    return found


def _parameters(graph: Graph) -> dict[str, str]:
    """Return the parameter that each gradient updates, by the gradient's name.

    It is the only state, besides the parameter's moments, that an update rule makes from the
    gradient.
    """
    states = {new.name: old.name for old, new in graph.updates}
    found: dict[str, str] = {}
    for kernel in (n for n in kernels_in(graph) if n.where.of_update_rule):
        outer = dict(zip(kernel.body.outputs, kernel.outputs, strict=True))
        for inner, value in zip(kernel.body.inputs, kernel.inputs, strict=True):
            reached = {inner}
            for part in kernel.body.nodes:
                if not reached.isdisjoint(part.inputs):
                    reached.update(part.outputs)
            made = [outer[v].name for v in outer if v in reached]
            names = [states[name] for name in made if name in states]
            parameter = min(names, key=len, default="")
            own = all(n == parameter or n.endswith(f".{parameter}") for n in names)
            if parameter and own and value not in graph.state:
                found[value.name] = parameter
    for node in reversed(graph.nodes):
        if node.op.name in ("relayout", "reshape") and node.output.name in found:
            found[node.inputs[0].name] = found[node.output.name]
    return found


def _wheres(plan: Plan | None) -> dict[str, Where]:
    """Where each kernel comes from."""
    launches = [s for s in all_steps(plan.steps) if isinstance(s, Launch)] if plan else []
    return {launch.kernel: launch.where for launch in reversed(launches)}


def _total(rows: Iterable[ProfileRow]) -> float:
    return sum(row.microseconds for row in rows)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of one width each: the words of a row to the left, its numbers to the right."""
    words = 3 if len(rows[0]) > 4 else 1
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{width}}" if i < words else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            if width
        ).rstrip()
        for row in rows
    ]


def _number(cell: str) -> float | int | str:
    if not cell:
        return ""
    return float(cell) if "." in cell else int(cell)
