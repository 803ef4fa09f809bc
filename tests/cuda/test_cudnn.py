"""Convolutions by a library: what is one, what cuDNN is asked for, and what it answers."""

from __future__ import annotations

import ctypes
import gc
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import Array
from graphc.base.errors import CompileError
from graphc.ir import Node
from graphc.ir.state import aligned_empty
from graphc.kernels.cuda.libraries.call_kernel import call_kernel
from graphc.kernels.cuda.libraries.convolution import convolution_of
from graphc.runtime.cuda import cudnn
from graphc.runtime.cuda.cudnn import PROPOSED, Cudnn
from tests.kernels.cuda_harness import traced
from tests.sim.playing import elements, fetch, laid, place, simulator
from tests.support import cublas as fake_cublas
from tests.support.cublas import aligned, close, given, spec
from tests.support.cudnn import (
    IMAGES,
    NODES,
    STEPS,
    build_fake,
    conv,
    convolution,
)
from tests.tools import run_python
from tools.driver_stub import build_stub, find_headers

ROOMS = [32, 48, 80]
"""Bytes that the fake's engines take which may be had by tensor cores; without them the last."""


WEIGHTS = spec(6, 4, 3, 2)
DOUBLES = [spec(*x, dtype="float64") for x in ((2, 4, 7, 6), (6, 4, 3, 2))]
OTHERS = [
    *(nodes[0] for nodes in STEPS.values()),  # whose weights have padded channels
    traced("tanh", lambda x, w: graphc.tanh(graphc.conv2d(x, w)), IMAGES, WEIGHTS),
    traced("scaled", lambda x, w: graphc.conv2d(x, w) * 2.0, IMAGES, WEIGHTS),
    traced("flipped", lambda x, w: graphc.conv2d(x[:, ::-1], w), IMAGES, WEIGHTS),
    traced("doubles", conv(), *DOUBLES),
    traced("product", graphc.matmul, spec(6, 8), spec(8, 12)),
    traced("row", lambda x, w, b: graphc.conv2d(x, w) + b, IMAGES, WEIGHTS, spec(5)),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Cudnn:
    return Cudnn(ctypes.CDLL(str(build_fake(tmp_path_factory.mktemp("cudnn")))))


def memory(node: Node) -> tuple[list[Array], list[Array], list[Array]]:
    """What lies in memory as inputs, what is to be the outputs, and memory for those, as it was."""
    inputs = given(node)
    expected = list(node.op.reference(*inputs))
    laid_out = [aligned(laid(a, v.type)) for a, v in zip(inputs, node.inputs, strict=True)]
    outputs = [
        aligned(np.full_like(laid(a, v.type), 7))
        for a, v in zip(expected, node.outputs, strict=True)
    ]
    return laid_out, expected, outputs


def check(node: Node, outputs: list[Array], expected: list[Array]) -> None:
    for value, got, want in zip(node.outputs, outputs, expected, strict=True):
        close(elements(got, value.type), want)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op.kernel)
def test_cudnn_is_asked_for_what_the_node_computes(node: Node, library: Cudnn):
    inputs, expected, outputs = memory(node)
    asked = convolution(node)
    prepared = library.prepare(asked)
    if asked.tf32:  # the fake does not round: as operands that tensor cores need not round either
        inputs = [aligned(np.round(x * 8) / 8) for x in inputs]
        logical = [elements(x, v.type) for x, v in zip(inputs, node.inputs, strict=True)]
        expected = list(node.op.reference(*logical))
    workspace = aligned_empty((128,), np.uint8)
    addresses = [a.ctypes.data for a in (*inputs, *outputs, workspace)]
    for rank in range(len(prepared.workspaces)):
        for out in outputs:
            out[...] = np.full_like(out, 7)
        prepared.issue(rank, addresses, SimpleNamespace(handle=5))()
        check(node, outputs, expected)


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.op.kernel)
def test_the_simulated_library_computes_the_same(node: Node):
    device = simulator()
    inputs, expected, outputs = memory(node)
    places = [place(device, a) for a in (*inputs, *outputs)]
    stream = device.Stream(1)
    addresses = [int(a) for a in places]
    device.convolutions.prepare(convolution(node)).issue(0, addresses, stream)()
    stream.synchronize()
    made = [fetch(device, p, a) for p, a in zip(places[len(inputs) :], outputs, strict=True)]
    check(node, made, expected)


@pytest.mark.parametrize("node", OTHERS, ids=lambda node: node.op.kernel)
def test_what_is_more_than_a_convolution_or_lies_otherwise_is_none(node: Node):
    assert convolution_of(node) is None


@pytest.mark.parametrize("precision", STEPS)
def test_what_follows_is_part_of_the_call(precision: str):
    found = [convolution(node) for node in STEPS[precision][1:]]
    kinds = [x.op for x in found]
    assert kinds.count("conv2d") == kinds.count("conv2d_dgrad") == 3
    assert kinds.count("conv2d_wgrad") == 4
    steps = [[step.op for step in x.epilogue] for x in found]
    assert ["add", "relu"] == steps[0][:2] and "relu_grad" in steps[-2] + steps[-3]
    element = "bf16" if precision == "bfloat16" else "f32"
    for x in found:
        assert {t.dtype for t in x.tensors[:2]} == {element} and x.tf32 == (precision == "tf32")
        assert x.tensors[-1].argument is not None
    first = found[0].tensors
    assert first[0].strides[1] == first[-1].strides[1] == 1, "channels run fastest"


def test_engines_in_no_fixed_order_or_without_room_or_of_other_products_are_not_taken(
    library: Cudnn,
):
    exact, tf32, narrow = (convolution(STEPS[x][1]) for x in STEPS)
    assert library.prepare(exact).workspaces == [80, 96]
    assert library.prepare(tf32).workspaces == library.prepare(narrow).workspaces == ROOMS
    assert len(ROOMS) == PROPOSED


def test_equal_layers_are_prepared_once_and_descriptors_are_given_back(library: Cudnn):
    made = convolution(NODES[0])
    assert library.prepare(made) is library.prepare(made)
    gc.collect()
    before = library._library.fake_alive()
    own = Cudnn(library._library)
    assert own.prepare(made).workspaces
    assert library._library.fake_alive() > before
    del own
    gc.collect()
    assert library._library.fake_alive() == before


def test_a_plan_that_is_not_there_is_named(library: Cudnn):
    text = r"^cuDNN 9\.28\.1 has no plan 3 for this convolution$"
    with pytest.raises(CompileError, match=text):
        library.prepare(convolution(NODES[0])).issue(2, [0] * 9, SimpleNamespace(handle=1))


def test_what_the_library_does_not_take_is_an_error_with_what_it_says(library: Cudnn):
    run = library.prepare(convolution(NODES[0])).issue(0, [64] * 9, SimpleNamespace(handle=0))
    text = r"^cuDNN 9\.28\.1: cudnnSetStream failed: CUDNN_STATUS_BAD_PARAM, the fake says$"
    with pytest.raises(CompileError, match=text):
        run()


def test_an_older_library_is_not_taken():
    def version() -> int:
        return 8907

    old = SimpleNamespace(cudnnGetVersion=version, cudnnGetErrorString=lambda status: b"")
    with pytest.raises(CompileError, match=r"^cuDNN 8907: the oldest version known is 90000$"):
        Cudnn(old)


def test_the_wheels_library_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Beside those that it opens by name, without which there is none."""
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    build_fake(folder)
    loaded: list[str] = []
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    pathfinder = SimpleNamespace(load_nvidia_dynamic_lib=loaded.append)
    monkeypatch.setattr(cudnn, "find_spec", lambda name: package)
    monkeypatch.setattr(cudnn.importlib, "import_module", lambda name: pathfinder)
    found = cudnn.find_cudnn()
    assert found is not None and found.title == "cuDNN 9.28.1"
    assert loaded == ["cublasLt", "nvrtc"]
    monkeypatch.setattr(cudnn, "OLDEST", 99999)
    assert cudnn.find_cudnn() is None
    monkeypatch.setattr(cudnn, "NAME", "libcudnn.so.none")
    assert cudnn.find_cudnn() is None


def test_a_kernel_of_a_library_says_what_it_is():
    node = STEPS["tf32"][1]
    kernel = call_kernel(node, convolution(node), "cuDNN 9.28.1", 1, 1024)
    assert (
        kernel.note
        == "a call of cuDNN 9.28.1, algorithm 2 of its heuristic, 1024 bytes of workspace"
    )
    assert kernel.workspace == 1024 and kernel.launches == ()
    assert "= conv2d(" in kernel.source and "operands of tf32" in kernel.source
    assert "= relu(" in kernel.source


def test_cudnn_itself_takes_them_for_a_gpu_that_is_not_here(tmp_path: Path):
    """Its wheel is half a gigabyte: where it is not installed, the fake has to do. It links with a
    driver, which here is a stub, so that what it compiles for a convolution cannot be loaded: of
    operands of two bytes with sums of four, and where much follows."""
    package = find_spec("nvidia.cudnn") if find_spec("nvidia") else None
    headers = find_headers()
    if package is None or headers is None:
        pytest.skip("cuDNN, or a header of the driver, is not installed")
    (folder,) = package.submodule_search_locations or ()
    build_stub(headers, tmp_path)
    fake_cublas.build_fake(tmp_path).rename(tmp_path / "libcublasLt.so.13")
    real = Path(folder) / "lib"
    places = {"LD_LIBRARY_PATH": f"{tmp_path}:{real}", "REAL_CUDNN": str(real / "libcudnn.so.9")}
    lines = run_python("-m", "tests.cuda.real_cudnn", environment=places).splitlines()
    if lines[-1] == "older":
        pytest.skip("this version of cuDNN may want other properties of a device")
    found = dict(zip(NODES, json.loads(lines[-1]), strict=True))
    ready = 0
    for node, (_, plans) in found.items():
        asked = convolution(node)
        if not asked.epilogue and asked.tensors[0].dtype == "f32":
            ready += 1
            assert plans, node.op.kernel
    assert ready >= 10 and sum(proposed > 0 for proposed, _ in found.values()) > ready + 10
