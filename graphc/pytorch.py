"""The door to PyTorch's models, which imports PyTorch when it is used."""

from __future__ import annotations

from typing import Any

from graphc.nn.module import Module


def from_torch(module: Any, *example: Any, **named: Any) -> Module:
    """A `torch.nn.Module` as a module of graphc, with PyTorch's names, weights, modes and
    `requires_grad`; it is called as PyTorch's is.

    `example` and `named` are inputs of it: tensors, arrays or specs, of which only types count.
    Inputs of other types, or other modes by `train` and `eval`, are traced when they come.
    GraphError if torch.export cannot trace the module, or with all operators that graphc lacks.
    """
    from graphc.torch import loading

    return loading.from_torch(module, *example, **named)


def to_torch(state: Any) -> dict[str, Any]:
    """`torch_module.load_state_dict(to_torch(model))` takes back what graphc has trained: a copy as
    PyTorch's tensor of each array in `state`, a module or what its `state_dict` gave."""
    from graphc.torch import loading

    return loading.to_torch(state)
