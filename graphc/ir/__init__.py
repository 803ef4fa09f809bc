"""The graph: values, types, ops, nodes in order, and their verification."""

from graphc.ir.graph import *
from graphc.ir.names import *
from graphc.ir.op import *
from graphc.ir.types import *
from graphc.ir.vocabulary import Gradients as Gradients
from graphc.ir.vocabulary import Tensor as Tensor
from graphc.ir.vocabulary import TensorLike as TensorLike
from graphc.ir.vocabulary import Tensors as Tensors
from graphc.ir.vocabulary import Vocabulary as Vocabulary
