"""Files that are not what they should be: 8,000 ONNX models and 2,000 safetensors files, changed in
bytes or in what they say. Reading them ends within ten seconds, in a result or in one of graphc's
exceptions, and opens nothing outside of the file's folder."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from benchmarks.limit import limited
from graphc import nn
from graphc.base.errors import CompileError, GraphError, PlanError, RunError
from tests.frontends.onnx_models import declared, helper, linear, model, node, onnx
from tests.support.onnx_load import external, looped, reshaped

OURS = (GraphError, CompileError, PlanError, RunError)
SECONDS = 10
BATCH = 100
slow = pytest.mark.slow


class _Watch:
    """What Python opens, removes, renames, starts or connects to while `names` is a list."""

    names: list[str] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.names is None:
            return
        if event == "open" and isinstance(arguments[0], str | bytes):
            self.names.append(os.fsdecode(arguments[0]))
        elif event.split(".")[0] in ("subprocess", "socket", "shutil", "ctypes", "pickle") or (
            event in ("os.remove", "os.rename", "os.mkdir", "os.system", "os.exec", "os.listdir")
        ):
            self.names.append(f"{event} {arguments}")


_WATCH = _Watch()
sys.addaudithook(_WATCH)


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Nothing outside of the folder is touched. Python's own files are those of its tracebacks."""
    _WATCH.names = []
    try:
        yield
    finally:
        names, _WATCH.names = _WATCH.names, None
    sources = (".py", ".pyc")
    assert [n for n in names if not n.startswith(str(folder)) and not n.endswith(sources)] == []


def ends_well(read: Callable[[], Any]) -> bool:
    """Whether it gave a result; False for one of our exceptions. Others are failures."""
    try:
        with limited(SECONDS):
            read()
    except OURS:
        return False
    return True


def recurrent() -> Any:
    arrays = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    nodes = [node("LSTM", "x w r", "y", hidden_size=2)]
    return model(nodes, [declared("x", (4, 2, 3))], [declared("y", (4, 1, 2, 2))], arrays)


def convolutional() -> Any:
    arrays = {"w": np.ones((2, 1, 3, 3), np.float32), "b": np.ones(2, np.float32)}
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("MaxPool", "c", "m", kernel_shape=[2, 2]),
        node("Shape", "m", "s"),
        node("ConstantOfShape", "s", "z"),
        node("Add", "m z", "a"),
        node("Resize", "a - scales", "u"),
        node("Flatten", "u", "f"),
        node("Softmax", "f", "y"),
    ]
    arrays["scales"] = np.array([1, 1, 2, 2], np.float32)
    inputs = [declared("x", (1, 1, 8, 8))]
    return model(nodes, inputs, [declared("y", (None, None))], arrays)


def gathered() -> Any:
    nodes = [
        node("Gather", "x i", "g", axis=1),
        node("TopK", "g k", "v p"),
        node("Slice", "v from to axes", "t"),
        node("Tile", "t times", "y"),
    ]
    arrays = {"i": [1, 0], "k": [2], "from": [0], "to": [2], "axes": [0], "times": [2, 1]}
    known = {name: np.array(value) for name, value in arrays.items()}
    return model(nodes, [declared("x", (3, 4))], [declared("y", (None, None))], known)


def nested() -> Any:
    inner = helper.make_function(
        "mine", "Inner", ["a"], ["b"], [node("Relu", "a", "b")], [helper.make_opsetid("", 18)]
    )
    call = helper.make_node("Inner", ["a"], ["b"], domain="mine")
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    outer = helper.make_function("mine", "Outer", ["a"], ["b"], [call], imports)
    nodes = [helper.make_node("Outer", ["x"], ["y"], domain="mine")]
    return model(nodes, [declared("x", (2,))], [declared("y", (2,))], functions=[inner, outer])


MODELS = [
    build().SerializeToString()
    for build in (linear, recurrent, convolutional, gathered, nested, reshaped)
]
MODELS += [looped(3).SerializeToString(), external("weights.bin").SerializeToString()]
NUMBERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, -(2**31), 2**40, 2**62, 10**9)
WORDS = ("", "x", "../secret", "/etc/passwd", "y", "NOTSET", "\0", "a" * 300, "Relu", "Loop", "If")


def changed_bytes(draw: random.Random, data: bytes) -> bytes:
    """The file with a few bytes changed, cut out, doubled or put in."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(made) + 1)
        span = draw.randint(1, 16)
        kind = draw.randrange(4)
        if kind == 0 and made:
            made[at % len(made)] = draw.randrange(256)
        elif kind == 1:
            del made[at : at + span]
        elif kind == 2:
            made[at:at] = made[at : at + span]
        else:
            made[at:at] = draw.randbytes(span)
    return bytes(made)


def fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """(message, field) for every field that is set, at any depth."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else list(value):
                yield from fields(part)


def changed_words(draw: random.Random, data: bytes) -> bytes:
    """The model with a few numbers, words or parts of it changed."""
    made = onnx.ModelProto.FromString(data)
    for _ in range(draw.randint(1, 3)):
        places = list(fields(made))
        if not places:
            break
        message, field = draw.choice(places)
        value = getattr(message, field.name)
        several = hasattr(value, "append") or hasattr(value, "add")
        if several and draw.random() < 0.5:
            kept = draw.randrange(len(value))
            if draw.random() < 0.5:
                del value[kept]
            else:
                value.append(value[kept])
        elif field.message_type is not None:
            message.ClearField(field.name)
        else:
            numbers = field.type not in (field.TYPE_STRING, field.TYPE_BYTES)
            new: Any = draw.choice(NUMBERS if numbers else WORDS)
            if field.type == field.TYPE_BYTES:
                new = new.encode()
            try:
                if several:
                    value[draw.randrange(len(value))] = new
                else:
                    setattr(message, field.name, new)
            except (ValueError, TypeError):
                message.ClearField(field.name)
    return bytes(made.SerializeToString())


def read_model(path: Path) -> None:
    """Load, trace with the declared inputs, and where that is small, run."""
    import graphc.onnx

    with watched(path.parent):
        module = graphc.onnx.load(path)
        names = {d.dim_param for v in module._declared for d in v.type.tensor_type.shape.dim}
        extents = dict.fromkeys([*names, *(f"axis{i}" for i in range(9))], 2)
        specs = module.specs(**extents)
        graph = graphc.trace(module, *specs)
    sizes = [v.type.size for n in graph.nodes for v in n.outputs] + [s.size for s in specs]
    if sum(sizes) < 10_000 and len(graph.nodes) < 100:
        program = graphc.compile(module, *specs, device="reference")
        program(*(np.zeros(s.shape, s.numpy_dtype) for s in specs))


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is imported when it is first needed is imported."""
    path = tmp_path_factory.mktemp("whole") / "model.onnx"
    for data in MODELS[:3]:
        path.write_bytes(data)
        read_model(path)


@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=slow if i >= 3 else ()) for i in range(8000 // BATCH)]
)
def test_models(number: int, tmp_path: Path) -> None:
    draw = random.Random(number)
    (tmp_path / "weights.bin").write_bytes(bytes(48))
    path = tmp_path / "model.onnx"
    results = []
    for _ in range(BATCH):
        change = draw.choice((changed_bytes, changed_words))
        path.write_bytes(change(draw, draw.choice(MODELS)))
        results.append(ends_well(lambda: read_model(path)))
    assert any(results)
    assert not all(results)


@pytest.mark.parametrize(
    "number", [pytest.param(i, marks=slow if i else ()) for i in range(2000 // BATCH)]
)
def test_weights(number: int, tmp_path: Path) -> None:
    draw = random.Random(number)
    layer, path = nn.Linear(3, 2), tmp_path / "weights.safetensors"
    graphc.save_weights(path, layer)
    data = path.read_bytes()
    results = []
    for _ in range(BATCH):
        path.write_bytes(changed_bytes(draw, data))

        def read() -> None:
            with watched(tmp_path):
                layer.load_state_dict(graphc.load_weights(path), strict=False)

        results.append(ends_well(read))
    assert not all(results)


def test_a_change_that_is_not_ours_would_be_found(tmp_path: Path) -> None:
    """The watch sees what is opened, the clock what does not end."""
    outside = tmp_path / "outside"
    outside.write_text("")
    with pytest.raises(AssertionError), watched(tmp_path / "inside"):
        outside.read_text()
    with pytest.raises(TimeoutError), limited(1):
        while True:
            pass
