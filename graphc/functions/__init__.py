"""Functions for users, by the names of the Python Array API and torch.nn.functional.

Neural-network functions have `axis` for PyTorch's `dim`. Arguments may be tensors, parameters,
NumPy arrays and Python numbers, which take the dtype of the tensors that they meet. Other dtypes
are promoted as `torch.result_type` does. All functions of the modules below whose names have no
leading underscore are public.
"""

import sys
from types import FunctionType
from typing import TYPE_CHECKING

from graphc.functions import hints as hints
from graphc.functions.array.associative import *
from graphc.functions.array.creation import *
from graphc.functions.array.cumulative import *
from graphc.functions.array.elementwise.arithmetic import *
from graphc.functions.array.elementwise.elementwise import *
from graphc.functions.array.elementwise.numeric import *
from graphc.functions.array.elementwise.special import *
from graphc.functions.array.elementwise.trigonometry import *
from graphc.functions.array.indexing.gathering import *
from graphc.functions.array.indexing.indexing import *
from graphc.functions.array.indexing.scattering import *
from graphc.functions.array.indexing.subscripts import *
from graphc.functions.array.linear.grouped import grouped_mm as grouped_mm
from graphc.functions.array.linear.matrices import *
from graphc.functions.array.linear.matrix_construction import *
from graphc.functions.array.linear.matrix_product import *
from graphc.functions.array.linear.products import *
from graphc.functions.array.loops import *
from graphc.functions.array.mixed import *
from graphc.functions.array.ordering import *
from graphc.functions.array.random import *
from graphc.functions.array.reductions import *
from graphc.functions.array.searching import *
from graphc.functions.array.shape.arrange import *
from graphc.functions.array.shape.padding import *
from graphc.functions.array.shape.rearrange import *
from graphc.functions.array.shape.shapes import *
from graphc.functions.array.statistics import *
from graphc.functions.array.tensors import as_tensor as as_tensor
from graphc.functions.array.tensors import astype as astype
from graphc.functions.network.activation import *
from graphc.functions.network.attention import *
from graphc.functions.network.contraction import *
from graphc.functions.network.convolution import *
from graphc.functions.network.dropouts import *
from graphc.functions.network.images import *
from graphc.functions.network.losses.ctc import ctc_loss as ctc_loss
from graphc.functions.network.losses.distances import *
from graphc.functions.network.losses.linear_loss import *
from graphc.functions.network.losses.loss import *
from graphc.functions.network.losses.losses import *
from graphc.functions.network.losses.margins import *
from graphc.functions.network.max_pooling import *
from graphc.functions.network.normalization import *
from graphc.functions.network.pooling import *
from graphc.functions.network.recurrent import *
from graphc.functions.network.resize import *
from graphc.functions.network.scaling import *
from graphc.functions.network.softmax import *
from graphc.trace import Operand

if not TYPE_CHECKING:
    from graphc.functions.array.linear.matrix_trace import trace as trace

_SHARED = (
    "averages",
    "draws",
    "indices",
    "labels",
    "looping",
    "no_axes",
    "places",
    "precision",
    "reducing",
    "scores",
    "tensors",
    "values_alone",
    "windows",
)
"""The modules of both folders that the others are written with; users do not call these."""


def _is_public(name: str, found: object) -> bool:
    module = getattr(found, "__module__", "")
    own = module.startswith((f"{__name__}.array.", f"{__name__}.network."))
    own = own and module.rpartition(".")[2] not in _SHARED
    return own and isinstance(found, FunctionType) and not name.startswith("_")


NAMES = [name for name, found in globals().items() if _is_public(name, found)]
NAMES += ["as_tensor", "astype"]
for _name in NAMES:
    globals()[_name] = hints.with_keyword_hints(globals()[_name])
if not TYPE_CHECKING:  # type checkers see what is imported
    __all__ = NAMES


def __dir__() -> list[str]:
    return NAMES


Operand.functions = sys.modules[__name__]
