"""What to use for a function of PyTorch's or NumPy's that goes by another name here."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from graphc.errors import GraphError
from graphc.lines import user_line

OTHER_NAMES = {
    "absolute": "abs",
    "addmm": "linear",
    "affine_grid": "matmul",
    "alpha_dropout": "dropout",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "arg_max": "argmax",
    "asarray": "as_tensor",
    "baddbmm": "matmul",
    "bitwise_invert": "bitwise_not",
    "bmm": "matmul",
    "broadcast_arrays": "broadcast_to",
    "cat": "concat",
    "channel_shuffle": "permute_dims",
    "chunk": "split",
    "clamp": "clip",
    "clamp_max": "minimum",
    "clamp_min": "maximum",
    "concatenate": "concat",
    "conv_tbc": "conv1d",
    "cross_entropy_loss": "cross_entropy",
    "ctc_loss": "nll_loss",
    "detach": "stop_gradient",
    "diff": "subtract",
    "div": "divide",
    "dot": "vecdot",
    "empty": "zeros",
    "empty_like": "zeros_like",
    "eq": "equal",
    "feature_alpha_dropout": "dropout",
    "fix": "trunc",
    "fliplr": "flip",
    "flipud": "flip",
    "fractional_max_pool2d": "adaptive_max_pool2d",
    "fractional_max_pool3d": "max_pool3d",
    "from_numpy": "as_tensor",
    "ge": "greater_equal",
    "grid_sample": "take_along_axis",
    "grouped_mm": "matmul",
    "gt": "greater",
    "gumbel_softmax": "softmax",
    "hstack": "concat",
    "index_add": "scatter_add",
    "inner": "vecdot",
    "le": "less_equal",
    "linear_cross_entropy": "cross_entropy",
    "lt": "less",
    "masked_select": "where",
    "max_unpool2d": "interpolate",
    "mm": "matmul",
    "movedim": "moveaxis",
    "mul": "multiply",
    "multi_head_attention_forward": "scaled_dot_product_attention",
    "multi_margin_loss": "cross_entropy",
    "multilabel_soft_margin_loss": "binary_cross_entropy_with_logits",
    "multinomial": "argmax",
    "mv": "matmul",
    "narrow": "split",
    "native_channel_shuffle": "permute_dims",
    "ne": "not_equal",
    "neg": "negative",
    "nonzero": "where",
    "pdist": "pairwise_distance",
    "permute": "permute_dims",
    "pixel_shuffle": "permute_dims",
    "pixel_unshuffle": "unfold",
    "power": "pow",
    "rand": "dropout",
    "randn": "dropout",
    "ravel": "flatten",
    "relu_": "relu",
    "repeat_interleave": "repeat",
    "rrelu": "leaky_relu",
    "rrelu_": "leaky_relu",
    "scaled_grouped_mm": "matmul",
    "scaled_mm": "matmul",
    "select": "take",
    "sgn": "sign",
    "sub": "subtract",
    "take_along_dim": "take_along_axis",
    "tensor": "as_tensor",
    "tensor_split": "split",
    "triplet_margin_with_distance_loss": "triplet_margin_loss",
    "true_divide": "divide",
    "unbind": "unstack",
    "unsqueeze": "expand_dims",
    "upsample": "interpolate",
    "upsample_bilinear": "interpolate",
    "upsample_nearest": "interpolate",
    "vector_norm": "norm",
    "view": "reshape",
    "view_as": "reshape",
    "vstack": "concat",
}
"""Names without a function here -> the nearest one."""


def missing(name: str, known: Sequence[str]) -> str:
    """The message of the AttributeError for `name`; names the nearest of `known`, if any."""
    plain = name.removesuffix("_with_indices")
    nearest = OTHER_NAMES.get(plain, plain)
    if nearest not in known:
        nearest = next(iter(difflib.get_close_matches(plain, known, 1, 0.75)), "")
    hint = f"; the nearest is graphc.{nearest}" if nearest else ""
    return f"graphc has no {name!r}{hint}"


ATTRIBUTES = {
    "backward": "compile's update= or graphc.grad give gradients",
    "bool": 'use x.astype("bool")',
    "clone": "tensors never change: use x itself",
    "contiguous": "layouts are graphc's own: use x itself",
    "cpu": "compile's device= says where a program runs",
    "cuda": "compile's device= says where a program runs",
    "data": "assign(array) overwrites a parameter and numpy() copies it",
    "device": "compile's device= says where a program runs",
    "dim": "use x.ndim",
    "double": 'use x.astype("float64")',
    "float": 'use x.astype("float32")',
    "grad": "compile's update= or graphc.grad give gradients",
    "half": 'use x.astype("float16")',
    "int": 'use x.astype("int32")',
    "item": "a program's results are NumPy arrays, which have it",
    "long": 'use x.astype("int64")',
    "numel": "use x.size",
    "numpy": "a program's results are NumPy arrays",
    "requires_grad": "a parameter's trainable says whether update rules change it",
    "t": "use x.T",
    "to": 'use x.astype("float32"); compile\'s device= says where a program runs',
    "tolist": "a program's results are NumPy arrays, which have it",
    "type": "use x.dtype and x.astype",
}
"""Attributes of PyTorch's and NumPy's tensors that are no function here -> what to use."""
KEYWORDS = {
    "dim": ("axis", "axes"),
    "dims": ("axes", "axis"),
    "keepdim": ("keepdims",),
    "start_dim": ("start_axis",),
    "end_dim": ("end_axis",),
    "dim0": ("axis1",),
    "dim1": ("axis2",),
}
"""Keywords of PyTorch's -> those of graphc, the first that a function has."""


def missing_attribute(name: str, methods: Sequence[str]) -> str:
    """The end of the AttributeError for a tensor's or parameter's `name`: what to use, if known."""
    from graphc import functions

    if name in ATTRIBUTES:
        return f": {ATTRIBUTES[name]}"
    plain = name.removesuffix("_")
    known = OTHER_NAMES.get(plain, plain)
    if known in methods:
        return f": use x.{known}(...)"
    return f": use graphc.{known}(x, ...)" if known in functions.__all__ else ""


def with_keyword_hints(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with an error that names graphc's keyword where PyTorch's is given."""
    parameters = inspect.signature(function).parameters
    renamed = {
        theirs: next(name for name in ours if name in parameters)
        for theirs, ours in KEYWORDS.items()
        if theirs not in parameters and any(name in parameters for name in ours)
    }
    if not renamed:
        return function

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for theirs in kwargs.keys() & renamed.keys():
            raise GraphError(
                f"{function.__name__}: graphc says {renamed[theirs]}=, got {theirs}= "
                f"({', '.join(user_line())})"
            )
        return function(*args, **kwargs)

    checked.__module__ = "graphc.functions"  # where pickle finds this one
    return checked
