"""What can be asked about a program: times, memory, reasons, a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphc.base import html
from graphc.base.cached import cached_property
from graphc.base.source_lines import error
from graphc.base.target import SIMULATOR, Target
from graphc.ir import Array, Graph
from graphc.program.executable import Executable
from graphc.program.program_files import ProgramFiles
from graphc.trace.arguments import Arguments

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.inspect.explain import Explainer
    from graphc.inspect.explanation import Explanation
    from graphc.inspect.memory import MemoryReport
    from graphc.inspect.profile import Profile
    from graphc.runtime.plan.plan import Plan


class ProgramInspection(ProgramFiles):
    """The part of a program that answers questions about it."""

    plan: Plan | None
    target: Target
    closures: dict[str, tuple[str, ...]]
    _executable: Executable
    _arguments: Arguments

    if TYPE_CHECKING:

        @cached_property
        def stages(self) -> dict[str, Graph]: ...
        @property
        def graph(self) -> Graph: ...
        @property
        def kernels(self) -> dict[str, str]: ...

    def profile(self, *args: Any, repeats: int = 20, **named: Any) -> Profile:
        """Measure the kernels of a call; the state stays as it is.

        Args:
            *args: The arguments of a call.
            repeats: The number of measured calls.
            **named: The named arguments of a call.

        Returns:
            A table of calls, time, share, bytes, FLOP/s and distance to the machine's limits per
            kernel, and the time of a whole call.
        """
        return self._profiled(self._arguments(args, named), repeats)

    def _profiled(self, arrays: Sequence[Array], repeats: int = 20) -> Profile:
        from graphc.inspect.profile import profile_of

        return profile_of(self, self._executable, arrays, repeats)

    def explain(self, what: Any) -> Explanation:
        """Explain a decision of the compiler.

        It says what shares a kernel with the subject and what does not, and by which rule; why its
        bytes are kept; why it is on its stream; what an event orders and costs.

        Args:
            what: The name of an op, value, kernel, loop, event (`e3`), byte range (`work+0..64`),
                module or source line (`net.py:12`); or a node, value or step itself.

        Raises:
            GraphError: Nothing has this name.
        """
        return self._explainer.explain(what)

    @cached_property
    def _explainer(self) -> Explainer:
        from graphc.inspect.explain import Explainer

        return Explainer(self)

    def profile_random_inputs(self, repeats: int = 20) -> Profile:
        """Profile with small random floats, and zeros for integers, which every index accepts.

        Args:
            repeats: The number of measured calls.

        Returns:
            The table of `profile`.
        """
        from graphc.runtime.tuning.stream_autotuner import filled

        inputs = [filled(t.shape, t.numpy_dtype) for _, t in self._arguments.inputs]
        return self._profiled(inputs, repeats)

    def memory(self) -> MemoryReport:
        """Return a report on work memory: its peak, and what would lower it."""
        from graphc.inspect.memory import memory_report

        return memory_report(self)

    def report(
        self,
        path: str | Path,
        *args: Any,
        versus: ProgramInspection | None = None,
        measure: bool = True,
        **named: Any,
    ) -> None:
        """Write an HTML file with kernels, sources, graphs, memory and streams of the program.

        The file needs no network.

        Args:
            path: The file to write.
            *args: The arguments of a call to measure with; zeros if there are none.
            versus: Another program to show beside this one.
            measure: Whether to time kernels; the state stays as it is. The simulator has no times.
            **named: The named arguments of a call.

        Raises:
            GraphError: The file cannot be written, or `versus` is no program.
        """
        from graphc.report.page import write

        if versus is not None and not isinstance(versus, ProgramInspection):
            raise error(f"report: versus expected a program, got {type(versus).__name__}")
        programs = [self] if versus is None else [self, versus]
        write(Path(path), [p._reported(args, named, measure) for p in programs])

    def _reported(self, args: Sequence[Any], named: Mapping[str, Any], measure: bool) -> Any:
        """What a report shows of this program."""
        arrays = self._arguments(args, named) if args or named else None
        return self._report_of(arrays, measure)

    def _report_of(self, arrays: Sequence[Array] | None, measure: bool) -> Any:
        from graphc.report import data
        from graphc.report.measure import measured

        timed = self.plan if measure and self.target.kind is not SIMULATOR else None
        times = None if timed is None else measured(self, timed, self._executable, arrays)
        return data.program_data(self, times, getattr(self._executable, "threads", 1))

    def _repr_html_(self) -> str:
        from graphc.report.data import summary
        from graphc.report.summary import notebook_strip

        inputs = "\n".join(f"{name} : {type}" for name, type in self._arguments.inputs)
        state = "\n".join(f"{name} : {type}" for name, type in self.state_types().items())
        parts = [html.details(repr(self), inputs, opened=True), html.details("state", state)]
        shown: list[Graph | Plan] = [self.graph] if self.plan is None else [self.graph, self.plan]
        strip = notebook_strip(summary(self, getattr(self._executable, "threads", 1)))
        return "".join([strip, *parts, *(part._repr_html_() for part in shown)])
