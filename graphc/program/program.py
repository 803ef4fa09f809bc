"""The program that compile() gives: calls, state, and what can be read of it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from graphc.base import html
from graphc.base.dtypes import shown
from graphc.base.errors import GraphError
from graphc.base.locks import refuse_reentry
from graphc.base.source_lines import error
from graphc.base.target import SIMULATOR, Target
from graphc.ir import Array, Graph, Type, tree
from graphc.ir.state import StateBuffer, overwrite, snapshot
from graphc.nn.parameter import changes
from graphc.nn.state_arrays import as_array, can_assign, mapping_of, type_text
from graphc.ops.constant import PLACED
from graphc.program.tracing import Traced, state_of
from graphc.trace import Tensor
from graphc.trace.arguments import Arguments, exact

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.inspect.explain import Explainer
    from graphc.inspect.explanation import Explanation
    from graphc.inspect.memory import MemoryReport
    from graphc.inspect.profile import Profile
    from graphc.kernels.program.kernel import Kernel
    from graphc.runtime.plan.plan import Plan
    from graphc.runtime.tuning.timing import Timing


class Executable(Protocol):
    """A plan on a device, ready to play."""

    def run(self, inputs: Sequence[Array]) -> list[Array]: ...
    def run_checked(self, inputs: Sequence[Array]) -> list[Array]: ...
    @property
    def threads(self) -> int: ...
    def profile(self, inputs: Sequence[Array], repeats: int = ...) -> list[Timing]: ...
    def calls(self, inputs: Sequence[Array], repeats: int = ...) -> list[float]: ...


class Program:
    """A compiled function. Call it with arrays in place of the specs that it was compiled for.

    `plan` is the plan (None on the reference device), `kernels` the generated source by kernel
    name.
    """

    def __init__(
        self,
        traced: Traced,
        find_stages: Callable[[], dict[str, Graph]],
        plan: Plan | None,
        executable: Executable,
        state: dict[str, StateBuffer],
        update: Any,
        target: Target,
        check: frozenset[str],
    ) -> None:
        self.name = traced.builder.name
        self._find_stages, self.plan, self.target = find_stages, plan, target
        self.update = update
        self._clock: Any = None if update is None else update.clock(state.values())
        self._splits = 0 if update is None else update.splits
        self._executable, self._state = executable, state
        self._trainable = traced.builder.trainable_read
        self._holders, self._changes = traced.holders, changes.count
        used = set(map(id, state.values()))
        self._held = {n: p.state for n, p in traced.parameters.items() if id(p.state) in used}
        lines = {id(parameter.state): at for parameter, at in traced.closures}
        self.closures = {n: lines[id(b)] for n, b in state.items() if id(b) in lines}
        """The parameters that are no arguments' and that the function reads nevertheless, by the
        name of their state, and the user's lines."""
        foreign = getattr(executable, "foreign", None)
        found = getattr(executable, "exact", exact)
        self._arguments = Arguments(self.name, traced.arguments, foreign, found)
        self._outputs, self._shown = traced.outputs, traced.builder.shown
        self._single = isinstance(traced.outputs, Tensor) and not traced.builder.shown
        """Whether the outputs are one array and nothing else."""
        self.taps: dict[str, Array] = {}
        """What `graphc.tap` asked for, as of the last call; by name."""
        self._run: Callable[[Sequence[Any]], list[Array]]
        self._run = executable.run_checked if "nan" in check else executable.run
        self._explainer: Explainer | None = None
        self._check_bounds: Any = None
        if "bounds" in check:
            from graphc.runtime.checks.bounds import BoundsCheck

            self._check_bounds = BoundsCheck(traced.builder)

    @functools.cached_property
    def stages(self) -> dict[str, Graph]:
        """The graph after each pass, by its name. Of a program whose plan was remembered the passes
        run when this is first asked for."""
        return self._find_stages()

    @property
    def graph(self) -> Graph:
        """The optimised graph."""
        return next(reversed(self.stages.values()))

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The function's results as fresh NumPy arrays, in the structure that it returned. Arrays
        are given in the order of the function's arguments or by their names.

        Raises GraphError if an array's shape or dtype is not that of its spec; then, as after
        any error before the first kernel, the state is unchanged.
        """
        arrays = self._arguments(args, named)
        self._check_trainable()
        if self._changes != changes.count:
            self._check_structure()
        if self._check_bounds is not None:
            self._check_bounds(arrays)
        if self.update is not None:
            refuse_reentry(self.name)
            if self._splits != self.update.splits:
                self._check_counts()
            self.update.before_step(self._clock)
        found = self._run(arrays)
        if self._single:
            return shown(found[0])
        results = map(shown, found)
        outputs = tree.map_leaves(lambda _, __: next(results), self._outputs)
        for asked, array in zip(self._shown, results, strict=False):
            if asked.count:
                asked.tell(array)
            else:
                self.taps[asked.name] = array
        return outputs

    def __reduce__(self) -> NoReturn:
        raise GraphError(
            f"{self.name}: a program cannot be pickled or copied: keep its model with "
            "graphc.save_weights or its state_dict(), and compile again"
        )

    def _check_trainable(self) -> None:
        for name, parameter, trainable in self._trainable:
            if parameter.trainable is not trainable:
                raise error(
                    f"{self.name}: was compiled when {name} had trainable={trainable}, now it has "
                    f"{parameter.trainable}: compile the function again"
                )

    def _check_structure(self) -> None:
        """GraphError if the model holds other parameters than those that this program reads."""
        seen = changes.count
        now = {name: parameter.state for name, parameter in state_of(self._holders)}
        for name, buffer in self._held.items():
            if now.get(name) is not buffer:
                what = "replaced" if name in now else "removed"
                raise error(f"{self.name}: {name} was {what} after compile: compile again")
        self._changes = seen

    def _check_counts(self) -> None:
        """GraphError if this program counts steps together that another counts apart by now."""
        seen = self.update.splits
        if self.update.is_stale(self._state.values(), self._splits):
            raise error(
                f"{self.name}: a program compiled since then updates some of its parameters alone "
                "by the same rule, so that their steps are counted apart: compile again"
            )
        self._splits = seen

    @property
    def kernels(self) -> dict[str, str]:
        """Kernel name -> generated source."""
        kernels: Mapping[str, Kernel] = {} if self.plan is None else self.plan.kernels
        return {name: kernel.source for name, kernel in kernels.items()}

    @property
    def lr(self) -> float:
        """The learning rate; may be set between steps without compiling again."""
        return float(self._rule().rate_at(self._clock.finished))

    @lr.setter
    def lr(self, value: float) -> None:
        self._rule().lr = value

    def _rule(self) -> Any:
        if self.update is None:
            raise GraphError(f"{self.name} has no learning rate: it was compiled without update=")
        return self.update

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Overwrite all state with what `state_dict` gave, moments and counters included.

        All or nothing: GraphError names what is missing, unexpected or does not fit.
        """
        own = {n: b for n, b in self._state.items() if not n.startswith(PLACED)}
        state = mapping_of("load_state_dict", state)
        arrays = {name: as_array(name, state[name]) for name in own if name in state}
        problems = [f"missing {n} : {b.type}" for n, b in own.items() if n not in state]
        problems += [f"unexpected {n}" for n in state if n not in own]
        for name, array in arrays.items():
            if not can_assign(array, own[name].type):
                problems.append(f"{name}: expected {own[name].type}, got {type_text(array)}")
        if problems:
            raise GraphError("\n  ".join([f"load_state_dict: {self.name}", *problems]))
        overwrite(own, arrays)

    def state_dict(self) -> dict[str, Array]:
        """Copies of all state that this program reads or writes, moments and counters included,
        as of the last finished call; by name."""
        return snapshot({n: b for n, b in self._state.items() if not n.startswith(PLACED)})

    def state_types(self) -> dict[str, Type]:
        """The types of what `state_dict` gives, by name."""
        return {n: b.type for n, b in self._state.items() if not n.startswith(PLACED)}

    def profile(self, *args: Any, repeats: int = 20, **named: Any) -> Profile:
        """A table of kernels: calls, time, share, bytes, FLOP/s, and how near they come to what the
        machine can do; beside it what a whole call takes. Leaves the state as it was."""
        from graphc.inspect.profile import profile_of

        return profile_of(self, self._executable, self._arguments(args, named), repeats)

    def explain(self, what: Any) -> Explanation:
        """Why a thing is as it is: what shares its kernel and what does not, by which rule; why its
        bytes are held; why it is on its stream; what an event orders and costs. `what` is an op,
        value, kernel, loop, event (`e3`), range of bytes (`work+0..64`), module or line of the
        user's (`net.py:12`), or a node, value or step itself. GraphError if there is none."""
        if self._explainer is None:
            from graphc.inspect.explain import Explainer

            self._explainer = Explainer(self)
        return self._explainer.explain(what)

    def profile_random_inputs(self, repeats: int = 20) -> Profile:
        """As `profile`, of small random floats, and zeros where no float is wanted, which any index
        may be."""
        from graphc.inspect.profile import profile_of
        from graphc.runtime.tuning.stream_autotuner import filled

        inputs = [filled(t.shape, t.numpy_dtype) for _, t in self._arguments.inputs]
        return profile_of(self, self._executable, inputs, repeats)

    def profile_at_exit(self) -> None:
        """Print the profile of this program when the process ends, of the arrays of its first
        call. Calls themselves are not measured."""
        run = self._run

        def first(arrays: Sequence[Array]) -> list[Array]:
            import atexit

            kept = [np.array(array) if isinstance(array, np.ndarray) else array for array in arrays]
            atexit.register(self._print_profile, kept)
            self._run = run
            return run(arrays)

        self._run = first

    def _print_profile(self, arrays: Sequence[Array]) -> None:
        from graphc.inspect.profile import profile_of

        print(profile_of(self, self._executable, arrays, 20), file=sys.stderr)

    def memory(self) -> MemoryReport:
        """Where the peak of work memory stands, what is alive there with lines and bytes, and what
        would lower it."""
        from graphc.inspect.memory import memory_report

        return memory_report(self)

    def dump(self, folder: str | Path) -> None:
        """Write every stage, kernel and the plan as text files into `folder`."""
        from graphc.inspect.dump import dump

        dump(self, Path(folder))

    def report(
        self,
        path: str | Path,
        *args: Any,
        versus: Program | None = None,
        measure: bool = True,
        **named: Any,
    ) -> None:
        """Write one HTML file that shows all that is known of the program, and needs no network:
        its kernels with their lines, reasons and sources, the graph after each pass, the memory,
        the streams.

        versus   another program, shown beside this one
        measure  whether kernels are timed, with the arrays of a call, or zeros where none are
                 given. The state stays as it is. Not on the simulator, whose times say nothing

        GraphError if the file cannot be written.
        """
        from graphc.report.page import write

        if versus is not None and not isinstance(versus, Program):
            raise error(f"report: versus expected a program, got {type(versus).__name__}")
        programs = [self] if versus is None else [self, versus]
        write(Path(path), [p._reported(args, named, measure) for p in programs])

    def _reported(self, args: Sequence[Any], named: Mapping[str, Any], measure: bool) -> Any:
        """What a report shows of this program."""
        from graphc.report import data
        from graphc.report.measure import measured

        arrays = self._arguments(args, named) if args or named else None
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

    def __repr__(self) -> str:
        count = sum(n.op.name != "reshape" for n in self.graph.nodes)
        return f"Program({self.name}, {self.target.device}, {count} kernels)"
