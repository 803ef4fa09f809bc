"""Hints for functions of PyTorch's or NumPy's that go by another name here."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.functions.neighbours import OTHER_NAMES, remedy


def missing(name: str, known: Sequence[str]) -> str:
    """Return the message of the AttributeError for `name`, with the nearest known name."""
    plain = re.sub("^(cudnn|miopen|mkldnn|native|quantized|unsafe)_", "", name)
    plain = re.sub("(_with_indices|_copy|_)$", "", plain)
    nearest = OTHER_NAMES.get(plain, plain)
    if nearest in known:
        return f"graphc has no {name!r}; the nearest is graphc.{nearest}"
    instead = remedy(name)
    if instead:
        return f"graphc has no {name!r}: {instead}"
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
    "indices": "graphc.argmax, argmin and argsort give places",
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
    "values": "graphc.max, min and sort give the values alone",
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


def torch_function(function: Any, kind: str, functions: Sequence[str]) -> GraphError:
    """The error of a function of PyTorch's on a traced tensor or a parameter."""
    name = getattr(function, "__name__", str(function)).strip("_")
    plain = name.removesuffix("_")
    known = OTHER_NAMES.get(plain, plain)
    use = f"use graphc.{known}" if known in functions else missing(name, functions)
    return GraphError(
        f"torch's {name} works on PyTorch's tensors, got a graphc {kind}; {use} "
        f"({', '.join(user_line())})"
    )


def missing_attribute(name: str, methods: Sequence[str], functions: Sequence[str]) -> str:
    """The end of the AttributeError for a tensor's or parameter's `name`: what to use, if known."""
    if name in ATTRIBUTES:
        return f": {ATTRIBUTES[name]}"
    plain = name.removesuffix("_")
    known = OTHER_NAMES.get(plain, plain)
    if known in methods:
        return f": use x.{known}(...)"
    return f": use graphc.{known}(x, ...)" if known in functions else ""


def with_keyword_hints(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with an error that names graphc's keyword where PyTorch's is given."""
    inner = function
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    code = inner.__code__  # an inspect.signature costs ten times as much, at each import
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
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
