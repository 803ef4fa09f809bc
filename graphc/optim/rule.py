"""What all update rules share: the rate, the step counter, the moments, gradient clipping.

A rule writes its arithmetic into the training program's graph, so a step needs nothing from the
host. What it remembers belongs to (model, rule): programs that update the same parameters by the
same rule go on where the others stopped; another model given the rule begins at step 0.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc import functions
from graphc.dtypes import convert
from graphc.errors import GraphError
from graphc.ir import NARROW, Type, Where
from graphc.nn.module import Module, as_array, describe, fits, mapping_of
from graphc.nn.parameter import Parameter
from graphc.state import StateBuffer, overwrite, snapshot
from graphc.trace import Builder, Tensor, user_line

Array = np.ndarray[Any, np.dtype[Any]]
Rate = float | Callable[[int], float]
Gradient = tuple[Parameter, Tensor, str]
"""A parameter, its gradient and its name, such as `conv1.weight`."""


class Clock:
    """How far one model is: its finished steps and the rate of the step that comes."""

    def __init__(self) -> None:
        self.rate = StateBuffer(0.0, np.float32)
        self.step = StateBuffer(0, np.int32)
        self.random: StateBuffer | None = None
        """Counts the random ops' calls; there once a program has random ops."""

    @property
    def finished(self) -> int:
        """The number of finished steps."""
        return int(self.step.numpy())


class Rule:
    """Base of all update rules: a subclass says which moments it keeps, and its arithmetic.

    `lr` is a number, or a schedule: a function of the number of finished steps. `clip_grad_norm`
    scales all gradients alike where their norm, taken as one vector, is larger.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", _refuse_parameters(vars(cls)["__init__"]))  # noqa: B010

    def __init__(self, lr: Rate, weight_decay: float, clip_grad_norm: float | None) -> None:
        self.weight_decay = self.number("weight_decay", weight_decay)
        self.clip_grad_norm = clip_grad_norm
        if clip_grad_norm is not None:
            self.clip_grad_norm = self.number("clip_grad_norm", clip_grad_norm)
        self._clocks = [Clock()]
        """One for each model, in the order of their first compile; the first waits for one."""
        self._clock_of: dict[StateBuffer, Clock] = {}
        self._moments: dict[StateBuffer, dict[str, StateBuffer]] = {}
        self._names: dict[StateBuffer, str] = {}
        self._loaded: dict[str, Array] = {}
        self.lr = lr

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of what is kept for each parameter, in the parameter's shape and dtype."""
        return ()

    def initial(self, moment: str) -> float:
        """What the elements of a moment are at first."""
        return 0.0

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        """Traced scalars that all parameters share; `rate` f32[], `step` f32[] from 1 up."""
        return (rate,)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """The new weight and the new moments, traced; pointwise ops only."""
        raise GraphError(f"{type(self).__name__} has no apply method ({', '.join(user_line())})")

    @property
    def lr(self) -> Rate:
        """The rate or the schedule. Setting it takes effect at the next step; nothing is compiled
        anew. GraphError for a number that is negative or not finite."""
        return self._lr

    @lr.setter
    def lr(self, value: Rate) -> None:
        first = self.number("lr", value(self.step) if callable(value) else value)
        self._lr = value if callable(value) else first
        for clock in self._clocks:
            clock.rate.assign(first, "lr")

    @property
    def rate(self) -> float:
        """The rate of the step that comes: `lr`, or what the schedule says."""
        return self.rate_at(self.step)

    @property
    def step(self) -> int:
        """The number of finished steps, that of the furthest model where there are several."""
        return max(clock.finished for clock in self._clocks)

    def clock(self, state: Iterable[StateBuffer]) -> Clock:
        """The clock among a training program's state."""
        bound = set(state)
        return next(clock for clock in self._clocks if clock.step in bound)

    def before_step(self, clock: Clock) -> None:
        """Let the rate be that of the step that comes. A program calls it before each step."""
        rate = self.rate_at(clock.finished) if callable(self._lr) else self._lr
        if clock.rate.array != np.float32(rate):
            clock.rate.assign(rate, "lr")

    def emit(self, builder: Builder, gradients: Sequence[Gradient]) -> None:
        """Append the update of every parameter, of the moments and of the step counter to the
        graph under construction."""
        clock = self._clock_for(gradients)
        self._share_random(builder, clock)
        with builder.at(Where(derived=True)):
            rate = builder.read_state(clock.rate, "lr")
            step = builder.read_state(clock.step, "step")
            following = step + 1
            builder.update(step, following)
            shared = self.scalars(rate, functions.astype(following, "float32"))
            scale = self._scale([gradient for _, gradient, _ in gradients])
        self._remember(gradients)
        for parameter, gradient, name in gradients:
            with builder.at(Where(name.rpartition(".")[0], (), derived=True)):
                buffers = self._moments[parameter.state]
                old = [builder.read_state(parameter.state, name)]
                old += [builder.read_state(b, f"{m}.{name}") for m, b in buffers.items()]
                weight, *moments = map(_wide, old)
                wide = _wide(gradient)
                scaled = wide if scale is None else wide * _cast(scale, wide)
                scalars = tuple(_cast(s, weight) for s in shared)
                new = self.apply(weight, scaled, tuple(moments), scalars)
                for state, tensor in zip(old, new, strict=True):
                    builder.update(state, _cast(tensor, state))

    def state_dict(self) -> dict[str, Array]:
        """`lr` f64[], `step` i32[], `random.step` i32[] where random ops count their calls, and the
        moments by `moment.parameter`, as copies as of the last finished step. Moments exist from
        the first compile on. The second model's step is `step.1`, and so on."""
        named = snapshot(dict(self._named()))
        finished = max(int(named[f"step{self._suffix(clock)}"]) for clock in self._clocks)
        return {
            "lr": np.array(self.rate_at(finished), np.float64),
            **named,
            **{name: array.copy() for name, array in self._loaded.items()},
        }

    def state_types(self) -> dict[str, Type]:
        """The types of the state that programs know, by its name in `state_dict`."""
        return {name: buffer.type for name, buffer in self._named()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave, before or after compiling. A schedule stays.

        All or nothing: GraphError lists every name that is missing or unexpected and every shape
        and dtype that does not fit.
        """
        state = mapping_of("load_state_dict", state)
        arrays = {name: as_array(name, value) for name, value in state.items()}
        own = {"lr": self._clocks[0].rate, **dict(self._named())}
        prefixes = ("step.", "random.step", *self._prefixes())
        problems = [f"missing {name} : {b.type}" for name, b in own.items() if name not in arrays]
        for name, array in arrays.items():
            if name not in own and not name.startswith(prefixes):
                problems.append(f"unexpected {name}")
            elif name in own and not fits(array, own[name].type):
                problems.append(f"{name}: expected {own[name].type}, got {describe(array)}")
        if problems:
            raise GraphError("\n  ".join([f"load_state_dict: {type(self).__name__}", *problems]))
        rates, contents = self._rates_after(arrays), dict(arrays)
        for clock, rate in rates.items():
            name = f"lr{self._suffix(clock)}"
            own[name], contents[name] = clock.rate, np.array(rate)
        overwrite(own, contents)
        self._loaded = {name: a.copy() for name, a in arrays.items() if name not in own}
        if not callable(self._lr):
            self._lr = rates[self._clocks[0]]

    def number(self, name: str, value: Any, below: float = math.inf) -> float:
        """`value` as a float in [0, below), or GraphError."""
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < below:
            raise GraphError(
                f"{type(self).__name__}: {name} expected a number in [0, {below:g}), "
                f"got {value!r} ({', '.join(user_line())})"
            )
        return float(value)

    def rate_at(self, step: int) -> float:
        """The rate after `step` finished steps."""
        return self.number("lr", self._lr(step)) if callable(self._lr) else self._lr

    def _rates_after(self, arrays: Mapping[str, Array]) -> dict[Clock, float]:
        """The rate of each clock's next step after `arrays` are loaded."""
        if not callable(self._lr):
            return dict.fromkeys(self._clocks, self.number("lr", float(arrays["lr"])))
        steps = {clock: int(arrays[f"step{self._suffix(clock)}"]) for clock in self._clocks}
        return {clock: self.rate_at(step) for clock, step in steps.items()}

    def _clock_for(self, gradients: Sequence[Gradient]) -> Clock:
        """The clock of the parameters; where there are several, the one that went furthest."""
        states = [parameter.state for parameter, _, _ in gradients]
        known = [self._clock_of[state] for state in states if state in self._clock_of]
        if known:
            clock = max(known, key=lambda clock: clock.finished)
        elif self._clock_of:
            clock = Clock()
            clock.step = self._buffer(f"step.{len(self._clocks)}", np.zeros((), np.int32))
            self._clocks.append(clock)
            self.before_step(clock)
        else:
            clock = self._clocks[0]
        for state in states:
            self._clock_of.setdefault(state, clock)
        return clock

    def _share_random(self, builder: Builder, clock: Clock) -> None:
        """Let the program's random ops count their calls where the model's other programs do."""
        if "random.step" in builder.buffers:
            if clock.random is None:
                name = f"random.step{self._suffix(clock)}"
                clock.random = self._buffer(name, np.zeros((), np.int32))
            builder.rebind_state("random.step", clock.random)

    def _suffix(self, clock: Clock) -> str:
        number = self._clocks.index(clock)
        return f".{number}" if number else ""

    def _prefixes(self) -> tuple[str, ...]:
        return tuple(f"{moment}." for moment in self.moments)

    def _buffer(self, path: str, first: Array) -> StateBuffer:
        """A new buffer with what was loaded at `path`, else with `first`."""
        buffer = StateBuffer(first)
        if path in self._loaded:
            buffer.assign(self._loaded.pop(path), path)
        return buffer

    def _scale(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """The factor that brings the norm of all gradients down to `clip_grad_norm`."""
        if self.clip_grad_norm is None or not gradients:
            return None
        squares = [functions.sum(functions.square(_wide(gradient))) for gradient in gradients]
        total = functions.sqrt(sum(squares[1:], start=squares[0]))
        return functions.minimum(self.clip_grad_norm / (total + 1e-6), 1.0)

    def _remember(self, gradients: Sequence[Gradient]) -> None:
        """Make the moments of parameters that have none, from what was loaded if anything was."""
        new: dict[str, Parameter] = {}
        for parameter, _, name in gradients:
            if parameter.state not in self._moments:
                new[self._unique(name)] = parameter
        paths = [f"{moment}.{name}" for name in new for moment in self.moments]
        loaded = any(path.startswith(self._prefixes()) for path in self._loaded)
        missing = [path for path in paths if loaded and path not in self._loaded]
        if missing:
            raise GraphError(
                "\n  missing ".join([f"load_state_dict: {type(self).__name__}", *missing])
            )
        for name, parameter in new.items():
            self._names[parameter.state] = name
            self._moments[parameter.state] = {
                moment: self._first(moment, parameter, f"{moment}.{name}")
                for moment in self.moments
            }

    def _unique(self, name: str) -> str:
        """A name for a parameter: models whose parameters have equal names may share a rule."""
        taken = set(self._names.values())
        others = (f"{name}.{number}" for number in itertools.count(1))
        return next(n for n in itertools.chain([name], others) if n not in taken)

    def _first(self, moment: str, parameter: Parameter, path: str) -> StateBuffer:
        first = np.full(parameter.shape, self.initial(moment))
        return self._buffer(path, convert(first, parameter.type.numpy_dtype))

    def _named(self) -> Iterator[tuple[str, StateBuffer]]:
        """All state but the rates, by name."""
        for clock in self._clocks:
            yield f"step{self._suffix(clock)}", clock.step
            if clock.random is not None:
                yield f"random.step{self._suffix(clock)}", clock.random
        for parameter, moments in self._moments.items():
            for moment, buffer in moments.items():
                yield f"{moment}.{self._names[parameter]}", buffer


def _wide(tensor: Tensor) -> Tensor:
    """`tensor` as an update computes with it: one rounding per step, at the end."""
    return functions.astype(tensor, "f32") if tensor.dtype in NARROW else tensor


def _cast(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar if scalar.dtype == like.dtype else functions.astype(scalar, like.dtype)


def _refuse_parameters(initialize: Callable[..., None]) -> Callable[..., None]:
    """`initialize`, with an error where parameters come first, as in PyTorch. Only out here: in
    SGD(model.parameters(), lr=0.1) lr is given twice."""

    @functools.wraps(initialize)
    def checked(self: Rule, *args: Any, **kwargs: Any) -> None:
        if args and _holds_parameters(args[0]):
            raise GraphError(
                f"{type(self).__name__}: parameters are found by graphc.compile; give only lr and "
                f"the rule's other numbers ({', '.join(user_line())})"
            )
        initialize(self, *args, **kwargs)

    return checked


def _holds_parameters(value: Any) -> bool:
    """Whether `value` is what PyTorch's optimizers are given first: parameters, however held."""
    if isinstance(value, (Parameter, Module, Iterator)):
        return True
    if isinstance(value, Mapping):
        return "params" in value or any(_holds_parameters(item) for item in value.values())
    return isinstance(value, (list, tuple)) and any(_holds_parameters(item) for item in value)
