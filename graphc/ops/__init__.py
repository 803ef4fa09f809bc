"""The ops, a file per family. Importing this registers all of them."""

from graphc.ops.attention import *
from graphc.ops.base import *
from graphc.ops.constant import *
from graphc.ops.convolution import *
from graphc.ops.custom_gradient import *
from graphc.ops.fused import *
from graphc.ops.indexing import *
from graphc.ops.join import *
from graphc.ops.loops.scan import *
from graphc.ops.matmul import *
from graphc.ops.pointwise.arithmetic import *
from graphc.ops.pointwise.bitwise import *
from graphc.ops.pointwise.elementary import *
from graphc.ops.pointwise.fused_multiply_add import *
from graphc.ops.pointwise.logic import *
from graphc.ops.pointwise.rounding import *
from graphc.ops.pointwise.special import *
from graphc.ops.pointwise.trigonometry import *
from graphc.ops.pooling import *
from graphc.ops.prefix import *
from graphc.ops.random import *
from graphc.ops.reduction import *
from graphc.ops.scatter import *
from graphc.ops.sort import *
from graphc.ops.view import *
