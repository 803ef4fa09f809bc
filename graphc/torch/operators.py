"""Operators of graphc's own in PyTorch's graphs, for what PyTorch's core operators do not say."""

from __future__ import annotations

import torch

from graphc import functions as f
from graphc.torch.aten.rules import aten

torch.library.define("graphc::stop_gradient", "(Tensor x) -> Tensor")
torch.library.impl("graphc::stop_gradient", "CompositeExplicitAutograd", torch.clone)

stop_gradient = torch.ops.graphc.stop_gradient.default
"""x, through which no gradient flows. In PyTorch's own graphs it is a copy."""

aten("stop_gradient", library="graphc")(f.stop_gradient)
