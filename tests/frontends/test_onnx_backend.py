"""ONNX's own tests of backends: its operators, small models, and nine large ones.

What is not attempted stands in onnx_exclusions.txt, with a reason. A fifth runs each time, all in
the campaign, each under a limit of time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.limit import limited
from tests.tools import need_command, need_module

onnx = need_module("onnx")
need_module("onnx.backend.test")
numpy_helper = need_module("onnx.numpy_helper")
loader = need_module("onnx.backend.test.loader")
runner = need_module("onnx.backend.test.runner")

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
EXCLUSIONS = Path(__file__).with_name("onnx_exclusions.txt")
SECONDS = 120
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def excluded() -> dict[str, str]:
    """Name -> reason."""
    found: dict[str, str] = {}
    reason = ""
    for line in EXCLUSIONS.read_text().splitlines():
        if line.startswith("    "):
            found[line.strip()] = reason
        elif line and not line.startswith("#"):
            reason = line
    return found


CASES = {
    case.name: case
    for kind in KINDS
    for case in sorted(loader.load_model_tests(kind=kind), key=lambda case: str(case.name))
}
ATTEMPTED = [name for name in CASES if name not in excluded()]


def sample(names: list[str], share: int) -> list[Any]:
    """All of them; one of so many is part of each run."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=() if i % share == 0 else slow) for i, n in enumerate(names)]


def value(path: Path, kind: Any) -> Any:
    """What a file of a test holds: a tensor, a list of them, or nothing."""
    data = path.read_bytes()
    which = kind.WhichOneof("value")
    if which == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if which == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def check(name: str, device: str) -> None:
    """The case's outputs are those of its files, within its own tolerances."""
    from graphc.onnx.backend import GraphcBackend

    class On(GraphcBackend):
        place = device

    case = CASES[name]
    model = onnx.load(Path(case.model_dir) / "model.onnx")
    prepared = On.prepare(model)
    folders = sorted(Path(case.model_dir).glob("test_data_set*"))
    assert folders
    for folder in folders:
        inputs, expected = (
            [
                value(folder / f"{what}_{i}.pb", declared[i].type)
                for i in range(len(list(folder.glob(f"{what}_*.pb"))))
            ]
            for what, declared in (("input", model.graph.input), ("output", model.graph.output))
        )
        found = list(prepared.run(inputs))
        runner.Runner.assert_similar_outputs(expected, found, case.rtol, case.atol)


@pytest.mark.parametrize("name", sample(ATTEMPTED, 5))
def test_a_case_on_the_reference(name: str) -> None:
    with limited(SECONDS):
        check(name, "reference")


@pytest.mark.parametrize("name", sample(ATTEMPTED[::3], 20))
def test_a_case_on_the_cpu(name: str) -> None:
    need_command("g++", "clang++")
    with limited(SECONDS):
        check(name, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("path", LIGHT, ids=[path.stem for path in LIGHT])
def test_a_large_model(path: Path) -> None:
    """Its weights are constants that the file computes; the expected output lies beside it."""
    from graphc.onnx.backend import Prepared

    model = onnx.load(path)
    initial = {tensor.name for tensor in model.graph.initializer}
    inputs = [
        runner.Runner.generate_dummy_data(declared, seed=0, name=path.stem)
        for declared in model.graph.input
        if declared.name not in initial
    ]
    with limited(600):
        found = list(Prepared(model, "reference").run(inputs))
    expected = value(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0].type)
    runner.Runner.assert_similar_outputs([expected], found, 1e-3, 1e-7)


def test_what_is_excluded_is_known_and_most_is_attempted() -> None:
    assert {name for name in excluded() if name not in CASES} == set()
    assert all(excluded().values())
    nodes = [name for name in ATTEMPTED if Path(CASES[name].model_dir).parent.name == "node"]
    assert len(nodes) >= 1400
    for kind in ("lstm", "gru", "rnn_seq", "simple_rnn", "adam", "adagrad", "momentum"):
        assert not any(f"test_{kind}" in name for name in excluded()), kind
    assert len(LIGHT) == 9


def test_one_node_runs_by_itself() -> None:
    import numpy as np

    from graphc.onnx.backend import GraphcBackend

    node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])
    (y,) = GraphcBackend.run_node(node, [np.arange(6.0), np.array([3, -1])])
    assert y.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert GraphcBackend.supports_device("CPU")
    assert not GraphcBackend.supports_device("CUDA")
