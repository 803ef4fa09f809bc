"""Symbols per second of a small GPT with a cache: `python -m benchmarks.generation`.

graphc, PyTorch's eager mode and ONNX Runtime go on with one prompt, greedily, in turns, with equal
weights; all must write the same symbols. PyTorch writes into caches of the full length and attends
to what is filled. ONNX Runtime gets the caches so far and gives them one position longer, which
stay its own tensors from call to call. A round's figure is the rate of all its symbols by the
processor's time, which other processes change less; the table gives the median of the rounds, and
the least and greatest.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import graphc

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
from gpt_text import GPT, SYMBOLS, Writer  # type: ignore[import-not-found]

Array = np.ndarray[Any, Any]
Generate = Callable[[Array, int], Array]
"""From a prompt i32[n, t] and a number to as many symbols of each row, i32[number, n]."""
EPSILON = 1e-5


def by_graphc(model: GPT, n: int, t: int, threads: int) -> Generate:
    """Programs for prompts i32[n, t]."""
    writer, lengths = Writer(model, n, 0.0), np.full(n, t, np.int32)
    specs = graphc.spec((n, t), "int32"), graphc.spec((n,), "int32")
    read = graphc.compile(writer.read, *specs, threads=threads, wait=True)
    step = graphc.compile(writer, threads=threads, wait=True)

    def generate(prompt: Array, count: int) -> Array:
        return np.array([read(prompt, lengths), *(step() for _ in range(count - 1))])

    return generate


def by_torch(model: GPT, n: int, t: int, threads: int) -> Generate:
    """Eager PyTorch."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    w = {name: torch.from_numpy(np.array(a)) for name, a in model.state_dict().items()}
    heads, width = model.heads, model.features // model.heads
    shape = (2, len(model.blocks), n, heads, model.limit, width)
    caches = torch.zeros(shape)

    def dense(name: str, x: Any) -> Any:
        return functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    def norm(name: str, x: Any) -> Any:
        shape = (model.features,)
        return functional.layer_norm(x, shape, w[f"{name}.weight"], w[f"{name}.bias"], EPSILON)

    def forward(x: Any, at: int) -> Any:
        t = x.shape[1]
        y = w["symbols.weight"][x] + w["places.weight"][at : at + t]
        for i in range(len(model.blocks)):
            name = f"blocks.{i}"
            parts = dense(f"{name}.qkv", norm(f"{name}.norms.0", y)).view(n, t, 3, heads, width)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            caches[0, i, :, :, at : at + t], caches[1, i, :, :, at : at + t] = k, v
            keys, values = caches[:, i, :, :, : at + t]
            z = functional.scaled_dot_product_attention(q, keys, values, is_causal=t > 1)
            y = y + dense(f"{name}.projection", z.transpose(1, 2).reshape(n, t, -1))
            z = dense(f"{name}.up", norm(f"{name}.norms.1", y))
            y = y + dense(f"{name}.down", functional.gelu(z, approximate="tanh"))
        return dense("head", norm("norm", y[:, -1:]))[:, 0].argmax(-1)

    @torch.inference_mode()
    def generate(prompt: Array, count: int) -> Array:
        symbols = [forward(torch.from_numpy(prompt).long(), 0)]
        while len(symbols) < count:
            symbols.append(forward(symbols[-1][:, None], t + len(symbols) - 1))
        return torch.stack(symbols).numpy()

    return generate


def by_onnxruntime(model: GPT, n: int, t: int, threads: int) -> Generate:
    """ONNX Runtime, which gets caches of any length."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        onnx_model(model, n).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    given = onnxruntime.OrtValue.ortvalue_from_numpy
    empty = np.zeros((n, model.heads, 0, model.features // model.heads), np.float32)

    def generate(prompt: Array, count: int) -> Array:
        inputs = {f"past.{i}": given(empty) for i in range(2 * len(model.blocks))}
        inputs["x"], symbols, at = given(prompt.astype(np.int64)), list[Array](), 0
        for _ in range(count):
            t = inputs["x"].shape()[1]
            inputs["positions"] = given(np.arange(at, at + t))
            mask = np.triu(np.full((t, at + t), -np.inf, np.float32), at + 1)
            inputs["mask"], at = given(mask), at + t
            symbol, *caches = session.run_with_ort_values(names, inputs)
            symbols.append(symbol.numpy())
            inputs = {f"past.{i}": cache for i, cache in enumerate(caches)}
            inputs["x"] = given(symbols[-1][:, None])
        return np.array(symbols)

    return generate


def onnx_model(model: GPT, n: int) -> Any:
    """A step as an ONNX model, with the operators that exporters write."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = list[Any](), dict[str, Array]()
    weights = {name: np.array(a) for name, a in model.state_dict().items()}
    heads, width = model.heads, model.features // model.heads

    def constant(array: Array) -> str:
        constants[f"c{len(constants)}"] = array
        return f"c{len(constants) - 1}"

    def add(kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def dense(name: str, x: str) -> str:
        y = add("MatMul", x, constant(np.ascontiguousarray(weights[f"{name}.weight"].T)))
        bias = weights.get(f"{name}.bias")
        return y if bias is None else add("Add", y, constant(bias))

    def norm(name: str, x: str) -> str:
        pair = constant(weights[f"{name}.weight"]), constant(weights[f"{name}.bias"])
        return add("LayerNormalization", x, *pair, axis=-1, epsilon=EPSILON)

    def shaped(x: str, *shape: int) -> str:
        return add("Reshape", x, constant(np.array(shape, np.int64)))

    def heads_of(x: str, part: int) -> str:
        first = constant(np.array(part, np.int64))
        apart = add("Gather", shaped(x, n, -1, 3, heads, width), first, axis=2)
        return add("Transpose", apart, perm=[0, 2, 1, 3])

    symbols = add("Gather", constant(weights["symbols.weight"]), "x")
    y = add("Add", symbols, add("Gather", constant(weights["places.weight"]), "positions"))
    for i in range(len(model.blocks)):
        name = f"blocks.{i}"
        joined = dense(f"{name}.qkv", norm(f"{name}.norms.0", y))
        q = heads_of(joined, 0)
        k, v = (
            add("Concat", f"past.{c}", heads_of(joined, p), output=f"present.{c}", axis=2)
            for p, c in ((1, 2 * i), (2, 2 * i + 1))
        )
        scores = add("MatMul", q, add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = add("Mul", scores, constant(np.array(width**-0.5, np.float32)))
        z = add("MatMul", add("Softmax", add("Add", scores, "mask"), axis=-1), v)
        z = shaped(add("Transpose", z, perm=[0, 2, 1, 3]), n, -1, model.features)
        y = add("Add", y, dense(f"{name}.projection", z))
        z = dense(f"{name}.up", norm(f"{name}.norms.1", y))
        y = add("Add", y, dense(f"{name}.down", add("Gelu", z, approximate="tanh")))
    last = add("Gather", y, constant(np.array(-1, np.int64)), axis=1)
    add("ArgMax", dense("head", norm("norm", last)), output="symbol", axis=-1, keepdims=0)

    def value(name: str, kind: int, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    def caches(name: str, length: str) -> list[Any]:
        count = range(2 * len(model.blocks))
        return [value(f"{name}.{i}", TensorProto.FLOAT, n, heads, length, width) for i in count]

    graph = helper.make_graph(
        nodes,
        "step",
        [
            value("x", TensorProto.INT64, n, "t"),
            value("positions", TensorProto.INT64, "t"),
            value("mask", TensorProto.FLOAT, "t", "all"),
            *caches("past", "past"),
        ],
        [value("symbol", TensorProto.INT64, n), *caches("present", "all")],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


FRAMEWORKS = {"graphc": by_graphc, "torch": by_torch, "onnxruntime": by_onnxruntime}


def rates(options: argparse.Namespace, n: int) -> Iterator[tuple[str, list[float]]]:
    """Symbols per CPU second of each framework in each round. SystemExit if symbols differ."""
    graphc.seed(0)
    model = GPT(options.features, 4, options.layers, options.prompt + options.symbols)
    prompt = np.random.default_rng(0).integers(0, len(SYMBOLS), (n, options.prompt), np.int32)
    made = {
        name: FRAMEWORKS[name](model, n, options.prompt, options.threads)
        for name in options.frameworks
    }
    expected = {name: generate(prompt, options.symbols) for name, generate in made.items()}
    for name, symbols in expected.items():
        if not np.array_equal(symbols, next(iter(expected.values()))):
            raise SystemExit(f"{name} writes other symbols")
    found = {name: list[float]() for name in made}
    for _ in range(options.rounds):
        for name, generate in made.items():
            begin = time.process_time()
            generate(prompt, options.symbols)
            found[name].append(n * options.symbols / (time.process_time() - begin))
    yield from found.items()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="generation", description=__doc__)
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=[*FRAMEWORKS])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--symbols", type=int, default=240)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    print("| sequences | framework | symbols per CPU second | graphc's rate over it |")
    print("| --- | --- | --- | --- |")
    for n in options.batches:
        own = None
        for name, found in rates(options, n):
            own = own or found
            ratio = median(a / b for a, b in zip(own, found, strict=True))
            spread = f"{min(found):,.0f} to {max(found):,.0f}"
            print(f"| {n} | {name} | {median(found):,.0f} ({spread}) | {ratio:.2f} |")


if __name__ == "__main__":
    main()
