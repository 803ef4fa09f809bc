"""Measure ONNX Runtime on the forward passes of the same workloads.

The model is written node by node from the workload's own forward function, with ONNX's composite
operators (LSTM, GRU, LayerNormalization, Gelu), as an exporter would. All graph optimisations are
on; the output stays in a bound buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import Case, main
from benchmarks.workload import Array, Workload

OPSET, IR_VERSION = 20, 10
ORDERS = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""PyTorch's gates in ONNX's order: i f g o as i o f c, r z n as z r h."""


class Model:
    """Nodes and constants of one graph, and the functions that add to them."""

    def __init__(self, x: Array) -> None:
        import onnx

        self.onnx, self.x = onnx, x
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.ascontiguousarray(array)
        return name

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> Symbol:
        """A node of one output. Inputs are symbols, arrays, or None where there is none."""
        names = [
            "" if i is None else i.name if isinstance(i, Symbol) else self.constant(i)
            for i in inputs
        ]
        output = f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [output], **attributes))
        return Symbol(self, output)

    def made(self, output: Symbol) -> Any:
        """The model from an input like `x` to `output`."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        kind = kinds.INT32 if self.x.dtype == np.int32 else kinds.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "workload",
            [helper.make_tensor_value_info("x", kind, self.x.shape)],
            [helper.make_tensor_value_info(output.name, kinds.FLOAT, None)],
            [self.onnx.numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


@dataclass(frozen=True)
class Symbol:
    """A value of a model."""

    model: Model
    name: str

    @property
    def extents(self) -> tuple[int, ...]:
        """Of each axis, by ONNX's own shape inference."""
        known = self.model.onnx.shape_inference.infer_shapes(self.model.made(self))
        return tuple(d.dim_value for d in known.graph.output[0].type.tensor_type.shape.dim)

    def __add__(self, other: Any) -> Symbol:
        return self.model.add("Add", self, other)

    def __mul__(self, other: Any) -> Symbol:
        return self.model.add("Mul", self, other)

    def reshape(self, *shape: int) -> Symbol:
        return self.model.add("Reshape", self, np.array(shape, np.int64))

    def mean(self, axes: tuple[int, ...]) -> Symbol:
        return self.model.add("ReduceMean", self, np.array(axes, np.int64), keepdims=0)

    def __getitem__(self, index: tuple[Any, slice]) -> Symbol:
        """A slice of the last axis: `x[..., a:b]`."""
        _, part = index
        ends = (np.array([n], np.int64) for n in (part.start, part.stop, -1))
        return self.model.add("Slice", self, *ends)


class Functions:
    """ONNX's operators by the names that PyTorch has; weights are arrays."""

    def __init__(self, model: Model) -> None:
        self.add = model.add

    def __getattr__(self, name: str) -> Any:
        if name not in ("relu", "sigmoid", "tanh"):
            raise AttributeError(name)
        return lambda x: self.add(name.capitalize(), x)

    def conv2d(self, x: Symbol, w: Array, b: Any, stride: int = 1, padding: int = 0) -> Symbol:
        return self.add("Conv", x, w, b, strides=[stride] * 2, pads=[padding] * 4)

    def max_pool2d(
        self, x: Symbol, size: int, stride: int | None = None, padding: int = 0
    ) -> Symbol:
        window = {"kernel_shape": [size] * 2, "strides": [stride or size] * 2}
        return self.add("MaxPool", x, **window, pads=[padding] * 4)

    def batch_norm(
        self, x: Symbol, mean: Array, var: Array, weight: Array, bias: Array, training: bool
    ) -> Symbol:
        return self.add("BatchNormalization", x, weight, bias, mean, var, epsilon=1e-5)

    def layer_norm(self, x: Symbol, shape: tuple[int, ...], weight: Array, bias: Array) -> Symbol:
        return self.add("LayerNormalization", x, weight, bias, axis=-1, epsilon=1e-5)

    def linear(self, x: Symbol, weight: Array, bias: Array | None = None) -> Symbol:
        y = self.add("MatMul", x, weight.T)
        return y if bias is None else y + bias

    def flatten(self, x: Symbol, first: int) -> Symbol:
        return self.add("Flatten", x, axis=first)

    def softmax(self, x: Symbol, axis: int) -> Symbol:
        return self.add("Softmax", x, axis=axis)

    def gelu(self, x: Symbol, approximate: str = "none") -> Symbol:
        return self.add("Gelu", x, approximate=approximate)

    def swapaxes(self, x: Symbol, first: int, second: int) -> Symbol:
        """Of four axes."""
        order = list(range(4))
        order[first], order[second] = second, first
        return self.add("Transpose", x, perm=order)

    def embedding(self, indices: Symbol, table: Array) -> Symbol:
        return self.add("Gather", table, indices)

    def scaled_dot_product_attention(
        self, q: Symbol, k: Symbol, v: Symbol, is_causal: bool
    ) -> Symbol:
        rows, features = q.extents[-2:]
        mask = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
        scale = np.array(features**-0.5, np.float32)
        return self._product(
            self.softmax(self._product(q, self.swapaxes(k, 2, 3)) * scale + mask, -1), v
        )

    def _product(self, x: Symbol, y: Symbol) -> Symbol:
        return self.add("MatMul", x, y)

    def zeros(self, shape: tuple[int, ...], device: Any = None) -> tuple[int, ...]:
        return shape

    def lstm(self, x: Symbol, initial: Any, flat: list[Array], *settings: Any) -> tuple[Symbol]:
        return (self._recurrent("LSTM", x, initial[0], flat),)

    def gru(
        self, x: Symbol, initial: tuple[int, ...], flat: list[Array], *settings: Any
    ) -> tuple[Symbol]:
        return (self._recurrent("GRU", x, initial, flat, linear_before_reset=1),)

    def _recurrent(
        self, kind: str, x: Symbol, shape: tuple[int, ...], flat: list[Array], **attributes: int
    ) -> Symbol:
        layers, _, hidden = shape

        def ordered(array: Array) -> Array:
            gates = np.split(array, len(ORDERS[kind]))
            return np.concatenate([gates[i] for i in ORDERS[kind]])[None]

        for layer in range(layers):
            w_ih, w_hh, b_ih, b_hh = map(ordered, flat[4 * layer : 4 * layer + 4])
            biases = np.concatenate([b_ih, b_hh], 1)
            y = self.add(kind, x, w_ih, w_hh, biases, hidden_size=hidden, **attributes)
            x = self.add("Squeeze", y, np.array([1], np.int64))
        return x


def forward_model(workload: Workload) -> tuple[Any, Array]:
    """The forward pass of `workload` as an ONNX model with input "x", and the array for it."""
    data = workload.data()
    x, tensors = np.ascontiguousarray(data.x), {**data.parameters, **data.statistics}
    model = Model(x)
    return model.made(workload.forward(Functions(model), tensors, Symbol(model, "x"), False)), x


def prepare(case: Case) -> Callable[[], Any]:
    """A forward pass of the workload; SystemExit for training."""
    if case.mode != "forward":
        raise SystemExit("ONNX Runtime has forward passes alone")
    import onnxruntime

    model, x = forward_model(case.workload)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = case.threads, 1
    text, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(text, options, providers=providers)
    (result,) = session.run(None, {"x": x})
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    place = result.ctypes.data
    name = session.get_outputs()[0].name
    binding.bind_output(name, "cpu", 0, result.dtype, result.shape, place)

    def step() -> Array:
        session.run_with_iobinding(binding)
        return result

    return step


if __name__ == "__main__":
    main("onnxruntime", ("default",), prepare)
