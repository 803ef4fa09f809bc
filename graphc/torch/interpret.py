"""PyTorch's graphs of core operators as functions of traced tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from graphc import functions as f
from graphc.base.errors import GraphError
from graphc.ir import Where
from graphc.torch.aten import rule_of
from graphc.torch.aten.fourier import RULES, Complex, apply_complex, holds_complex
from graphc.torch.aten.rules import dtype_of
from graphc.torch.aten.strides import as_they_lie, reads_strides
from graphc.trace import current_builder

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def interpret(
    module: GraphModule, arguments: Sequence[Any], draws: bool = False
) -> tuple[Any, ...]:
    """Return the results of a graph for traced tensors, and for integers as symbolic sizes.

    With `draws` graphc draws the random numbers.
    """
    values: dict[Node, Any] = {}
    given = iter(arguments)
    above = current_builder().modules
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = f.as_tensor(getattr(module, node.target).detach().numpy())
        elif node.op == "output":
            (results,) = map_arg(node.args, values.__getitem__)
            return tuple(results) if isinstance(results, tuple | list) else (results,)
        else:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            with current_builder().at(_inside(above, where_of(node))):
                values[node] = apply(node, args, kwargs, draws)
    raise AssertionError("a graph ends with its output")


def _inside(modules: Sequence[str], where: Where) -> Where:
    """`where` as it is called within graphc's modules."""
    return (
        replace(where, module=".".join([*modules, where.module]).strip(".")) if modules else where
    )


def apply(node: Node, args: Sequence[Any], kwargs: dict[str, Any], draws: bool = False) -> Any:
    """What the node's operator makes of traced tensors; GraphError where graphc has not got it."""
    target: Any = node.target
    if str(target).startswith("aten.sym_size"):
        return args[0].shape[args[1]]
    if not isinstance(target, torch._ops.OpOverload):
        return target(*args, **kwargs)
    wanted = node.meta.get("val")
    makes_complex = isinstance(wanted, torch.Tensor) and wanted.is_complex()
    if holds_complex([*args, *kwargs.values()]) or (makes_complex and str(target) in RULES):
        return fitted(apply_complex(str(target), args, kwargs), wanted)
    rule = rule_of(str(target), draws)
    if rule is None:
        raise GraphError(f"{target} is not offered")
    if reads_strides(node):
        x, *rest = args
        return as_they_lie(rule, x, rest, node.all_input_nodes[0].meta["val"])
    return fitted(rule(*args, **kwargs), wanted)


def fitted(result: Any, wanted: Any) -> Any:
    """The result in the dtype that PyTorch says, its shape checked."""
    if isinstance(result, tuple | list):
        return tuple(fitted(r, w) for r, w in zip(result, wanted, strict=True))
    if result is None or not isinstance(wanted, torch.Tensor):
        return result
    if isinstance(result, Complex):
        return Complex(*(fitted(part, wanted.real) for part in (result.real, result.imag)))
    result = f.as_tensor(result)
    if result.ndim != wanted.ndim or any(
        isinstance(n, int) and n != m for n, m in zip(wanted.shape, result.shape, strict=True)
    ):
        raise GraphError(f"expected a tensor of shape {tuple(wanted.shape)}, got {result.shape}")
    return f.astype(result, dtype_of(wanted.dtype))


def where_of(node: Node) -> Where:
    """The module's path and the user's line that a node comes from."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    found = _LINE.findall(node.meta.get("stack_trace") or "")
    own = [(name, line) for name, line in found if _is_users(name)]
    lines = tuple(f"{Path(name).name}:{line}" for name, line in (own or found)[-1:])
    derived = "backward" in str(node.meta.get("partitioner_tag"))
    return Where(_attribute(path), lines, derived=derived)


def _attribute(path: str) -> str:
    """`layer1.0.conv1` of `L['self'].layer1[0].conv1` or `L__self___layer1_0_conv1`."""
    path = re.sub(r"^(L\['?\"?self'?\"?\]|L__self__)[._]*", "", path)
    return re.sub(r"\W+", ".", path).strip(".").removeprefix("_modules.").replace("._modules", "")


def _is_users(path: str) -> bool:
    package = str(Path(torch.__file__).parent)
    return not path.startswith((package, "<"))
