"""graphc behind ONNX's interface for backends, so that its own tests run.

Inputs that decide shapes are only known when a model is run: the model is compiled then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import ModelProto, defs, helper
from onnx.backend.base import Backend, BackendRep

from graphc.ir import Type, dtype_name
from graphc.onnx.model import load, static_inputs
from graphc.program import compile


class Prepared(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: ModelProto, device: str | None) -> None:
        self.model, self.device = model, device
        self.static = static_inputs(model)

    def run(self, inputs: Any, **options: Any) -> tuple[Any, ...]:
        """Return the outputs for arrays in the order of the inputs, in the declared dtypes."""
        graph = self.model.graph
        initial = {t.name for t in graph.initializer}
        names = [
            v.name for v in graph.input if v.name not in initial or len(inputs) == len(graph.input)
        ]
        given = dict(zip(names, inputs, strict=False))
        constants = {n: v for n, v in given.items() if n in self.static or not _has_leaves(v)}
        module = load(self.model, constants)
        arrays = [given[name] for name in module.inputs]
        program = compile(module, *map(_spec, arrays), device=self.device)
        results = program(*arrays)
        found = results if isinstance(results, tuple) else (results,)
        return tuple(map(_typed, found, graph.output))


class GraphcBackend(Backend):
    """graphc for `onnx.backend.test`. `place` is compile's `device`."""

    place: ClassVar[str | None] = None

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> Prepared:
        onnx.checker.check_model(model)
        return Prepared(model, cls.place)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """The outputs of a model of one node."""
        arrays = [np.asarray(value) for value in inputs]
        made = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(node.input, arrays, strict=True)
        ]
        schema = defs.get_schema(node.op_type, domain=node.domain)
        types = {v.name: v.type for v in made}
        found = onnx.shape_inference.infer_node_outputs(schema, node, types)
        results = [helper.make_value_info(n, found[n]) for n in node.output if n]
        model = helper.make_model(helper.make_graph([node], "node", made, results))
        return Prepared(model, cls.place).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def _has_leaves(value: Any) -> bool:
    return value is not None and not (isinstance(value, list) and not value)


def _spec(value: Any) -> Any:
    if isinstance(value, list):
        return [_spec(v) for v in value]
    return Type(np.shape(value), dtype_name(np.asarray(value).dtype))


def _typed(value: Any, declared: Any) -> Any:
    """In the dtype that the model declares: bf16 comes as float32 from programs."""
    if isinstance(value, list):
        return value
    kind = declared.type.tensor_type.elem_type
    return np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(kind)) if kind else value
