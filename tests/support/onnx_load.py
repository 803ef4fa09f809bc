"""Helpers of test_onnx_load.py and of tests beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.onnx_models import (
    BOOL,
    FLOAT,
    INT64,
    declared,
    helper,
    linear,
    model,
    node,
    onnx,
)

Y23, Y = [declared("y", (2, 3))], [declared("y", (None, None))]


def reshaped() -> Any:
    inputs = [declared("x", (None, None)), declared("shape", (2,), INT64)]
    return model([node("Reshape", "x shape", "y")], inputs, Y)


def looped(trips: int) -> Any:
    """x + 0 + 1 + ... in so many iterations, each of which is stacked."""
    body = helper.make_graph(
        [
            node("Cast", "i", "number", to=FLOAT),
            node("Add", "old number", "new"),
            node("Identity", "go", "going"),
            node("Identity", "new", "each"),
        ],
        "body",
        [declared("i", (), INT64), declared("go", (), BOOL), declared("old", (2,))],
        [declared("going", (), BOOL), declared("new", (2,)), declared("each", (2,))],
    )
    nodes = [node("Loop", "trips - x", "y all", body=body)]
    outputs = [declared("y", (2,)), declared("all", (None, 2))]
    return model(nodes, [declared("x", (2,))], outputs, {"trips": np.array(trips)})


def external(location: str, **told: str) -> Any:
    """`linear` with a weight that lies in a file."""
    built = linear()
    tensor = built.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **told}.items():
        tensor.external_data.add(key=key, value=value)
    return built
