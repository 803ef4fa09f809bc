"""Stack modules of one kind into one, for `vmap`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from graphc.base.source_lines import error
from graphc.ir import Array
from graphc.ir.state import StateBuffer
from graphc.nn.module import Module


def stack_modules(modules: Sequence[Module]) -> Module:
    """Return a copy of a module whose parameters stack those of all modules on a new first axis.

    `graphc.vmap(fn)(stack_modules(models), ...)` calls `fn` with each of the models: one program
    computes, or trains, all of them.

    Args:
        modules: Modules with parameters of the same names, shapes and dtypes.

    Returns:
        A module like the first one.

    Raises:
        GraphError: The parameters differ.

    Example:
        >>> nn.stack_modules([nn.Linear(3, 2), nn.Linear(3, 2)]).weight.shape
        (2, 2, 3)
    """
    found = list(modules)
    if not found or not all(isinstance(m, Module) for m in found):
        got = ", ".join(dict.fromkeys(type(m).__name__ for m in found)) or "none"
        raise error(f"stack_modules: expected one module or more, got {got}")
    wanted = found[0].state_types()
    for number, module in enumerate(found):
        own = module.state_types()
        for name in dict.fromkeys((*wanted, *own)):
            if wanted.get(name) != own.get(name):
                raise error(
                    f"stack_modules: {name} is {wanted.get(name) or 'missing'} in module 0, "
                    f"{own.get(name) or 'missing'} in module {number}"
                )
    parts = [dict(m.named_parameters()) for m in found]
    return _holding(found[0], {n: np.stack([p[n].numpy() for p in parts]) for n in parts[0]})


def unstack_modules(module: Module) -> list[Module]:
    """Split a module that `stack_modules` made into modules with copies of their parameters.

    Args:
        module: The module.

    Returns:
        One module for each index of the first axis.

    Raises:
        GraphError: The parameters differ in their first size.

    Example:
        >>> stacked = nn.stack_modules([nn.Linear(3, 2), nn.Linear(3, 2)])
        >>> [model.weight.shape for model in nn.unstack_modules(stacked)]
        [(2, 3), (2, 3)]
    """
    extents = {p.shape[:1] for p in module.parameters()}
    if len(extents) != 1 or () in extents:
        got = ", ".join(f"{n} {t}" for n, t in module.state_types().items()) or "none"
        raise error(f"unstack_modules: expected parameters with one first extent, got {got}")
    ((count,),) = extents
    whole = {name: p.numpy() for name, p in module.named_parameters()}
    return [_holding(module, {n: x[i] for n, x in whole.items()}) for i in range(count)]


def _holding(module: Module, arrays: Mapping[str, Array]) -> Module:
    """A copy of the module whose parameters hold these arrays, by their paths."""
    result = copy.deepcopy(module)
    for name, parameter in result.named_parameters():
        parameter.state = StateBuffer(arrays[name], parameter.dtype)
    return result
