"""What users call in traced functions: array functions by the names of the Python Array API,
neural-network functions by those of torch.nn.functional with `axis` for `dim`.

Arguments may be tensors, parameters, NumPy arrays and Python numbers, which take the dtype of their
partners. Other dtypes are promoted as `torch.result_type` does. The names are those of the modules'
`__all__`.
"""

import sys

from graphc.functions import hints as hints
from graphc.functions.array import (
    arithmetic,
    arrange,
    creation,
    cumulative,
    elementwise,
    gathering,
    indexing,
    loops,
    matrices,
    matrix_product,
    numeric,
    ordering,
    products,
    random,
    rearrange,
    reductions,
    scattering,
    shapes,
    special,
    statistics,
    subscripts,
    trigonometry,
)
from graphc.functions.array.arithmetic import *
from graphc.functions.array.arrange import *
from graphc.functions.array.creation import *
from graphc.functions.array.cumulative import *
from graphc.functions.array.elementwise import *
from graphc.functions.array.gathering import *
from graphc.functions.array.indexing import *
from graphc.functions.array.loops import *
from graphc.functions.array.matrices import *
from graphc.functions.array.matrix_product import *
from graphc.functions.array.numeric import *
from graphc.functions.array.ordering import *
from graphc.functions.array.products import *
from graphc.functions.array.random import *
from graphc.functions.array.rearrange import *
from graphc.functions.array.reductions import *
from graphc.functions.array.scattering import *
from graphc.functions.array.shapes import *
from graphc.functions.array.special import *
from graphc.functions.array.statistics import *
from graphc.functions.array.subscripts import *
from graphc.functions.array.tensors import as_tensor as as_tensor
from graphc.functions.array.trigonometry import *
from graphc.functions.hints import with_keyword_hints
from graphc.functions.network import (
    activation,
    attention,
    contraction,
    convolution,
    dropouts,
    images,
    loss,
    losses,
    margins,
    max_pooling,
    normalization,
    pooling,
    recurrent,
    resize,
)
from graphc.functions.network.activation import *
from graphc.functions.network.attention import *
from graphc.functions.network.contraction import *
from graphc.functions.network.convolution import *
from graphc.functions.network.dropouts import *
from graphc.functions.network.images import *
from graphc.functions.network.loss import *
from graphc.functions.network.losses import *
from graphc.functions.network.margins import *
from graphc.functions.network.max_pooling import *
from graphc.functions.network.normalization import *
from graphc.functions.network.pooling import *
from graphc.functions.network.recurrent import *
from graphc.functions.network.resize import *
from graphc.trace import Operand

__all__ = ["as_tensor"]
__all__ += arithmetic.__all__
__all__ += arrange.__all__
__all__ += creation.__all__
__all__ += cumulative.__all__
__all__ += elementwise.__all__
__all__ += gathering.__all__
__all__ += indexing.__all__
__all__ += loops.__all__
__all__ += matrices.__all__
__all__ += matrix_product.__all__
__all__ += numeric.__all__
__all__ += ordering.__all__
__all__ += products.__all__
__all__ += random.__all__
__all__ += rearrange.__all__
__all__ += reductions.__all__
__all__ += scattering.__all__
__all__ += shapes.__all__
__all__ += special.__all__
__all__ += statistics.__all__
__all__ += subscripts.__all__
__all__ += trigonometry.__all__
__all__ += activation.__all__
__all__ += attention.__all__
__all__ += contraction.__all__
__all__ += convolution.__all__
__all__ += dropouts.__all__
__all__ += images.__all__
__all__ += loss.__all__
__all__ += losses.__all__
__all__ += margins.__all__
__all__ += max_pooling.__all__
__all__ += normalization.__all__
__all__ += pooling.__all__
__all__ += recurrent.__all__
__all__ += resize.__all__

for _name in __all__:
    globals()[_name] = with_keyword_hints(globals()[_name])

Operand.functions = sys.modules[__name__]
