"""Programs that are called with PyTorch's tensors. Nothing is copied that lies in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from graphc.base.dtypes import BFLOAT16, Array
from graphc.program import compile
from graphc.program.program import Program
from graphc.torch.interpret import interpret
from graphc.torch.partition import type_of


class Compiled(torch.nn.Module):
    """A graph of supported operators as programs, one for each set of sizes.

    The first call with new sizes compiles a program.
    """

    def __init__(self, module: GraphModule, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name
        self.programs: dict[tuple[Any, ...], Program] = {}
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        self.single = not isinstance(output.args[0], tuple | list)
        leaves = output.args if self.single else output.args[0]
        self.dtypes = [node.meta["val"].dtype for node in leaves]

    def forward(self, *arguments: Any) -> Any:
        tensors = [a.detach() for a in arguments if isinstance(a, torch.Tensor)]
        key = tuple(a.shape if isinstance(a, torch.Tensor) else int(a) for a in arguments)
        program = self.programs.get(key)
        if program is None:
            program = self.programs[key] = self._compile(arguments)
        results = program(*map(array_of, tensors))
        outputs = tuple(map(tensor_of, results, self.dtypes))
        return outputs[0] if self.single else outputs

    def _compile(self, arguments: Sequence[Any]) -> Program:
        fixed = [None if isinstance(a, torch.Tensor) else int(a) for a in arguments]
        specs = [type_of(a) for a in arguments if isinstance(a, torch.Tensor)]

        def function(*tensors: Any) -> tuple[Any, ...]:
            given = iter(tensors)
            whole = [next(given) if value is None else value for value in fixed]
            return interpret(self.module, whole)

        function.__name__ = self.name
        return compile(function, *specs)


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's memory as an array, a copy only where it does not lie in order."""
    tensor = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    array: Array = tensor.numpy()
    return array


def tensor_of(array: Array, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the array's memory."""
    tensor = torch.from_numpy(array)
    return tensor if tensor.dtype == dtype else tensor.to(dtype)
