"""A program as a JSON document and arrays, and back to what it is made from.

The document holds the graph that the passes behind the gradient begin with, the structure of
arguments and results, the settings of `compile`, the learning rates, and of the program as it was
planned the plan, the certificate, and a digest per kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphc.base import config
from graphc.base.dtypes import Array
from graphc.base.errors import GraphError
from graphc.files.fields import Fields, list_of, pairs_of
from graphc.files.safetensors import FormatError
from graphc.ir import Graph
from graphc.ir.state import StateBuffer
from graphc.optim.clock import Clock
from graphc.optim.groups import Rate
from graphc.optim.loss_scale import SCALE
from graphc.optim.rates import LARGEST, RULE, SCHEDULE, rates_of
from graphc.optim.restored import RestoredRule
from graphc.program.debug_print import STATISTICS, Shown
from graphc.program.loading import target_for
from graphc.program.making import Recipe
from graphc.program.program import Program
from graphc.program.saved_graph import check_graph, read_graph
from graphc.program.saved_trees import read, written
from graphc.program.tracing import Traced
from graphc.program.update import Differentiated
from graphc.text import graph_text, large_constants
from graphc.trace import Builder, Tensor

STATE, CONSTANT = "state/", "constant/"
"""What the names of a file's arrays begin with."""


@dataclass(frozen=True)
class Settings:
    """The arguments of `compile` that a program was made with."""

    device: str
    streams: int
    """Of the plan."""
    precision: str
    tune: bool | str
    disable: list[str]
    memory: int | str | None
    denormals: str

    @classmethod
    def of(cls, program: Program) -> Settings:
        """Return the settings of a program."""
        config, precision = program.recipe.settings, program.recipe.precision
        memory: int | str | None = config.memory_limit
        memory = "lean" if config.memory_lean else "search" if config.memory_search else memory
        return cls(
            program.target.device if config.device is None else config.device,
            1 if program.plan is None else program.plan.streams,
            precision,
            "libraries" if config.libraries else config.tune,
            [*config.disable],
            memory,
            config.denormals,
        )

    @classmethod
    def read(cls, fields: Fields) -> Settings:
        """Return the settings in a document, or raise FormatError."""
        found = cls(
            fields.take("device", str),
            fields.take("streams", int),
            fields.take("precision", str),
            fields.take("tune", bool, str),
            fields.texts("disable"),
            fields.take("memory", int, str, type(None)),
            fields.take("denormals", str),
        )
        fields.end()
        return found


@dataclass(frozen=True)
class Parts:
    """What a program is made from again."""

    traced: Traced
    whole: Differentiated
    settings: Settings
    rule: RestoredRule | None

    def recipe(self, threads: int | None) -> tuple[str, Recipe]:
        """Return the device, and the recipe of the program with the saved settings."""
        wanted, whole = self.settings, self.whole
        settings = config.read(
            wanted.streams,
            threads,
            wanted.device,
            wanted.tune,
            wanted.disable,
            memory=wanted.memory,
        )
        device, target = target_for(settings, wanted.precision)
        return device, Recipe(self.traced, lambda: whole, settings, wanted.precision, target)


def document_of(program: Program) -> tuple[dict[str, Any], dict[str, StateBuffer], Graph]:
    """Return the document of a program, its state by name, and its graph.

    Raises:
        GraphError: It has parts that no file can hold.
    """
    whole, traced = program.recipe.source(), program.recipe.traced
    graph, buffers = whole.graph, {v.name: whole.buffers[v.name] for v in whole.graph.state}
    try:
        check_graph(graph)
    except FormatError as problem:
        raise GraphError(f"save: {program.name}: {problem}") from None
    shown = [_shown(each) for each in traced.builder.shown]
    arguments = [[name, written(types, f"the argument {name}")] for name, types in traced.arguments]
    document = {
        "name": program.name,
        "graph": graph_text(graph),
        "arguments": arguments,
        "outputs": written(traced.outputs, "the result"),
        "shown": shown,
        "settings": vars(Settings.of(program)),
        "update": None if program.update is None else _update(program, buffers),
    }
    return document, buffers, graph


def constants_of(graph: Graph) -> dict[str, Array]:
    """Return the arrays of a graph that its text does not hold, by their names in the file."""
    return {CONSTANT + digest: array for digest, array in large_constants(graph).items()}


def read_parts(
    document: Fields, arrays: Mapping[str, Array], lr: Rate | None, zeros: bool = False
) -> Parts:
    """Return the parts of a document, which it takes from it.

    Args:
        document: The document.
        arrays: The arrays of the file.
        lr: The learning rate or schedule in place of that of the file.
        zeros: Whether the state is zeros, whatever the arrays.

    Raises:
        FormatError: The document is damaged.
        GraphError: The graph is not valid, or `lr` is missing or not wanted.
    """
    constants = {
        name.removeprefix(CONSTANT): array
        for name, array in arrays.items()
        if name.startswith(CONSTANT)
    }
    name, text = document.take("name", str), document.take("graph", str)
    graph = read_graph(text, constants)
    buffers = {}
    for value in graph.state:
        if zeros:
            buffers[value.name] = StateBuffer.zeros(value.type)
            continue
        array = arrays.get(STATE + value.name)
        if array is None or (array.shape, array.dtype) != (
            value.type.shape,
            value.type.numpy_dtype,
        ):
            raise FormatError(f"no array for the state {value.name} : {value.type}")
        buffers[value.name] = StateBuffer(array)
    builder = Builder(name)
    inputs, outputs = (
        iter(v.type for v in graph.inputs),
        (Tensor(v, builder) for v in graph.outputs),
    )
    arguments = [
        (key, read(types, inputs))
        for key, types in pairs_of(document.take("arguments", list), "arguments")
    ]
    if not all(isinstance(key, str) for key, _ in arguments):
        raise FormatError("the name of an argument is no text")
    results = read(document.take("outputs", *_TREES), outputs)
    shown = list_of(document.take("shown", list), dict, "shown")
    for each in shown:
        builder.shown.append(_read_shown(Fields(each, "shown"), outputs))
    if next(inputs, None) is not None or next(outputs, None) is not None:
        raise FormatError("the graph has other inputs or outputs than the function")
    settings = Settings.read(document.fields("settings"))
    update = document.take("update", dict, type(None))
    if lr is not None and update is None:
        raise GraphError("lr= is given, but the program was saved without update=")
    rule = None if update is None else _read_rule(Fields(update, "update"), buffers, lr)
    traced = Traced(builder, arguments, results)
    return Parts(traced, Differentiated(graph, buffers), settings, rule)


_TREES = (type(None), str, dict)


def _shown(each: Shown) -> dict[str, Any]:
    if each.callback is not print:
        raise GraphError(
            f"save: show({each.name!r}) calls a function, which no file can hold: without "
            "callback, it prints"
        )
    return {"name": each.name, "count": each.count, "lines": [*each.lines]}


def _read_shown(fields: Fields, outputs: Any) -> Shown:
    name, count = fields.take("name", str), fields.take("count", int)
    lines = tuple(fields.texts("lines"))
    fields.end()
    tensor = next(outputs, None)
    if tensor is None or not 0 <= count < 1 << 62 or (count and tensor.shape[-1:] != (STATISTICS,)):
        raise FormatError(f"shown: no statistics for {name!r}")
    return Shown(name, tensor, count, lines=lines)


def _update(program: Program, buffers: Mapping[str, StateBuffer]) -> dict[str, Any]:
    rates, clock = rates_of(program.update), program.clock
    if SCHEDULE in rates[1:]:
        raise GraphError(
            f"save: {program.name}: a parameter group has a schedule of learning rates, which no "
            "file can hold: set a number"
        )
    names = {buffer: name for name, buffer in buffers.items()}
    return {
        "rates": rates,
        "rate": names.get(clock.rate),
        "group_rates": [names.get(rate) for rate in clock.rates],
        "step": names[clock.step],
        "random": {key: names[b] for key, b in clock.shared.items() if b in names},
    }


def _read_rule(fields: Fields, buffers: Mapping[str, StateBuffer], lr: Rate | None) -> RestoredRule:
    rates = fields.take("rates", list)
    numbers = [rate for rate in rates if rate not in (SCHEDULE, RULE)]
    if not rates or not all(type(n) is float and 0 <= n < LARGEST for n in numbers):
        raise FormatError("update: rates are no learning rates")
    if rates[0] == RULE or SCHEDULE in rates[1:]:
        raise FormatError("update: rates of other kinds than a rule has")
    clock = Clock(len(rates) - 1)
    groups = fields.take("group_rates", list)
    if len(groups) != len(clock.rates):
        raise FormatError("update: the groups have other rates")

    def bound(name: Any, own: StateBuffer) -> StateBuffer:
        if name is None:
            return own
        found = buffers.get(name) if isinstance(name, str) else None
        if found is None or found.type != own.type:
            raise FormatError(f"update: no state {name!r} : {own.type}")
        return found

    clock.rate = bound(fields.take("rate", str, type(None)), clock.rate)
    clock.rates = [bound(name, own) for name, own in zip(groups, clock.rates, strict=True)]
    clock.step = bound(fields.take("step", str), clock.step)
    clock.shared = {
        key: bound(name, StateBuffer(0, "f32" if key == SCALE else "i32"))
        for key, name in fields.table("random", str).items()
    }
    clock.loaded = clock.finished
    fields.end()
    return RestoredRule(rates, lr, clock)


def kernel_digests(program: Program) -> dict[str, str]:
    """Return a digest of each kernel's text and of the headers of all kernels, by the names."""
    if program.plan is None:
        return {}
    from graphc.runtime.plan_store import headers_digest

    headers = headers_digest()
    return {
        name: hashlib.sha256(f"{kernel.canonical}\0{headers}".encode()).hexdigest()[:32]
        for name, kernel in sorted(program.plan.kernels.items())
    }
