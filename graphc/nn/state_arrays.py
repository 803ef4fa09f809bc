"""Arrays of a state dict: read them, and check that they fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from graphc.base.dlpack import host_array
from graphc.base.dtypes import can_hold
from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.ir import Array, Type, dtype_name


def mapping_of(function: str, source: Any) -> Mapping[str, Any]:
    """Return a mapping, or the `state_dict` of anything that has one; else raise GraphError."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, type) and callable(getattr(source, "state_dict", None)):
        state: Mapping[str, Any] = source.state_dict()
        return state
    hint = "; load_weights reads a file" if isinstance(source, str | os.PathLike) else ""
    raise GraphError(
        f"{function}: expected a module or a mapping of names to arrays, "
        f"got {type(source).__name__}{hint} ({', '.join(user_line())})"
    )


def as_array(name: str, value: Any) -> Array:
    """Return `value` as a NumPy array, or raise GraphError.

    PyTorch's tensors may require gradients or be on another device.
    """
    for method in ("detach", "cpu"):
        value = getattr(value, method, lambda value=value: value)()
    try:
        array = host_array(value, name)
    except TypeError as error:
        raise GraphError(f"{name}: {type(value).__name__} gives no array: {error}") from None
    return array


def can_assign(array: Array, expected: Type) -> bool:
    """Return whether `array` can be assigned to a buffer of that type."""
    return array.shape == expected.shape and can_hold(expected.numpy_dtype, array.dtype)


def fitting(
    owner: str, state: Any, expected: Mapping[str, Type], strict: bool = True
) -> dict[str, Array]:
    """Return the arrays of a state dict that has those of `owner`, which are `expected`.

    Without `strict`, names may be missing or unexpected. Raises GraphError, which lists all that
    does not fit.
    """
    state = mapping_of("load_state_dict", state)
    arrays = {name: as_array(name, state[name]) for name in expected if name in state}
    problems: list[str] = []
    if strict:
        problems += [f"missing {n} : {type}" for n, type in expected.items() if n not in state]
        problems += [f"unexpected {n}" for n in state if n not in expected]
    for name, array in arrays.items():
        if not can_assign(array, expected[name]):
            problems.append(f"{name}: expected {expected[name]}, got {type_text(array)}")
    if problems:
        raise GraphError("\n  ".join([f"load_state_dict: {owner}", *problems]))
    return arrays


def type_text(array: Array) -> str:
    """Return dtype and shape as a type prints them."""
    try:
        return str(Type(array.shape, dtype_name(array.dtype)))
    except GraphError:
        return f"{array.dtype}[{','.join(map(str, array.shape))}]"
