"""Modules and layers, with the names, arguments and parameter shapes of torch.nn."""

from typing import TYPE_CHECKING

from graphc.nn.buffer import *
from graphc.nn.container import *
from graphc.nn.layers.activation import *
from graphc.nn.layers.adaptive_pooling import *
from graphc.nn.layers.attention import *
from graphc.nn.layers.batch_norm import *
from graphc.nn.layers.cache import *
from graphc.nn.layers.convolution import *
from graphc.nn.layers.dropout import *
from graphc.nn.layers.embedding import *
from graphc.nn.layers.linear import *
from graphc.nn.layers.loss import *
from graphc.nn.layers.margin_loss import *
from graphc.nn.layers.normalization import *
from graphc.nn.layers.padding import *
from graphc.nn.layers.pooling import *
from graphc.nn.layers.quantized import *
from graphc.nn.layers.recurrent import *
from graphc.nn.layers.recurrent_cells import *
from graphc.nn.layers.shape import *
from graphc.nn.layers.softmax import *
from graphc.nn.layers.threshold import *
from graphc.nn.layers.transformer import *
from graphc.nn.missing import missing as _missing
from graphc.nn.module import *
from graphc.nn.parameter import *
from graphc.nn.stacking import *

_NAMES = [
    name
    for name, found in globals().items()
    if isinstance(found, type) and issubclass(found, Module | Parameter) and name[0] != "_"
]
_NAMES += ["quantize", "stack_modules", "unstack_modules"]
if not TYPE_CHECKING:  # type checkers see what is imported
    __all__ = _NAMES


def __dir__() -> list[str]:
    return _NAMES


def __getattr__(name: str) -> object:
    raise AttributeError(_missing(name, _NAMES), name=name)
