"""PyTorch's models: `torch.compile(model, backend="graphc")`, and what of a model graphc takes.

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

from graphc.torch.reporting import Report as Report
from graphc.torch.reporting import report as report

assert _torch.__name__ == "torch"
