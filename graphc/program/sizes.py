"""Programs of any size: one object, a plan for each size of the named axes.

A plan is made when a size is first met, by compiling the function for it. The plans share state,
kernels and the cache. With buckets, a size between two of them is padded up where that changes no
bit (graphc/program/rows.py); else it has a plan of its own too.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from graphc.base import html
from graphc.base.errors import GraphError
from graphc.base.locks import PLANS, free_after_fork
from graphc.base.source_lines import error
from graphc.ir import Array, NamedType, Names, Type, tree
from graphc.ir.state import StateBuffer
from graphc.nn.parameter import changes
from graphc.ops.constant import PLACED
from graphc.program.buckets import Buckets, Route, kind_of, sizes_text
from graphc.program.options import Options
from graphc.program.pending import Pending
from graphc.program.program import Program
from graphc.program.rows import mixing
from graphc.program.tracing import (
    Common,
    Traced,
    called_with,
    function_name,
    holders_of,
    state_of,
    trace_function,
)
from graphc.trace.sized_arguments import SizedArguments, Sizes

if TYPE_CHECKING:  # nothing of it is needed before something is looked at
    from graphc.inspect.explanation import Explanation
    from graphc.inspect.profile import Profile

MOST_PLANS = 64
"""Plans that a program of any size keeps, if not told otherwise."""

_making = free_after_fork(threading.RLock(), PLANS)
"""Held while a plan is made: two of them may belong to one update rule. A fork waits for it."""


class SizedProgram(Program):
    """A program for every size of its named axes; `graphc.compile` makes it of specs with names.

    It is called like a `Program`. What belongs to one plan, such as `graph` or `kernels`, has the
    `Program` of one size, which `at` returns.

    Attributes:
        most_plans: How many plans are kept, 64 by default. Beyond, the one that was used the
            longest ago is dropped; it is made again when its size is met again. State stays.
        taps: The values of `graphc.tap` in the last call, by name.

    Example:
        >>> f = graphc.compile(lambda x: 2 * x, graphc.spec(("batch",)))
        >>> f(np.array([1, 2], np.float32)), f(np.array([3], np.float32))
        (array([2., 4.], dtype=float32), array([6.], dtype=float32))
        >>> f.sizes
        [{'batch': 2}, {'batch': 1}]
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        buckets: Mapping[str, Buckets],
        options: Options,
        make: Callable[[Callable[..., Any], Sequence[Any], Options, Common], Program],
    ) -> None:
        self.name, self.update, self.target = function_name(fn), options.update, options.target
        self.most_plans = MOST_PLANS
        self.taps: dict[str, Array] = {}
        self._fn, self._args, self._options, self._make = fn, args, options, make
        expected = called_with(fn, args, kind_of)
        largest = {name: own.sizes[-1] for name, own in buckets.items()}
        self._sized = SizedArguments(self.name, expected, largest)
        for name in buckets:
            if name not in self._sized.names:
                raise error(f"sizes: expected names of axes in the specs, got {name!r}")
        self._buckets = buckets
        first = {n: at for at, (n, _) in enumerate(expected)}
        self._flat = all(isinstance(kind, Type | NamedType) for _, kind in expected)
        places = {
            axis_name: (first.get(name, 0), axis)
            for name, kind in reversed(self._sized.inputs)
            if isinstance(kind, NamedType)
            for axis, axis_name in kind.names
        }
        self._places = [places[name] for name in self._sized.names]
        """(argument, axis) where the size of each named axis is read, if arguments are flat."""
        # What a later plan must find as it was. Modules' modes are remembered instead.
        self._holders, self._changes = holders_of(fn, args), changes.count
        parameters = dict(state_of(self._holders))
        self._trainable = [(name, p, p.trainable) for name, p in parameters.items()]
        self._held = {name: p.state for name, p in parameters.items()}
        self._common = Common.of(self._holders, options.seed)
        self._clock: Any = None
        self._state: dict[str, StateBuffer] = {}
        self._plans: dict[Sizes, Program] = {}
        self._routes: dict[Sizes, Route] = {}
        self._used: dict[Sizes, int] = {}
        """When each plan was last used."""
        self._ticks = itertools.count()

    @property
    def sizes(self) -> list[dict[str, int]]:
        """The sizes that have a plan, the one used last at the end."""
        used = self._used
        return [self._named(s) for s in sorted(self._plans, key=lambda s: used.get(s, 0))]

    @property
    def ready(self) -> bool:
        """Whether all kernels of the plans so far are compiled."""
        return all(made.ready for made in tuple(self._plans.values()))

    def wait(self) -> None:
        """Wait until all kernels of the plans so far are compiled.

        Raises:
            CompileError: A kernel does not compile; it stays prebuilt.
        """
        for made in tuple(self._plans.values()):
            made.wait()

    def at(self, **sizes: int) -> Program:
        """Return the program of one size, which takes arrays of that size alone.

        It shares all state with this one. Its plan is made if there is none.

        Args:
            **sizes: The size of each named axis.

        Raises:
            GraphError: A name is missing or unknown, or a size is not positive.

        Example:
            >>> f = graphc.compile(lambda x: 2 * x, graphc.spec(("batch",)))
            >>> f.at(batch=4).graph.inputs[0].type.shape
            (4,)
        """
        names = self._sized.names
        fits = sizes.keys() == set(names)
        if not fits or not all(isinstance(n, int | np.integer) and n > 0 for n in sizes.values()):
            wanted, got = ", ".join(f"{n}=" for n in names), sizes_text(sizes)
            raise error(f"{self.name}.at: expected positive {wanted}, got {got or 'nothing'}")
        return self._exact(tuple(int(sizes[name]) for name in names)).program

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the function's results as new NumPy arrays, in the structure that it returned.

        Arrays are given in the order of the function's arguments or by their names. The first call
        with a size makes its plan, which may take seconds.

        Raises:
            GraphError: An array's rank, dtype or a size does not fit, two arrays differ in an axis
                of one name, or a size is 0 or larger than the largest bucket. As after any error
                before the first kernel, the state is unchanged.
        """
        route = None if named else self._known(args)
        arrays: Sequence[Any] = args
        if route is None:
            sizes, arrays = self._sized.resolve(args, named)
            if not all(isinstance(array, np.ndarray) for array in arrays):
                # On a device nothing is padded, and the program itself looks at its arrays.
                program = self._unpadded(sizes)
                results = program(*args, **named)
                self.taps = program.taps
                return results
            route = self._route(sizes)
        self._used[route.sizes] = next(self._ticks)
        results = route.call(arrays)
        self.taps = route.program.taps
        return results

    def submit(self, *args: Any, **named: Any) -> Pending:
        """Begin a call, as a program of just these sizes does."""
        sizes, _ = self._sized.resolve(args, named)
        return self._unpadded(sizes).submit(*args, **named)

    def _unpadded(self, sizes: Sizes) -> Program:
        """The program of just these sizes, about to be used."""
        route = self._exact(sizes)
        self._used[route.sizes] = next(self._ticks)
        return route.program

    def _known(self, args: Sequence[Any]) -> Route | None:
        """The route of arrays that fit as they are; None if they have to be looked at closer."""
        if not self._flat:
            return None
        try:
            sizes = tuple([args[place].shape[axis] for place, axis in self._places])
        except (AttributeError, IndexError, TypeError):
            return None
        route = self._routes.get(sizes)
        return route if route is not None and route.takes(args) else None

    def _route(self, sizes: Sizes) -> Route:
        """How a call of these sizes is computed."""
        found = self._routes.get(sizes)
        if found is None:
            with _making:
                found = self._routes.get(sizes) or self._padded(sizes)
        return found

    def _exact(self, sizes: Sizes, reason: str = "") -> Route:
        """The route of a plan of just these sizes."""
        with _making:
            route = self._routes.get(sizes)
            if route is None or route.sizes != sizes:
                route = self._routes[sizes] = Route(self._plan(sizes), sizes, reason)
            return route

    def _padded(self, sizes: Sizes) -> Route:
        """The route to the next buckets along the axes where that is exact, else to a plan."""
        traced: dict[Sizes, Traced] = {}
        whole, reasons = sizes, []
        for number, name in enumerate(self._sized.names):
            size = sizes[number]
            bucket = self._buckets[name].fit(size) if name in self._buckets else size
            if bucket == size:
                continue
            wider = (*whole[:number], bucket, *whole[number + 1 :])
            reason = self._mixing(whole, wider, number, traced)
            if reason:
                reasons.append(f"not padded to {name}={bucket}: {reason}")
            else:
                whole = wider
        if whole == sizes:
            return self._exact(sizes, "; ".join(reasons))
        shapes = [t.shape for _, t in tree.leaves(traced[sizes].outputs)]
        reasons.append(f"padded to {sizes_text(self._named(whole))}")
        cuts = tuple(tuple(map(slice, shape)) for shape in shapes)
        route = Route(self._exact(whole).program, whole, "; ".join(reasons), cuts)
        self._routes[sizes] = route
        return route

    def _mixing(self, sizes: Sizes, wider: Sizes, number: int, traced: dict[Sizes, Traced]) -> str:
        """What keeps a call from being padded along one axis, or ""."""
        if self.update is not None:
            return "an update depends on all that a step is given"
        if sizes not in traced:
            traced[sizes] = self._traced(sizes)
        try:
            traced[wider] = self._traced(wider)
        except GraphError as problem:
            return f"for that size, {problem}"
        return mixing(traced[sizes], traced[wider], sizes[number], wider[number])

    def _traced(self, sizes: Sizes) -> Traced:
        args, how = self._with(self._named(sizes)), self._options
        return trace_function(self._fn, args, how.training, 0, False, self._common, how.mixed)

    def _plan(self, sizes: Sizes) -> Program:
        """The program of these sizes, made if there is none."""
        found = self._plans.get(sizes)
        if found is not None:
            return found
        self._check_trainable()
        self._check_structure()
        named = self._named(sizes)
        try:
            made = self._make(self._fn, self._with(named), self._options, self._common)
        except GraphError as problem:
            problem.add_note(f"for {sizes_text(named)}")
            raise
        self._remember(made)
        while len(self._plans) >= max(self.most_plans, 1):
            self._drop(min(self._plans, key=lambda s: self._used.get(s, 0)))
        self._plans[sizes], self._used[sizes] = made, next(self._ticks)
        return made

    def _drop(self, sizes: Sizes) -> None:
        """Forget a plan and what leads to it."""
        del self._plans[sizes]
        self._used.pop(sizes, None)
        self._routes = {met: r for met, r in self._routes.items() if r.sizes != sizes}

    def _remember(self, made: Program) -> None:
        """Add the state of a new plan to what `state_dict` returns."""
        known, names = set(map(id, self._state.values())), Names(self._state)
        kept = {n: b for n, b in made._state.items() if not n.startswith(PLACED)}
        new = {names.fresh(n): b for n, b in kept.items() if id(b) not in known}
        self._state = {**self._state, **new}
        if self.update is not None:
            self._clock = self.update.clock(self._state.values())

    def _named(self, sizes: Sizes) -> dict[str, int]:
        return dict(zip(self._sized.names, sizes, strict=True))

    def _with(self, sizes: Mapping[str, int]) -> list[Any]:
        """The arguments of `compile` for these sizes."""

        def leaf(_: str, value: Any) -> Any:
            return value.at(sizes) if isinstance(value, NamedType) else value

        return [tree.map_leaves(leaf, arg) for arg in self._args]

    # State, which all plans share.

    def _buffers_for(self, what: str) -> dict[str, StateBuffer]:
        if not self._used:
            raise GraphError(
                f"{self.name}: {what} needs a plan, which says what state there is; "
                f"{self._example()} makes one"
            )
        return super()._buffers_for(what)

    # What belongs to one plan.

    def explain(self, what: Any) -> Explanation:
        """Explain which plan computes each size of a named axis that was met, and why.

        Args:
            what: The name of an axis. What else there is to explain belongs to the program of one
                size, which `at` returns.

        Raises:
            GraphError: No axis has this name.
        """
        from graphc.inspect.explanation import Explanation, Reason

        if what not in self._sized.names:
            raise self._of_one_size(f"explain({what!r})")
        routes = [(sizes_text(self._named(s)), route) for s, route in self._routes.items()]
        reasons = [Reason("what", r.reason or "a plan of its own", met) for met, r in routes]
        return Explanation(f"sizes of {what} in {self.name}", (), tuple(reasons))

    def profile(self, *args: Any, repeats: int = 20, **named: Any) -> Profile:
        sizes, arrays = self._sized.resolve(args, named)
        return self._route(sizes).profiled(arrays, repeats)

    def _reported(self, args: Sequence[Any], named: Mapping[str, Any], measure: bool) -> Any:
        if not args and not named:
            raise self._of_one_size("report(path)")
        sizes, arrays = self._sized.resolve(args, named)
        return self._route(sizes).reported(arrays, measure)

    @property
    def stages(self) -> NoReturn:
        raise self._of_one_size("stages")

    @property
    def graph(self) -> NoReturn:
        raise self._of_one_size("graph")

    @property
    def kernels(self) -> NoReturn:
        raise self._of_one_size("kernels")

    def memory(self) -> NoReturn:
        raise self._of_one_size("memory()")

    def save(self, path: str | Path, binaries: bool = False) -> NoReturn:
        raise self._of_one_size("save(path)")

    def dump(self, folder: str | Path) -> NoReturn:
        raise self._of_one_size("dump(folder)")

    def profile_random_inputs(self, repeats: int = 20) -> NoReturn:
        raise self._of_one_size("profile_random_inputs()")

    def profile_at_exit(self) -> NoReturn:
        raise self._of_one_size("profile_at_exit()")

    def __getattr__(self, name: str) -> Any:
        if name in ("plan", "closures"):
            raise self._of_one_size(name)
        raise AttributeError(f"{type(self).__name__} has no {name!r}", name=name, obj=self)

    def _of_one_size(self, what: str) -> GraphError:
        met = "; ".join(map(sizes_text, self.sizes)) or "none yet"
        return error(
            f"{self.name}: {what} belongs to the program of one size, such as "
            f"{self._example()}.{what} (sizes so far: {met})"
        )

    def _example(self) -> str:
        last = self.sizes[-1:] or [dict.fromkeys(self._sized.names, 8)]
        return f"{self.name}.at({sizes_text(last[0])})"

    def _repr_html_(self) -> str:
        return html.details(repr(self), "\n".join(map(sizes_text, self.sizes)), opened=True)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {kind}" for name, kind in self._sized.inputs)
        plans = f"{len(self._plans)} plan{'s' * (len(self._plans) != 1)}"
        return f"SizedProgram({self.name}, {self.target.device}, {inputs}, {plans})"
