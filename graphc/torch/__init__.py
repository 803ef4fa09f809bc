"""PyTorch models: `torch.compile(model, backend="graphc")`, and a report of what graphc supports.

Importing this package registers the backend.

    backend.py     what torch.compile calls with forward and backward graphs
    partition.py   which nodes graphc takes, and why not the others
    interpret.py   a graph of core operators as a function of traced tensors
    aten/          the rule of each operator
    call.py        programs called with PyTorch tensors
    reporting.py   which operators of a model graphc supports
    loading.py     PyTorch modules as graphc modules, for `graphc.from_torch`
    exporting.py   graphs from torch.export
    operators.py   operators for what PyTorch's core operators cannot express
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
