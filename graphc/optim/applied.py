"""Gradients that a function gives itself, in place of those of a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphc import functions
from graphc.base.source_lines import error
from graphc.functions.array.looping import BodyBuilder
from graphc.ir import FLOATS
from graphc.nn.module import Module
from graphc.trace import current_builder


def apply(model: Module, gradients: Mapping[str, Any]) -> None:
    """Give the gradients by which compile's `update` changes parameters, in a traced function.

    The function then needs no loss as its first result. It may be compiled itself, to a program
    that takes gradients and updates a model.

    Args:
        model: The model.
        gradients: The gradient of each of its parameters that is to change, by the names of
            `named_parameters`, as `grad` returns them.

    Raises:
        GraphError: A name is no trainable parameter's, a gradient does not fit, or a scan or vmap
            calls the function.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> given = {"weight": np.ones((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
        >>> step = graphc.compile(optim.apply, model, given, update=optim.SGD(lr=0.5))
        >>> before = model.weight.numpy()
        >>> step(given)
        >>> before - model.weight.numpy()
        array([[0.5, 0.5]], dtype=float32)
    """
    builder = current_builder()
    if isinstance(builder, BodyBuilder):
        raise error("apply: expected to be called outside of scan, vmap and other bodies")
    parameters = dict(model.named_parameters())
    for name, given in gradients.items():
        parameter = parameters.get(name)
        if parameter is None or not parameter.trainable:
            what = "is frozen" if name in parameters else f"{type(model).__name__} has none such"
            raise error(f"apply: expected names of trainable parameters, got {name!r}: {what}")
        gradient = functions.as_tensor(given)
        if gradient.shape != parameter.shape or gradient.dtype not in FLOATS:
            raise error(f"apply: {name} is {parameter.type}, its gradient is {gradient.value.type}")
        builder.applied.append((parameter, builder.own(gradient)))
