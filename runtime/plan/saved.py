"""Encode plans as JSON and decode them, for the cache of programs and for files.

A plan is a tree of frozen dataclasses. Each is encoded as a list of its class's number and its
fields in order; tuples and dicts have numbers of their own. Decoding creates only these classes, so
a file cannot contain code; `Plan.verify` then checks whether the plan is sound.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from graphc.ir import Layout, Type, Value, Where
from graphc.kernels.program.calls import (
    CallMatrix,
    CallTensor,
    Convolution,
    PointwiseStep,
    Product,
)
from graphc.kernels.program.kernel import DeviceFunctions, GridLaunch, Kernel, TensorMap, Text
from graphc.kernels.program.message import Message
from graphc.runtime.plan.plan import (
    Binding,
    Copy,
    Estimate,
    JoinedLaunch,
    Launch,
    LaunchPart,
    Link,
    Loop,
    LoopCarry,
    Move,
    Plan,
    Range,
    Record,
    RepeatedParts,
    Stack,
    Wait,
)

# fmt: off
_CLASSES: tuple[type[Any], ...] = (
    Plan, Binding, LoopCarry, Copy, Estimate, GridLaunch, Kernel, Launch, Layout, Link, Loop, Move,
    Range, Record, Stack, TensorMap, Type, Value, Wait, Where, CallMatrix, CallTensor, Convolution,
    DeviceFunctions, JoinedLaunch, LaunchPart, Message, PointwiseStep, Product, RepeatedParts,
    Text,
)
# fmt: on
_TUPLE, _DICT = len(_CLASSES), len(_CLASSES) + 1
_NUMBERS = {cls: number for number, cls in enumerate(_CLASSES)}
_NAMES = tuple(tuple(f.name for f in fields(cls)) for cls in _CLASSES)


def encoded(value: Any) -> Any:
    """A plan, or a part of one, as data for `json`; the loops of device functions become text.
    Raises TypeError for anything else."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if type(value) is tuple:
        return [_TUPLE, *map(encoded, value)]
    if type(value) is dict:
        return [_DICT, *(encoded(part) for item in value.items() for part in item)]
    if isinstance(value, DeviceFunctions):
        value = value.printed
    number = _NUMBERS.get(type(value))
    if number is None:
        raise TypeError(f"no part of a plan: {type(value).__name__}")
    return [number, *(encoded(getattr(value, name)) for name in _NAMES[number])]


def decoded_plan(value: Any) -> Plan:
    """The plan that `encoded` made data of. Raises ValueError, TypeError or others for other
    data."""
    plan = decoded(value)
    if not isinstance(plan, Plan):
        raise TypeError(f"no plan: {type(plan).__name__}")
    return plan


def decoded(value: Any) -> Any:
    """The inverse of `encoded`. Raises ValueError or TypeError for other data."""
    if type(value) is not list:
        return value
    number, *parts = value
    found = tuple(map(decoded, parts))
    if number == _TUPLE:
        return found
    if number == _DICT:
        return dict(zip(found[::2], found[1::2], strict=True))
    return _CLASSES[number](*found)
