"""What all update rules share: the rate, the step counter, the moments, gradient clipping.

A rule writes its arithmetic into the training program's graph, so a step needs nothing from the
host. What it remembers belongs to (model, rule): programs that update the same parameters by the
same rule go on where the others stopped; another model given the rule begins at step 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc import functions
from graphc.dtypes import convert
from graphc.errors import GraphError
from graphc.ir import NARROW, Array, Names, Type, Where
from graphc.lines import error, user_line
from graphc.nn.module import Module, as_array, describe, fits, mapping_of
from graphc.nn.parameter import Parameter
from graphc.optim.clock import Clock
from graphc.optim.construction import checked
from graphc.optim.groups import Group, Rate, group_of, make_groups
from graphc.state import StateBuffer, overwrite, snapshot
from graphc.trace import Builder, Tensor

Groups = Sequence[Mapping[str, Any]]
Gradient = tuple[Parameter, Tensor, str]
"""A parameter, its gradient and its name, such as `conv1.weight`."""


class Rule:
    """Base of all update rules: a subclass says which moments it keeps, and its arithmetic.

    `lr` is a number, or a schedule: a function of the number of finished steps. `clip_grad_norm`
    scales all gradients alike where their norm, taken as one vector, is larger. `groups` is a list
    of dicts: the parameters that "params" stands for (a module, a list of modules or parameters,
    or a function that is true of their names) are updated with the dict's other items in place of
    the rule's arguments; as in PyTorch it may be the first argument. With `ema` the rule keeps a
    running average of each parameter: average = ema * average + (1 - ema) * w after each step, w
    itself after the first; `averaged` gives a model of them.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", checked(vars(cls)["__init__"]))  # noqa: B010

    _given: dict[str, Any]
    """The arguments that the rule was made with, by name."""

    def __init__(
        self,
        lr: Rate,
        weight_decay: float,
        clip_grad_norm: float | None,
        groups: Groups = (),
        ema: float | None = None,
    ) -> None:
        self.weight_decay = self.number("weight_decay", weight_decay)
        self.clip_grad_norm = clip_grad_norm
        if clip_grad_norm is not None:
            self.clip_grad_norm = self.number("clip_grad_norm", clip_grad_norm)
        if not hasattr(self, "_given"):
            self._given = {"lr": lr, "weight_decay": weight_decay, "clip_grad_norm": None}
        self._clocks: list[Clock] = []
        """One for each model, in the order of their first compile; the first waits for one."""
        self.ema = None if ema is None else self.number("ema", ema, below=1.0)
        self._groups = make_groups(self, groups, self._given)
        self._clocks.append(Clock(len(self._groups)))
        self._clock_of: dict[StateBuffer, Clock] = {}
        self._moments: dict[StateBuffer, dict[str, StateBuffer]] = {}
        self._names: dict[StateBuffer, str] = {}
        self._loaded: dict[str, Array] = {}
        self.lr = lr

    @property
    def groups(self) -> tuple[Group[Rule], ...]:
        """The groups, each with an `lr` that can be set between steps."""
        return self._groups

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
        single = not self._groups and not callable(value)
        self._only_rate = np.float32(first).item() if single else math.nan
        for clock in self._clocks:
            clock.rate.assign(first, "lr")

    @property
    def rate(self) -> float:
        """The rate of the step that comes: `lr`, or what the schedule says."""
        return self.rate_at(self.step)

    @property
    def step(self) -> int:
        """The number of finished steps, that of the furthest model where there are several."""
        return max((clock.finished for clock in self._clocks), default=0)

    def clock(self, state: Iterable[StateBuffer]) -> Clock:
        """The clock among a training program's state."""
        bound = set(state)
        return next(clock for clock in self._clocks if clock.step in bound)

    def before_step(self, clock: Clock) -> None:
        """Let the rate be that of the step that comes. A program calls it before each step."""
        if clock.rate.array.item() == self._only_rate:
            return
        scheduled = callable(self._lr) or any(callable(group.lr) for group in self._groups)
        finished = clock.finished if scheduled else 0
        self._set_rate(clock.rate, self.rate_at(finished))
        for group, buffer in zip(self._groups, clock.rates, strict=True):
            self._set_rate(buffer, group.rate_at(finished))

    def emit(self, builder: Builder, gradients: Sequence[Gradient]) -> None:
        """Append the update of every parameter, of the moments and of the step counter to the
        graph under construction."""
        clock, called = self._clock_for(gradients), type(self).__name__.lower()
        self._share_random(builder, clock)
        with builder.at(Where(derived=True, function=called)):
            step = builder.read_state(clock.step, "step")
            following = step + 1
            builder.update(step, following)
            number = functions.astype(following, "float32")
            shared = {
                group: self._scalars(builder, clock, group, number)
                for group in dict.fromkeys(self._group_of(p, name) for p, _, name in gradients)
            }
            scale = self._scale([gradient for _, gradient, _ in gradients])
        self._remember(gradients)
        for parameter, gradient, name in gradients:
            group = self._group_of(parameter, name)
            with builder.at(Where(name.rpartition(".")[0], (), True, called)):
                buffers = self._moments[parameter.state]
                old = [builder.read_state(parameter.state, name)]
                old += [builder.read_state(b, f"{m}.{name}") for m, b in buffers.items()]
                weight, *moments = map(_wide, old)
                wide = _wide(gradient)
                scaled = wide if scale is None else wide * _cast(scale, wide)
                scalars = tuple(_cast(s, weight) for s in shared[group])
                average = moments.pop() if self.ema is not None else None
                member = self if group is None else group.member
                new = member.apply(weight, scaled, tuple(moments), scalars)
                if average is not None:
                    new = *new, self._averaged(average, new[0], following)
                for state, tensor in zip(old, new, strict=True):
                    builder.update(state, _cast(tensor, state))

    def state_dict(self) -> dict[str, Array]:
        """`lr` f64[], `groups.N.lr` f64[] of each group, `step` i32[], `random.step` and
        `random.key` i32[] where random ops count their calls, and the moments, averages among them
        as `ema`, by `moment.parameter`: copies as of the last finished step. Moments exist from the
        first compile on. The second model's step is `step.1`, and so on."""
        named = snapshot(dict(self._named()))
        finished = max(int(named[f"step{self._suffix(clock)}"]) for clock in self._clocks)
        return {
            "lr": np.array(self.rate_at(finished), np.float64),
            **{self._rate_name(g): np.array(g.rate_at(finished)) for g in self._groups},
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
        own |= {self._rate_name(group): self._clocks[0].rate for group in self._groups}
        prefixes = ("step.", "random.", *self._prefixes())
        problems = [f"missing {name} : {b.type}" for name, b in own.items() if name not in arrays]
        for name, array in arrays.items():
            if name not in own and not name.startswith(prefixes):
                problems.append(f"unexpected {name}")
            elif name in own and not fits(array, own[name].type):
                problems.append(f"{name}: expected {own[name].type}, got {describe(array)}")
        if problems:
            raise GraphError("\n  ".join([f"load_state_dict: {type(self).__name__}", *problems]))
        for group in self._groups:
            del own[self._rate_name(group)]
            group.restore(float(arrays.pop(self._rate_name(group))), float(arrays["lr"]))
        rates, contents = self._rates_after(arrays), dict(arrays)
        for clock, rate in rates.items():
            name = f"lr{self._suffix(clock)}"
            own[name], contents[name] = clock.rate, np.array(rate)
        overwrite(own, contents)
        self._loaded = {name: a.copy() for name, a in arrays.items() if name not in own}
        if not callable(self._lr):
            self.lr = rates[self._clocks[0]]

    def averaged(self, model: Module) -> Module:
        """A copy of `model` whose parameters are the running averages of those that this rule
        updates; the others it shares with `model`. It follows every step, in programs that were
        compiled before too. GraphError without `ema`, or if the rule updates none of them yet."""
        if self.ema is None:
            raise error(f"{type(self).__name__}: averaged expected a rule with ema=, it has none")
        averages = {state: kept["ema"] for state, kept in self._moments.items()}
        states = [parameter.state for parameter in model.parameters()]
        if not any(state in averages for state in states):
            raise error(
                f"{type(self).__name__}: averaged expected a model that a program updates by this "
                f"rule, no program that was compiled updates this {type(model).__name__}"
            )
        copied = copy.deepcopy(model, {id(state): averages.get(state, state) for state in states})
        for parameter in copied.parameters():
            parameter.trainable = False
        return copied

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

    def _set_rate(self, buffer: StateBuffer, rate: float) -> None:
        if buffer.array.item() != np.float32(rate):
            buffer.assign(rate, "lr")

    def _group_of(self, parameter: Parameter, name: str) -> Group[Rule] | None:
        return group_of(self._groups, parameter, name) if self._groups else None

    def _scalars(
        self, builder: Builder, clock: Clock, group: Group[Rule] | None, step: Tensor
    ) -> tuple[Tensor, ...]:
        """What the parameters of a group share, from its rate; None is the rule without groups."""
        if group is None:
            return self.scalars(builder.read_state(clock.rate, "lr"), step)
        rate = builder.read_state(clock.rates[group.number], f"groups.{group.number}.lr")
        return group.member.scalars(rate, step)

    def _averaged(self, average: Tensor, weight: Tensor, step: Tensor) -> Tensor:
        """The running average after step number `step`, the first of which is 1."""
        assert self.ema is not None
        moved = average + (weight - average) * (1 - self.ema)
        return functions.where(functions.equal(step, 1), weight, moved)

    def _clock_for(self, gradients: Sequence[Gradient]) -> Clock:
        """The clock of the parameters; where there are several, the one that went furthest."""
        states = [parameter.state for parameter, _, _ in gradients]
        known = [self._clock_of[state] for state in states if state in self._clock_of]
        if known:
            clock = max(known, key=lambda clock: clock.finished)
        elif self._clock_of:
            clock = Clock(len(self._groups))
            clock.step = self._buffer(
                f"step.{len(self._clocks)}", StateBuffer.zeros(Type((), "i32"))
            )
            self._clocks.append(clock)
            self.before_step(clock)
        else:
            clock = self._clocks[0]
        for state in states:
            self._clock_of.setdefault(state, clock)
        return clock

    def _share_random(self, builder: Builder, clock: Clock) -> None:
        """Let the program's random ops count their calls where the model's other programs do."""
        for name in {"random.step", "random.key"} & builder.buffers.keys():
            if name not in clock.random:
                first = StateBuffer(builder.buffers[name].numpy())
                clock.random[name] = self._buffer(f"{name}{self._suffix(clock)}", first)
            builder.rebind_state(name, clock.random[name])

    def _rate_name(self, group: Group[Rule]) -> str:
        return f"groups.{group.number}.lr"

    def _suffix(self, clock: Clock) -> str:
        number = self._clocks.index(clock)
        return f".{number}" if number else ""

    def _prefixes(self) -> tuple[str, ...]:
        rules = [self, *(group.member for group in self._groups)]
        names = [*(m for rule in rules for m in rule.moments), *self._average_names()]
        return tuple(f"{name}." for name in dict.fromkeys(names))

    def _average_names(self) -> tuple[str, ...]:
        return () if self.ema is None else ("ema",)

    def _buffer(self, path: str, buffer: StateBuffer) -> StateBuffer:
        """A new buffer, with what was loaded at `path` if anything was."""
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
        names = Names(self._names.values())  # models with equal names may share a rule
        new: dict[str, Parameter] = {}
        rules: dict[str, Rule] = {}
        for parameter, _, name in gradients:
            if parameter.state not in self._moments:
                unique, group = names.fresh(name), self._group_of(parameter, name)
                new[unique] = parameter
                rules[unique] = self if group is None else group.member
        kept = {name: (*rules[name].moments, *self._average_names()) for name in new}
        paths = [f"{moment}.{name}" for name in new for moment in kept[name]]
        loaded = any(path.startswith(self._prefixes()) for path in self._loaded)
        missing = [path for path in paths if loaded and path not in self._loaded]
        if missing:
            raise GraphError(
                "\n  missing ".join([f"load_state_dict: {type(self).__name__}", *missing])
            )
        for name, parameter in new.items():
            self._names[parameter.state] = name
            self._moments[parameter.state] = {
                moment: self._first(rules[name], moment, parameter, f"{moment}.{name}")
                for moment in kept[name]
            }

    def _first(self, rule: Rule, moment: str, parameter: Parameter, path: str) -> StateBuffer:
        kind, initial = parameter.type, rule.initial(moment)
        if moment != "ema" and initial == 0:
            return self._buffer(path, StateBuffer.zeros(kind))
        first = parameter.numpy() if moment == "ema" else np.full(kind.shape, initial)
        return self._buffer(path, StateBuffer(convert(first, kind.numpy_dtype)))

    def _named(self) -> Iterator[tuple[str, StateBuffer]]:
        """All state but the rates, by name."""
        for clock in self._clocks:
            yield f"step{self._suffix(clock)}", clock.step
            for name, buffer in sorted(clock.random.items()):
                yield f"{name}{self._suffix(clock)}", buffer
        for parameter, moments in self._moments.items():
            for moment, buffer in moments.items():
                yield f"{moment}.{self._names[parameter]}", buffer


def _wide(tensor: Tensor) -> Tensor:
    """`tensor` as an update computes with it: one rounding per step, at the end."""
    return functions.astype(tensor, "f32") if tensor.dtype in NARROW else tensor


def _cast(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar if scalar.dtype == like.dtype else functions.astype(scalar, like.dtype)
