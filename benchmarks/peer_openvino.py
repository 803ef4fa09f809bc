"""Measure OpenVINO on the forward passes of the same workloads.

The model is the one that ONNX Runtime gets (`benchmarks.peer_onnxruntime`). OpenVINO compiles it
for the CPU in float32 with its latency hint and one stream; input and output stay in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import Case, main
from benchmarks.peer_onnxruntime import forward_model
from benchmarks.workload import Array


def prepare(case: Case) -> Callable[[], Any]:
    """A forward pass of the workload; SystemExit for training."""
    if case.mode != "forward":
        raise SystemExit("OpenVINO has forward passes alone")
    import openvino

    model, x = forward_model(case.workload)
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": case.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    text = model.SerializeToString()
    compiled = core.compile_model(core.read_model(text), "CPU", settings)
    request = compiled.create_infer_request()
    request.set_input_tensor(openvino.Tensor(x, shared_memory=True))

    def step() -> Array:
        assert text and x.size  # OpenVINO reads weights and input where they lie, and keeps neither
        request.infer()
        return np.asarray(request.get_output_tensor(0).data)

    return step


if __name__ == "__main__":
    main("openvino", ("default",), prepare)
