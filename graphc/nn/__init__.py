"""Modules and layers, with the names, arguments and parameter shapes of torch.nn. Users get every
class of modules and parameters below whose name has no underscore in front."""

from typing import TYPE_CHECKING

from graphc.nn.activation import *
from graphc.nn.attention import *
from graphc.nn.batch_norm import *
from graphc.nn.buffer import *
from graphc.nn.container import *
from graphc.nn.convolution import *
from graphc.nn.dropout import *
from graphc.nn.embedding import *
from graphc.nn.linear import *
from graphc.nn.loss import *
from graphc.nn.missing import missing as _missing
from graphc.nn.module import *
from graphc.nn.normalization import *
from graphc.nn.padding import *
from graphc.nn.parameter import *
from graphc.nn.pooling import *
from graphc.nn.quantized import *
from graphc.nn.recurrent import *
from graphc.nn.shape import *
from graphc.nn.stacking import *
from graphc.nn.transformer import *

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
