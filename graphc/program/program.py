"""Compiled programs: calls, state, and what can be read of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphc.base.cached import cached_property
from graphc.base.dtypes import shown
from graphc.base.errors import GraphError
from graphc.base.locks import refuse_reentry
from graphc.base.source_lines import error
from graphc.base.target import Target
from graphc.ir import Array, Graph, tree
from graphc.ir.state import StateBuffer
from graphc.nn.parameter import changes
from graphc.optim.loss_scale import SCALE, SKIPPED
from graphc.program.executable import Asynchronous, Executable, Tiered
from graphc.program.inspection import ProgramInspection
from graphc.program.pending import Ended, Pending
from graphc.program.tracing import Traced, state_of
from graphc.trace import Tensor
from graphc.trace.arguments import Arguments, exact

if TYPE_CHECKING:  # nothing of it is needed before something is compiled
    from graphc.kernels.program.kernel import Kernel
    from graphc.parallel.group import Group
    from graphc.runtime.plan.plan import Plan


class Program(ProgramInspection):
    """A compiled function; call it with arrays in place of the specs.

    Arrays are NumPy arrays, or anything with `__array__`, `__dlpack__` or
    `__cuda_array_interface__`. Results are new NumPy arrays. `graphc.compile` makes programs.

    Attributes:
        plan: The plan of kernel launches; None on the reference device.
        taps: The values of `graphc.tap` in the last call, by name.

    Example:
        >>> f = graphc.compile(lambda x: 2 * x, graphc.spec(2))
        >>> f(np.array([1, 2], np.float32))
        array([2., 4.], dtype=float32)
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
        recipe: Any,
    ) -> None:
        super().__init__(traced.builder.name, state)
        self._find_stages, self.plan, self.target = find_stages, plan, target
        self.update, self.recipe = update, recipe
        self.group: Group | None = recipe.group
        """The ranks that average its gradients, if there are several."""
        self._clock: Any = None if update is None else update.clock(state.values())
        self._splits = 0 if update is None else update.splits
        self._executable = executable
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
        self._run: Callable[[Sequence[Any]], list[Array]]
        self._checked = "nan" in check
        self._run = executable.run_checked if self._checked else executable.run
        self._check_bounds: Any = None
        if "bounds" in check:
            from graphc.runtime.checks.bounds import BoundsCheck

            self._check_bounds = BoundsCheck(traced.builder)

    @cached_property
    def stages(self) -> dict[str, Graph]:
        """A dict from the name of each pass to the graph after it.

        For a program whose plan was cached, the passes run when this is first read.

        Example:
            >>> list(graphc.compile(graphc.relu, graphc.spec(2)).stages)[0]
            'trace'
        """
        return self._find_stages()

    @property
    def graph(self) -> Graph:
        """The optimized graph."""
        return next(reversed(self.stages.values()))

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the function's results as new NumPy arrays, in the structure that it returned.

        Arrays are given in the order of the function's arguments or by their names.

        Raises:
            GraphError: An array's shape or dtype is not that of its spec. As after any error before
                the first kernel, the state is unchanged.
        """
        return self._called(self._arguments(args, named))

    def checked(self, arguments: Sequence[Any]) -> list[Array]:
        """Return a call's arguments as arrays in the order of the graph's inputs.

        Raises:
            GraphError: An array's shape or dtype is not that of its spec.
        """
        return self._arguments(arguments, {})

    def submit(self, *args: Any, **named: Any) -> Pending:
        """Begin a call and return what will hold its results, as `concurrent.futures` does.

        On a GPU this does not wait for it: calls run one after another in the order in which they
        began, and the next call need not wait for a result either. The results of two calls may be
        on their way to the host; a third call first reads the oldest. A CPU ends the call at once.

        Args:
            *args: The arguments of a call, which may be changed as soon as this returns.
            **named: The named arguments of a call.

        Raises:
            GraphError: An array's shape or dtype is not that of its spec.

        Example:
            >>> f = graphc.compile(lambda x: 2 * x, graphc.spec(2))
            >>> first = f.submit(np.ones(2, np.float32))
            >>> second = f.submit(np.zeros(2, np.float32))
            >>> first.result(), second.result()
            (array([2., 2.], dtype=float32), array([0., 0.], dtype=float32))
        """
        arrays = self._arguments(args, named)
        self._begin(arrays)
        if isinstance(self._executable, Asynchronous) and not self._checked:
            return Pending(self._executable.submit(arrays), self._given)
        return Pending(Ended(self._run(arrays)), self._given)

    @property
    def runs_ahead(self) -> bool:
        """Whether `submit` leaves a step to the GPU, and nothing is shown or checked after it."""
        on_gpu = isinstance(self._executable, Asynchronous)
        return on_gpu and not self._checked and not self._shown

    def _keep_results(self) -> None:
        """From now on return results as arrays that stay on the GPU; what `out="device"` does."""
        if isinstance(self._executable, Asynchronous):
            self._executable.keep_results()

    def _called(self, arrays: Sequence[Array]) -> Any:
        """The results for checked arrays, in the order of the graph's inputs."""
        self._begin(arrays)
        return self._given(self._run(arrays))

    def _begin(self, arrays: Sequence[Array]) -> None:
        """Do what precedes a call with checked arrays."""
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

    def _given(self, found: list[Any]) -> Any:
        """What a call returns, in the structure that the function returned."""
        if self._single:
            return shown(found[0])
        results = map(shown, found)
        outputs = tree.map_leaves(lambda _, __: next(results), self._outputs)
        for asked, array in zip(self._shown, results, strict=False):
            if asked.count:
                asked.tell(np.asarray(array))
            else:
                self.taps[asked.name] = array
        return outputs

    def __reduce__(self) -> NoReturn:
        raise GraphError(
            f"{self.name}: a program cannot be pickled or copied: program.save writes it to a "
            "file, which graphc.load reads"
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
    def ready(self) -> bool:
        """Whether all kernels are compiled, so that calls take no less time later."""
        return not isinstance(self._executable, Tiered) or self._executable.ready

    def wait(self) -> None:
        """Wait until all kernels are compiled; the next call plays them.

        Raises:
            CompileError: A kernel does not compile; it stays prebuilt.
        """
        if isinstance(self._executable, Tiered):
            self._executable.wait()

    @property
    def kernels(self) -> dict[str, str]:
        """A dict from kernel names to generated source."""
        kernels: Mapping[str, Kernel] = {} if self.plan is None else self.plan.kernels
        return {name: kernel.source for name, kernel in kernels.items()}

    @property
    def lr(self) -> float:
        """The learning rate; it may be set between steps without compiling again.

        Example:
            >>> step = graphc.compile(
            ...     lambda m: graphc.sum(m.weight**2), nn.Linear(2, 1), update=optim.SGD(lr=0.1)
            ... )
            >>> step.lr = 0.01
            >>> step.lr
            0.01
        """
        rule = self._rule()
        return float(rule.rate_at(rule.step if self._clock is None else self._clock.finished))

    @lr.setter
    def lr(self, value: float) -> None:
        self._rule().lr = value

    @property
    def loss_scale(self) -> float | None:
        """What the loss is multiplied by with `mixed="float16"`; None for other programs.

        It begins at 65536, is halved by a step whose gradients overflow, and doubles after 2000
        steps without one.

        Example:
            >>> step = graphc.compile(
            ...     lambda m: graphc.sum(m.weight**2),
            ...     nn.Linear(2, 1),
            ...     update=optim.SGD(lr=0.1),
            ...     mixed="float16",
            ... )
            >>> step.loss_scale, step.skipped_steps
            (65536.0, 0)
        """
        held = {} if self._clock is None else self._clock.shared
        return float(held[SCALE].numpy()) if SCALE in held else None

    @property
    def skipped_steps(self) -> int:
        """The number of steps that were skipped, since their gradients overflowed."""
        held = {} if self._clock is None else self._clock.shared
        return int(held[SKIPPED].numpy()) if SKIPPED in held else 0

    @property
    def clock(self) -> Any:
        """The counters of steps and rates that a model's programs share; None without `update`."""
        return self._clock

    def _rule(self) -> Any:
        if self.update is None:
            raise GraphError(f"{self.name} has no learning rate: it was compiled without update=")
        return self.update

    def profile_at_exit(self) -> None:
        """Print a profile when the process ends, measured with the arrays of the first call."""
        run = self._run

        def first(arrays: Sequence[Array]) -> list[Array]:
            import atexit

            kept = [np.array(array) if isinstance(array, np.ndarray) else array for array in arrays]
            atexit.register(lambda: print(self._profiled(kept), file=sys.stderr))
            self._run = run
            return run(arrays)

        self._run = first

    @property
    def executable(self) -> Executable:
        """The plan as it is loaded on the device."""
        return self._executable

    def __repr__(self) -> str:
        count = sum(n.op.name != "reshape" for n in self.graph.nodes)
        return f"Program({self.name}, {self.target.device}, {count} kernels)"
