"""What users call in traced functions: array functions by the names of the Python Array API,
neural-network functions by those of torch.nn.functional with `axis` for `dim`.

Arguments may be tensors, parameters, NumPy arrays and Python numbers, which take the dtype of their
partners. Other dtypes are promoted as `torch.result_type` does. The names are those of the modules'
`__all__`.
"""

from graphc.functions import (
    activation,
    arithmetic,
    arrange,
    attention,
    contraction,
    convolution,
    creation,
    cumulative,
    dropouts,
    elementwise,
    gathering,
    images,
    indexing,
    loops,
    loss,
    losses,
    margins,
    matrices,
    max_pooling,
    normalization,
    numeric,
    ordering,
    pooling,
    products,
    random,
    rearrange,
    recurrent,
    reductions,
    resize,
    scattering,
    shapes,
    special,
    statistics,
    subscripts,
    trigonometry,
)
from graphc.functions.activation import *
from graphc.functions.arithmetic import *
from graphc.functions.arrange import *
from graphc.functions.attention import *
from graphc.functions.contraction import *
from graphc.functions.convolution import *
from graphc.functions.creation import *
from graphc.functions.cumulative import *
from graphc.functions.dropouts import *
from graphc.functions.elementwise import *
from graphc.functions.gathering import *
from graphc.functions.hints import with_keyword_hints
from graphc.functions.images import *
from graphc.functions.indexing import *
from graphc.functions.loops import *
from graphc.functions.loss import *
from graphc.functions.losses import *
from graphc.functions.margins import *
from graphc.functions.matrices import *
from graphc.functions.max_pooling import *
from graphc.functions.normalization import *
from graphc.functions.numeric import *
from graphc.functions.ordering import *
from graphc.functions.pooling import *
from graphc.functions.products import *
from graphc.functions.random import *
from graphc.functions.rearrange import *
from graphc.functions.recurrent import *
from graphc.functions.reductions import *
from graphc.functions.resize import *
from graphc.functions.scattering import *
from graphc.functions.shapes import *
from graphc.functions.special import *
from graphc.functions.statistics import *
from graphc.functions.subscripts import *
from graphc.functions.tensors import as_tensor as as_tensor
from graphc.functions.trigonometry import *

__all__ = ["as_tensor"]
__all__ += activation.__all__
__all__ += arithmetic.__all__
__all__ += arrange.__all__
__all__ += attention.__all__
__all__ += contraction.__all__
__all__ += convolution.__all__
__all__ += creation.__all__
__all__ += cumulative.__all__
__all__ += dropouts.__all__
__all__ += elementwise.__all__
__all__ += gathering.__all__
__all__ += images.__all__
__all__ += indexing.__all__
__all__ += loops.__all__
__all__ += loss.__all__
__all__ += losses.__all__
__all__ += margins.__all__
__all__ += matrices.__all__
__all__ += max_pooling.__all__
__all__ += normalization.__all__
__all__ += numeric.__all__
__all__ += ordering.__all__
__all__ += pooling.__all__
__all__ += products.__all__
__all__ += random.__all__
__all__ += rearrange.__all__
__all__ += recurrent.__all__
__all__ += reductions.__all__
__all__ += resize.__all__
__all__ += scattering.__all__
__all__ += shapes.__all__
__all__ += special.__all__
__all__ += statistics.__all__
__all__ += subscripts.__all__
__all__ += trigonometry.__all__

for _name in __all__:
    globals()[_name] = with_keyword_hints(globals()[_name])
