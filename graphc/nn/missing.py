"""Error messages for names of torch.nn that graphc lacks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

NEAREST = {
    "AdaptiveLogSoftmaxWithLoss": "nn.CrossEntropyLoss",
    "Container": "nn.ModuleList",
    "CrossMapLRN2d": "nn.LocalResponseNorm",
    "DataParallel": "compile, whose device= names one",
    "FractionalMaxPool2d": "nn.AdaptiveMaxPool2d",
    "FractionalMaxPool3d": "nn.AdaptiveMaxPool3d",
    "GRU": "nn.Module with a loop in forward",
    "GRUCell": "nn.Module with a loop in forward",
    "LSTM": "nn.Module with a loop in forward",
    "LSTMCell": "nn.Module with a loop in forward",
    "LinearCrossEntropyLoss": "nn.Linear with nn.CrossEntropyLoss",
    "MaxUnpool1d": "nn.Upsample",
    "MaxUnpool2d": "nn.Upsample",
    "MaxUnpool3d": "nn.Upsample",
    "NLLLoss2d": "nn.NLLLoss",
    "ParameterTuple": "nn.ParameterList",
    "RNN": "nn.Module with a loop in forward",
    "RNNBase": "nn.Module with a loop in forward",
    "RNNCell": "nn.Module with a loop in forward",
    "RNNCellBase": "nn.Module with a loop in forward",
    "SyncBatchNorm": "nn.BatchNorm2d",
    "UninitializedBuffer": "nn.Parameter",
    "UninitializedParameter": "nn.Parameter",
    "functional": "graphc itself, as in graphc.relu(x)",
    "init": "parameter.assign(array); graphc.seed(number) sets the initial values",
    "spectral_norm": "nn.Module: divide the weight by its norm in forward",
    "utils": "optim, whose rules have clip_grad_norm=, for clip_grad_norm_, and nn.Module for "
    "weight_norm and spectral_norm: divide the weight by its norm in forward",
    "weight_norm": "nn.Module: divide the weight by its norm in forward",
}
"""Names without a layer here -> what comes nearest."""


def missing(name: str, known: Sequence[str]) -> str:
    """Return the message of the AttributeError for `name`, with the nearest known name."""
    if name.startswith("Lazy") and name.removeprefix("Lazy") in known:
        plain = name.removeprefix("Lazy")
        return (
            f"graphc.nn has no {name!r}: layers know their inputs' channels when they are made; "
            f"the nearest is nn.{plain}"
        )
    nearest = NEAREST.get(name, "")
    if not nearest:
        nearest = next((f"nn.{n}" for n in difflib.get_close_matches(name, known, 1, 0.75)), "")
    return f"graphc.nn has no {name!r}" + (f"; the nearest is {nearest}" if nearest else "")


_DEVICES = "compile's device= says where a program runs; parameters follow by themselves"
_METHODS = {
    "apply": "for module in model.modules(): ...",
    "backward": "compile's update= or graphc.grad give gradients",
    "bfloat16": 'use model.to("bfloat16")',
    "buffers": "parameters() gives those that are not trainable too",
    "children": "modules() gives all modules inside",
    "cpu": _DEVICES,
    "cuda": _DEVICES,
    "double": 'use model.to("float64")',
    "float": 'use model.to("float32")',
    "half": 'use model.to("float16")',
    "named_children": "named_modules() gives all modules inside",
    "register_buffer": "assign it: self.name = nn.Buffer(data)",
    "register_module": "assign it: self.name = module",
    "register_parameter": "assign it: self.name = nn.Parameter(data)",
    "requires_grad_": "a parameter's trainable says whether update rules change it",
    "share_memory": "all programs of a model share its parameters",
    "add_module": "assign it: self.name = module",
    "xpu": _DEVICES,
    "zero_grad": "gradients are no state: compile's update= computes and uses them in one step",
}
"""Methods of torch.nn.Module that are not here -> what to use."""


def missing_method(layer: str, name: str) -> str:
    """Return the message of the AttributeError for an attribute `name` of a module."""
    hint = f": {_METHODS[name]}" if name in _METHODS else ""
    return f"{layer!r} object has no attribute {name!r}{hint}"


def device_hint(name: object) -> str:
    """Return a hint for a module's `to` if `name` is a device, else ""."""
    kind = str(name).partition(":")[0]
    return f": {_DEVICES}" if kind in ("cuda", "cpu", "sim", "mps", "xpu") else ""
