"""Modules and layers, with the names, arguments and parameter shapes of torch.nn."""

from graphc.nn.activation import (
    ELU,
    GELU,
    Dropout,
    Flatten,
    Identity,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from graphc.nn.container import ModuleList, Sequential
from graphc.nn.convolution import Conv1d, Conv2d, ConvTranspose2d
from graphc.nn.linear import Embedding, Linear
from graphc.nn.module import Module
from graphc.nn.normalization import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm
from graphc.nn.parameter import Parameter
from graphc.nn.pooling import AvgPool2d, MaxPool2d

__all__ = [
    "ELU",
    "GELU",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
]
