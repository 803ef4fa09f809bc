"""PyTorch's graphs of core operators as functions of traced tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from graphc import functions as f
from graphc.errors import GraphError
from graphc.ir import Where
from graphc.torch.aten import rule_of
from graphc.torch.aten.rules import dtype_of
from graphc.trace import Tensor, current_builder

_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def interpret(module: GraphModule, arguments: Sequence[Any]) -> tuple[Tensor, ...]:
    """What the graph returns for traced tensors, and for integers in place of symbolic sizes."""
    values: dict[Node, Any] = {}
    given = iter(arguments)
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
            with current_builder().at(where_of(node)):
                values[node] = apply(node, args, kwargs)
    raise AssertionError("a graph ends with its output")


def apply(node: Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the node's operator makes of traced tensors; GraphError where graphc has not got it."""
    target: Any = node.target
    if str(target).startswith("aten.sym_size"):
        return args[0].shape[args[1]]
    if not isinstance(target, torch._ops.OpOverload):
        return target(*args, **kwargs)
    rule = rule_of(str(target))
    if rule is None:
        raise GraphError(f"{target} is not offered")
    return fitted(rule(*args, **kwargs), node.meta["val"])


def fitted(result: Any, wanted: Any) -> Any:
    """The result in the dtype that PyTorch says, its shape checked."""
    if isinstance(result, tuple | list):
        return tuple(fitted(r, w) for r, w in zip(result, wanted, strict=True))
    if result is None or not isinstance(wanted, torch.Tensor):
        return result
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
    return Where(
        _attribute(path), lines, derived="backward" in str(node.meta.get("partitioner_tag"))
    )


def _attribute(path: str) -> str:
    """`layer1.0.conv1` of `L['self'].layer1[0].conv1` or `L__self___layer1_0_conv1`."""
    path = re.sub(r"^(L\['?\"?self'?\"?\]|L__self__)[._]*", "", path)
    return re.sub(r"\W+", ".", path).strip(".").removeprefix("_modules.").replace("._modules", "")


def _is_users(path: str) -> bool:
    package = str(Path(torch.__file__).parent)
    return not path.startswith((package, "<"))
