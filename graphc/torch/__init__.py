"""PyTorch's models: `torch.compile(model, backend="graphc")`, and what of a model graphc takes.
Importing this package registers the backend.

backend.py     what torch.compile calls: forward and backward graphs of core operators
partition.py   which nodes graphc takes, and why it does not take the others
interpret.py   a graph of core operators as a function of traced tensors
aten/          what each operator is in graphc
call.py        programs called with PyTorch's tensors
reporting.py   what of a model graphc takes
loading.py     modules as modules of graphc, for `graphc.from_torch`
exporting.py   what torch.export makes of them
operators.py   what PyTorch's core operators do not say
"""

try:
    import torch as _torch
except ImportError:
    raise ImportError(
        "PyTorch's models need the torch package: pip install 'graphc[torch]'"
    ) from None

from importlib.metadata import entry_points as _entry_points

from torch._dynamo import register_backend as _register_backend

from graphc.torch.backend import graphc as _backend
from graphc.torch.reporting import Report, report

assert _torch.__name__ == "torch"
__all__ = ["Report", "report"]

# PyTorch finds the backend of an installed graphc by its entry point, that of a checkout only here.
if "graphc" not in _entry_points(group="torch_dynamo_backends").names:
    _register_backend(_backend, name="graphc")


def __dir__() -> list[str]:
    return __all__
