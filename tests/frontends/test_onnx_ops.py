"""Every op with a writer, alone in a file: the checker accepts it, ONNX Runtime computes the same
where it has the operators for the dtypes, and so does what is loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Graph, Node, Value
from graphc.ir.interpret import evaluate
from tests.frontends.onnx_files import loaded, played_by_runtime
from tests.ops.sample import Sample, for_each_op
from tests.ops.samples import SAMPLES

S = graphc.spec
UNITS = {"float16": 2.0**-8, "float32": 2.0**-17, "float64": 2.0**-17}
"""How far results may be off, of the largest: other functions, and sums in other orders."""
ONE_RESULT = ("max_pool2d",)
"""Ops whose other results are for gradients."""


def assert_equal(got: Any, want: Any) -> None:
    a, b = np.asarray(got), np.asarray(want)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if b.dtype.kind == "f":
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=1))
        np.testing.assert_allclose(a, b, rtol=0, atol=UNITS[str(b.dtype)] * largest)
    else:
        np.testing.assert_array_equal(a, b)


def variants(sample: Sample) -> list[Sample]:
    """The sample in each float dtype that NumPy has."""
    found = [sample, *(sample.with_floats(d) for d in FLOATS if d != "bf16")]
    types = [[*s.inputs, *s.op.infer(*s.inputs)] for s in found]
    return [s for s, t in zip(found, types, strict=True) if all(k.dtype != "bf16" for k in t)]


FIRST = [s for s in SAMPLES if sum(t.op.name == s.op.name for t in SAMPLES[: SAMPLES.index(s)]) < 4]


@for_each_op([s for s in FIRST if s.op.name not in ("attention", "attention_grad")])
def test_an_op_is_written(sample: Sample) -> None:
    import tempfile

    for variant in dict.fromkeys(variants(sample)):
        inputs = tuple(Value(f"x{i}", t) for i, t in enumerate(variant.inputs))
        results = enumerate(variant.op.infer(*variant.inputs))
        outputs = tuple(Value(f"y{i}", t) for i, t in results)
        node = Node(variant.op, inputs, outputs)
        shown = outputs[:1] if variant.op.name in ONE_RESULT else outputs
        graph = Graph("one", inputs, (), (node,), shown)
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(graph, variant.arrays(), Path(folder))
            except GraphError as error:
                assert "not offered" in str(error)


def check(graph: Graph, arrays: Any, folder: Path) -> None:
    """Zeros have their signs in what is loaded; ONNX Runtime's Where loses them."""
    expected, _ = evaluate(graph, list(arrays))
    model = loaded(graph, folder / "model.onnx")
    kinds = [value.type for value in graph.inputs]
    found = graphc.compile(model, *kinds, device="reference", training=False)(*arrays)
    found = found if isinstance(found, tuple | list) else [found]
    for results in (found, played_by_runtime(folder / "model.onnx", list(arrays))):
        if results is not None:
            for got, want in zip(results, expected, strict=True):
                assert_equal(got, want)
    for got, want in zip(found, expected, strict=True):
        if want.dtype.kind == "f":
            zero = (got == 0) & (want == 0)
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


def quotients(a: Any, b: Any) -> Any:
    return a // b, a % b, graphc.fmod(a, b)


@pytest.mark.parametrize("dtype", ["u8", "i8", "i32", "i64", "f16", "f32", "f64"])
def test_quotients_by_anything(dtype: str, tmp_path: Path) -> None:
    kind = S((), dtype).numpy_dtype
    if dtype.startswith("f"):
        numbers = [0.0, -0.0, 1, -1, 2.5, -2.5, 3, -3, 0.1, -0.1, np.inf, -np.inf, np.nan]
    else:
        limits = np.iinfo(kind)
        numbers = [n for n in (0, 1, -1, 3, -3, 7, limits.min, limits.max) if n >= limits.min]
    a, b = (x.ravel() for x in np.meshgrid(np.array(numbers, kind), np.array(numbers, kind)))
    check(graphc.trace(quotients, S(a.shape, dtype), S(b.shape, dtype)), (a, b), tmp_path)


# fmt: off
PROGRAMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "no axes": (lambda x: (graphc.permute_dims(x, ()), graphc.flip(x, axis=())), (S(()),)),
    "booleans in order": (lambda x: (graphc.sort(x), graphc.topk(x, 2)[1]), (S((3, 4), "bool"),)),
    "minus bytes": (lambda x: (-x, graphc.relu(x), graphc.cumsum(x, 0)), (S((5,), "u8"),)),
    "reads of nothing": (lambda x, i: (graphc.take(x, i, 0), graphc.gather(x, 0, i[:, None])),
                         (S((0, 2)), S((3,), "i32"))),
    "no elements": (lambda x: (graphc.repeat(x, 0, 0), x[2:] @ x.T, graphc.sum(x[:, 1:1], 1)),
                    (S((2, 3)),)),
    "no iterations": (lambda x: graphc.scan(lambda c, e: (c + e, c), x[0], x[:0]), (S((2, 3)),)),
    "sums of f16": (lambda x, i: graphc.scatter_add(x, 0, i, x), (S((6,), "f16"), S((6,), "i64"))),
    "squares beyond f16": (lambda x: graphc.hypot(x * 200, x * 200), (S((6,), "f16"),)),
    "attention of f16": (lambda x: graphc.scaled_dot_product_attention(x, x, x),
                         (S((1, 2, 3, 4), "f16"),)),
}
# fmt: on


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_few_programs_hold(name: str, tmp_path: Path) -> None:
    fn, specs = PROGRAMS[name]
    random = np.random.default_rng(0)
    arrays = [np.asarray(random.integers(0, 3, s.shape)).astype(s.numpy_dtype) for s in specs]

    def flat(*tensors: Any) -> Any:
        from graphc.ir import tree

        found: Any = fn(*tensors)
        return [leaf for _, leaf in tree.leaves(found)]

    check(graphc.trace(flat, *specs), arrays, tmp_path)
