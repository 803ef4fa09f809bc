"""The backend of `torch.compile(model, backend="graphc")`.

AOTAutograd differentiates Dynamo's graphs into forward and backward graphs of core operators. Each
becomes programs; the forward one passes stored values to the backward one. Operators that graphc
lacks stay in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from graphc.torch.call import Compiled
from graphc.torch.decompositions import decompositions
from graphc.torch.partition import Offered, partitioned
from graphc.torch.recurrent import with_layers

# Else Dynamo breaks its graphs at recurrent layers. There is no such setting for one backend.
torch._dynamo.config.allow_rnn = True

Watcher = Callable[[GraphModule, Offered], None]


def _compiler(name: str, watch: Watcher | None, build: bool) -> Callable[..., Any]:
    """Compiles one of AOTAutograd's graphs."""

    def compile_graph(module: GraphModule, inputs: Sequence[Any]) -> Any:
        whole, offered = partitioned(module)
        if watch is not None:
            watch(module, offered)
        parts = [child for child in whole.named_children() if child[0].startswith("fused_")]
        for child, part in parts if build else ():
            assert isinstance(part, GraphModule)
            setattr(whole, child, Compiled(part, f"{name}_{child.removeprefix('fused_')}"))
        return make_boxed_func(whole.forward)

    return compile_graph


def with_compiler(watch: Watcher | None = None, build: bool = True) -> Callable[..., Any]:
    """Return a backend for `torch.compile`.

    `watch` is called with each graph and its supported operators. Without `build`, PyTorch runs
    all.
    """
    compiler = aot_autograd(
        fw_compiler=_compiler("forward", watch, build),
        bw_compiler=_compiler("backward", watch, build),
        inference_compiler=_compiler("inference", watch, build),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )

    def backend(module: GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
        return compiler(with_layers(module), inputs)

    return backend


def graphc(module: GraphModule, inputs: Sequence[torch.Tensor], **options: Any) -> Any:
    """Compile a graph with its example inputs; `torch.compile` calls it."""
    return with_compiler()(module, inputs)
