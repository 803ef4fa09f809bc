"""Modules and layers, with the names, arguments and parameter shapes of torch.nn."""

from graphc.nn.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Softshrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
)
from graphc.nn.attention import (
    MultiheadAttention,
)
from graphc.nn.container import (
    ModuleDict,
    ModuleList,
    ParameterList,
    Sequential,
)
from graphc.nn.convolution import (
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
)
from graphc.nn.dropout import (
    Dropout,
    Dropout1d,
    Dropout2d,
)
from graphc.nn.linear import (
    Bilinear,
    Embedding,
    Linear,
)
from graphc.nn.loss import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
)
from graphc.nn.module import (
    Module,
)
from graphc.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    LayerNorm,
    RMSNorm,
)
from graphc.nn.parameter import (
    Parameter,
)
from graphc.nn.pooling import (
    AvgPool2d,
    MaxPool2d,
)
from graphc.nn.shape import (
    Flatten,
    Identity,
    PixelShuffle,
    PixelUnshuffle,
    Unflatten,
)
from graphc.nn.transformer import (
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Bilinear",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "PReLU",
    "Parameter",
    "ParameterList",
    "PixelShuffle",
    "PixelUnshuffle",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Unflatten",
]
