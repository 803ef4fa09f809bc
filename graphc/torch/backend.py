"""`torch.compile(model, backend="graphc")`: Dynamo's graphs, differentiated by AOTAutograd into a
forward and a backward one of core operators. Each becomes programs, the forward one handing the
backward one what it stored; what graphc has not got stays with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from graphc.torch.call import Compiled
from graphc.torch.partition import Offered, partitioned

aten = torch.ops.aten
_KEPT = (
    aten.embedding_dense_backward.default,
    aten.native_group_norm.default,
    aten.select_scatter.default,
)
"""Operators that PyTorch would write in others, but that graphc has."""
_MORE = (aten.native_batch_norm_backward.default,)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """How PyTorch's operators are written in those that graphc has rules for."""
    table = dict(core_aten_decompositions())
    for operator in _KEPT:
        table.pop(operator, None)
    for operator in _MORE:
        table[operator] = decomposition_table[operator]
    return table


Watcher = Callable[[GraphModule, Offered], None]


def compiler(name: str, watch: Watcher | None = None) -> Callable[..., Any]:
    """Compiles one of AOTAutograd's graphs; `watch` is told what of it is offered."""

    def compile_graph(module: GraphModule, inputs: Sequence[Any]) -> Any:
        with torch.no_grad():
            whole, offered = partitioned(module)
        if watch is not None:
            watch(module, offered)
        for child, part in list(whole.named_children()):
            if isinstance(part, GraphModule) and child.startswith("fused_"):
                setattr(whole, child, Compiled(part, f"{name}_{child.removeprefix('fused_')}"))
        return make_boxed_func(whole.forward)

    return compile_graph


def graphc(module: GraphModule, inputs: Sequence[torch.Tensor], **options: Any) -> Any:
    """The backend: what `torch.compile` calls with a graph and its example inputs."""
    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    return backend(module, inputs)
