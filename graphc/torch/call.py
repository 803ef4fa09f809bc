"""Programs that are called with PyTorch's tensors. Nothing is copied that lies in order.

Tensors on a GPU are given and taken by DLPack, whose streams wait for each other: a call follows
what PyTorch's current stream did before, and what it does next follows the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.utils import dlpack
from torch.utils._pytree import tree_leaves

from graphc.base.dtypes import BFLOAT16, Array
from graphc.base.errors import GraphError
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
        examples = [node.meta["val"] for node in leaves]
        self.kinds = [(example.dtype, example.device) for example in examples]
        self.gpu = gpu_of(module)

    def forward(self, *arguments: Any) -> Any:
        tensors = [a.detach() for a in arguments if isinstance(a, torch.Tensor)]
        key = tuple(a.shape if isinstance(a, torch.Tensor) else int(a) for a in arguments)
        program = self.programs.get(key)
        if program is None:
            program = self.programs[key] = self._compile(arguments)
        results = program(*map(argument_of, tensors))
        outputs = tuple(
            tensor_of(result, *kind) for result, kind in zip(results, self.kinds, strict=True)
        )
        return outputs[0] if self.single else outputs

    def _compile(self, arguments: Sequence[Any]) -> Program:
        fixed = [None if isinstance(a, torch.Tensor) else int(a) for a in arguments]
        specs = [type_of(a) for a in arguments if isinstance(a, torch.Tensor)]

        def function(*tensors: Any) -> tuple[Any, ...]:
            given = iter(tensors)
            whole = [next(given) if value is None else value for value in fixed]
            return interpret(self.module, whole)

        function.__name__ = self.name
        if self.gpu is None:
            return compile(function, *specs)
        return compile(function, *specs, device=f"cuda:{self.gpu}", out="device")


def gpu_of(module: GraphModule) -> int | None:
    """The number of the GPU that a graph's tensors are on; None if all are on the CPU.

    It raises GraphError if there are two.
    """
    examples = (node.meta.get("val") for node in module.graph.nodes)
    leaves = (leaf for example in examples for leaf in tree_leaves(example))
    places = {t.device for t in leaves if isinstance(t, torch.Tensor)}
    gpus = {place.index or 0 for place in places if place.type == "cuda"}
    if len(gpus) > 1:
        raise GraphError(f"expected tensors on one GPU, got them on {sorted(gpus)}")
    return min(gpus, default=None)


def argument_of(tensor: torch.Tensor) -> Any:
    """The tensor as a program takes it."""
    return tensor.contiguous() if tensor.is_cuda else array_of(tensor)


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's memory as an array, a copy only where it lies elsewhere or not in order."""
    tensor = tensor.cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    array: Array = tensor.numpy()
    return array


def tensor_of(array: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of the array's memory."""
    here = isinstance(array, np.ndarray)
    tensor = torch.from_numpy(array) if here else dlpack.from_dlpack(array)
    fits = tensor.dtype == dtype and tensor.device.type == device.type
    return tensor if fits else tensor.to(device, dtype)
