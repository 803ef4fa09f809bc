"""The profile table: where the time of a program goes, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphc import html
from graphc.inspect.subject import Subject
from graphc.runtime.plan.plan import Launch, Plan, all_steps


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

    @property
    def microseconds(self) -> float:
        """Of one call of the program: the sum over its kernels."""
        return sum(row.microseconds for row in self.rows) / self.repeats

    def __str__(self) -> str:
        width = max([len("kernel"), *(len(r.kernel) for r in self.rows)])
        place = max([len("line"), *(len(r.line) for r in self.rows)])
        head = (
            f"{'kernel':{width}}  {'line':{place}}  calls  total ms      %    avg µs"
            "        MB   GFLOP/s      GB/s"
        )
        lines = [f"profile {self.program}: {self.microseconds / 1000:.3f} ms in kernels", head]
        total = self.microseconds * self.repeats
        for row in self.rows:
            share = 100 * row.microseconds / total if total else 0.0
            lines.append(
                f"{row.kernel:{width}}  {row.line:{place}}  {row.calls:5d}"
                f"  {row.microseconds / 1000:8.3f}  {share:5.1f}  {row.mean:8.1f}"
                f"  {row.bytes / 1e6:8.2f}  {row.gflops:8.1f}  {row.bandwidth:8.1f}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title = f"profile {self.program}: {self.microseconds / 1000:.3f} ms in kernels"
        head = ("kernel", "line", "calls", "ms", "%", "mean µs", "MB", "GFLOP/s", "GB/s")
        total = self.microseconds * self.repeats
        rows = [
            (
                *(row.kernel, row.line, row.calls, row.microseconds / 1000),
                100 * row.microseconds / total if total else 0.0,
                *(row.mean, row.bytes / 1e6, row.gflops, row.bandwidth),
            )
            for row in self.rows
        ]
        return html.table(title, head, rows)


def profile_table(
    program: Subject, measured: Iterable[tuple[str, int, float]], repeats: int
) -> Profile:
    """The table of (kernel, calls, microseconds of all calls) rows, as a device measures them in
    `repeats` calls of the program.

    Launches of the same kernel are added up.
    """
    calls: dict[str, int] = {}
    microseconds: dict[str, float] = {}
    for name, count, time in measured:
        calls[name] = calls.get(name, 0) + count
        microseconds[name] = microseconds.get(name, 0.0) + time
    lines = _lines(program.plan)
    rows = []
    for name, time in microseconds.items():
        kernel = program.plan.kernels.get(name) if program.plan else None
        cost = (kernel.bytes, kernel.flops) if kernel else (0, 0)
        rows.append(ProfileRow(name, lines.get(name, ""), calls[name], time, *cost))
    rows.sort(key=lambda row: -row.microseconds)
    return Profile(program.name, repeats, tuple(rows))


def _lines(plan: Plan | None) -> dict[str, str]:
    """The first of the user's lines of each kernel."""
    steps = all_steps(plan.steps) if plan else ()
    launches = [s for s in steps if isinstance(s, Launch) and s.where.lines]
    return {launch.kernel: launch.where.lines[0] for launch in reversed(launches)}
