"""The state of an optimizer: learning rates, counters and moments, saved and loaded.

State belongs to a pair of model and rule: programs that update the same parameters by the same rule
continue each other's steps, and another model starts at step 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.errors import GraphError
from graphc.base.source_lines import error, user_line
from graphc.ir import Array, Names, Type
from graphc.ir.state import StateBuffer, overwrite, snapshot
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.nn.state_arrays import as_array, can_assign, mapping_of, type_text
from graphc.optim.clock import Clock
from graphc.optim.counts import Counts
from graphc.optim.groups import Group, Rate, group_of, make_groups
from graphc.optim.loss_scale import SCALE
from graphc.optim.slices import Slices, check_alike, first_moment
from graphc.trace import Builder, Tensor

Groups = Sequence[Mapping[str, Any]]
Gradient = tuple[Parameter, Tensor, str]
"""A parameter, its gradient and its name, such as `conv1.weight`."""


class Stateful:
    """The part of a rule that lives on between steps."""

    _given: dict[str, Any]
    """The arguments that the rule was made with, by name."""

    def __init__(
        self,
        lr: Rate,
        weight_decay: float,
        clip_grad_norm: float | None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        self.maximize = bool(maximize)
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
        self._restored: set[str] = set()
        """The parameters whose moments were loaded before a program had them."""
        self._counts = Counts()
        self.lr = lr

    @property
    def groups(self) -> tuple[Group[Any], ...]:
        """The parameter groups, each with an `lr` that can be set between steps."""
        return self._groups

    @property
    def moments(self) -> tuple[str, ...]:
        """The names of the moments; each has the shape and dtype of its parameter."""
        return ()

    def counts_steps(self) -> bool:
        """Return whether an update depends on how many steps its parameter has made."""
        return True

    def initial(self, moment: str) -> float:
        """Return the initial value of a moment's elements."""
        return 0.0

    @property
    def lr(self) -> Rate:
        """The learning rate or schedule; setting it takes effect at the next step.

        Raises:
            GraphError: The number is negative or not finite.
        """
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
        """The learning rate of the next step: `lr`, or what the schedule returns."""
        return self.rate_at(self.step)

    @property
    def step(self) -> int:
        """The number of finished steps; of several models, that of the furthest."""
        return max((clock.finished for clock in self._clocks), default=0)

    def clock(self, state: Iterable[StateBuffer]) -> Clock:
        """Return the clock among a training program's state."""
        bound = set(state)
        return next(clock for clock in self._clocks if clock.step in bound)

    def before_step(self, clock: Clock) -> None:
        """Set the learning rate of the next step; a program calls it before each step."""
        if clock.rate.array.item() == self._only_rate:
            return
        scheduled = callable(self._lr) or any(callable(group.lr) for group in self._groups)
        finished = clock.count() if scheduled else 0
        self._set_rate(clock.rate, self.rate_at(finished))
        for group, buffer in zip(self._groups, clock.rates, strict=True):
            self._set_rate(buffer, group.rate_at(finished))

    def state_dict(self) -> dict[str, Array]:
        """Return copies of the state, as of the last finished step.

        The names are `lr` f64[], `groups.N.lr` f64[], `step` i32[] (`step.1` for a second model),
        `random.step` and `random.key` i32[] if random ops count their calls, `loss_scale` f32[],
        `loss_scale.steps` and `loss_scale.skipped` i32[] with `mixed="float16"`, and
        `moment.parameter` for the moments, with `ema` for averages. Moments exist from the first
        compile on.
        """
        named = snapshot(dict(self._named()))
        finished = max(int(named[f"step{self._suffix(clock)}"]) for clock in self._clocks)
        return {
            "lr": np.array(self.rate_at(finished), np.float64),
            **{self._rate_name(g): np.array(g.rate_at(finished)) for g in self._groups},
            **named,
            **{name: array.copy() for name, array in self._loaded.items()},
        }

    def state_types(self) -> dict[str, Type]:
        """Return the types of the state that programs have, by its names in `state_dict`."""
        return {name: buffer.whole_type for name, buffer in self._named()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; if anything does not fit, nothing is changed.

        A schedule stays.

        Raises:
            GraphError: A name is missing or unexpected, or a shape or dtype does not fit; the
                message lists all.
        """
        state = mapping_of("load_state_dict", state)
        arrays = {name: as_array(name, value) for name, value in state.items()}
        own = {"lr": self._clocks[0].rate, **dict(self._named())}
        own |= {self._rate_name(group): self._clocks[0].rate for group in self._groups}
        prefixes = ("step.", "steps.", "random.", SCALE, *self._prefixes())
        counted = self._complete_steps(arrays)
        problems = [
            f"missing {name} : {b.whole_type}" for name, b in own.items() if name not in arrays
        ]
        for name, array in arrays.items():
            if name not in own and not name.startswith(prefixes):
                problems.append(f"unexpected {name}")
            elif name in own and not can_assign(array, kind := own[name].whole_type):
                problems.append(f"{name}: expected {kind}, got {type_text(array)}")
        problems = problems or self._problems_of(arrays)
        if problems:
            raise GraphError("\n  ".join([f"load_state_dict: {type(self).__name__}", *problems]))
        for name in counted - own.keys():
            arrays.pop(name, None)
        for group in self._groups:
            del own[self._rate_name(group)]
            group.restore(float(arrays.pop(self._rate_name(group))), float(arrays["lr"]))
        rates, contents = self._rates_after(arrays), dict(arrays)
        for clock, rate in rates.items():
            name = f"lr{self._suffix(clock)}"
            own[name], contents[name] = clock.rate, np.array(rate)
        overwrite(own, contents)
        self._loaded = {name: a.copy() for name, a in arrays.items() if name not in own}
        self._restored = {name.partition(".")[2] for name in self._loaded}
        for clock in self._clocks:
            clock.loaded = clock.finished
        if not callable(self._lr):
            self.lr = rates[self._clocks[0]]

    def averaged(self, model: Module) -> Module:
        """Return a copy of `model` with running averages, which follows every step.

        Raises:
            GraphError: The rule has no `ema`, or updates no parameter of the model yet.
        """
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
        """Return `value` as a float in [0, below), or raise GraphError."""
        is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < below:
            raise GraphError(
                f"{type(self).__name__}: {name} expected a number in [0, {below:g}), "
                f"got {value!r} ({', '.join(user_line())})"
            )
        return float(value)

    def rate_at(self, step: int) -> float:
        """Return the learning rate after `step` finished steps."""
        return self.number("lr", self._lr(step)) if callable(self._lr) else self._lr

    def _rates_after(self, arrays: Mapping[str, Array]) -> dict[Clock, float]:
        """The rate of each clock's next step after `arrays` are loaded."""
        if not callable(self._lr):
            return dict.fromkeys(self._clocks, self.number("lr", float(arrays["lr"])))
        steps = {clock: int(arrays[f"step{self._suffix(clock)}"]) for clock in self._clocks}
        return {clock: self.rate_at(step) for clock, step in steps.items()}

    def _complete_steps(self, arrays: dict[str, Array]) -> set[str]:
        """Return the names `steps.parameter` of counted parameters; add missing ones."""
        names = set()
        for state in (state for members in self._counts.together() for state in members):
            name, clock = f"steps.{self._names[state]}", self._clock_of[state]
            names.add(name)
            model = f"step{self._suffix(clock)}"
            if name not in arrays and model in arrays:
                arrays[name] = arrays[model]
        return names

    def _problems_of(self, arrays: Mapping[str, Array]) -> list[str]:
        """What `load_state_dict` says of parameters that count together and should not."""
        problems = []
        for members in self._counts.together():
            names = [f"steps.{self._names[state]}" for state in members]
            own = [c for c in self._clocks if c.step is self._counts[members[0]]]
            names += [f"step{self._suffix(clock)}" for clock in own]
            numbers = [int(arrays[name]) for name in names if name in arrays]
            if len(set(numbers)) > 1:
                problems.append(
                    f"{names[0]}: {numbers[0]} steps, others that programs count with it have "
                    f"{next(n for n in numbers if n != numbers[0])}: load before compiling"
                )
        return problems

    def _set_rate(self, buffer: StateBuffer, rate: float) -> None:
        if buffer.array.item() != np.float32(rate):
            buffer.assign(rate, "lr")

    def _group_of(self, parameter: Parameter, name: str) -> Group[Any] | None:
        return group_of(self._groups, parameter, name) if self._groups else None

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
            clock.loaded = clock.finished
            self._clocks.append(clock)
            self.before_step(clock)
        else:
            clock = self._clocks[0]
        for state in states:
            self._clock_of.setdefault(state, clock)
        return clock

    def _counters(self, gradients: Sequence[Gradient], clock: Clock) -> list[StateBuffer]:
        """The counter of each parameter's steps, in a program of that clock."""
        states = [parameter.state for parameter, _, _ in gradients]
        members = [group.member for group in self._groups] or [self]
        if self.ema is None and not any(member.counts_steps() for member in members):
            return [clock.step] * len(states)

        def loaded(state: StateBuffer) -> int | None:
            path = f"steps.{self._names[state]}"
            if path not in self._loaded:
                return None
            return int(self._buffer(path, StateBuffer(0, np.int32)).numpy())

        def late(state: StateBuffer) -> int:
            return clock.loaded if self._names[state] in self._restored else 0

        self._counts.begin(states, clock.step, loaded, late)
        return [self._counts[state] for state in states]

    def _counter_name(self, counter: StateBuffer) -> str:
        """`step` for that of a model, else `steps.` and the first parameter that it counts for."""
        if any(counter is clock.step for clock in self._clocks):
            return "step"
        return f"steps.{self._names[self._counts.members(counter)[0]]}"

    def is_stale(self, state: Iterable[StateBuffer], version: int) -> bool:
        """Return whether a later program split the step counters of this one.

        `version` is the value of `splits` when the program was compiled.
        """
        return self._counts.are_stale(state, version)

    @property
    def splits(self) -> int:
        """The number of times that parameters with a common step counter were split."""
        return self._counts.version

    def _share(self, builder: Builder, clock: Clock) -> None:
        """Let the program draw random numbers and scale losses as the model's other programs do."""
        clock.share(builder, lambda name, b: self._buffer(f"{name}{self._suffix(clock)}", b))

    def _rate_name(self, group: Group[Any]) -> str:
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

    def _remember(self, gradients: Sequence[Gradient], slices: Slices | None) -> None:
        """Make the moments of parameters that have none, from what was loaded if anything was."""
        check_alike([self._moments.get(p.state, {}) for p, _, _ in gradients], slices)
        names = Names(self._names.values())  # models with equal names may share a rule
        new: dict[str, Parameter] = {}
        rules: dict[str, Stateful] = {}
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
                moment: self._buffer(
                    f"{moment}.{name}",
                    first_moment(moment, parameter, rules[name].initial(moment), slices),
                )
                for moment in kept[name]
            }

    def _named(self) -> Iterator[tuple[str, StateBuffer]]:
        """All state but the rates, by name."""
        for clock in self._clocks:
            yield f"step{self._suffix(clock)}", clock.step
            for name, buffer in sorted(clock.shared.items()):
                yield f"{name}{self._suffix(clock)}", buffer
        models = [clock.step for clock in self._clocks]
        for members in self._counts.together():
            if self._counts[members[0]] not in models:
                for parameter in members:
                    yield f"steps.{self._names[parameter]}", self._counts[parameter]
        for parameter, moments in self._moments.items():
            for moment, buffer in moments.items():
                yield f"{moment}.{self._names[parameter]}", buffer
