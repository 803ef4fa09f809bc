"""Models to and from PyTorch, which is imported when it is used."""

from __future__ import annotations

from typing import Any

from graphc.nn.module import Module


def from_torch(module: Any, *example: Any, **named: Any) -> Module:
    """Convert a `torch.nn.Module` to a graphc module.

    It keeps PyTorch's names, weights, modes and `requires_grad`, and is called as PyTorch's is.

    Args:
        module: The PyTorch module.
        *example: Example inputs: tensors, arrays or specs, of which only the types matter. Inputs
            of other types, and other modes, are traced when they occur.
        **named: Example keyword inputs.

    Returns:
        A module.

    Raises:
        GraphError: torch.export cannot trace the module, or it has unsupported operators, which the
            message lists.
    """
    from graphc.torch import loading

    return loading.from_torch(module, *example, **named)


def to_torch(state: Any) -> dict[str, Any]:
    """Convert a state dict to PyTorch tensors: `torch_module.load_state_dict(to_torch(model))`.

    Args:
        state: A module, or a dict of arrays.

    Returns:
        A dict from names to tensors, copies of the arrays.
    """
    from graphc.torch import loading

    return loading.to_torch(state)
