"""Results that stay on the device, and calls that are not waited for."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base import dlpack
from graphc.base.dtypes import BFLOAT16
from graphc.base.errors import GraphError
from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.device_array import DeviceArray
from tests.cuda.records import DRIVERS, count, recorded, verbs
from tests.tools import need_command, need_module

X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
WAITS = ("event_synchronize", "stream_synchronize", "context_synchronize")
BYTES = X.nbytes


@pytest.fixture(scope="module", params=DRIVERS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return recorded("recording_arrays", tmp_path_factory.mktemp("driver"), request.param)


def unnumbered(lines: list[str]) -> list[str]:
    return [re.sub(r"event \d+", "event", line) for line in lines]


def test_a_call_waits_for_nothing_and_copies_its_results_on_the_device(record):
    for lines in record["calls"]:
        assert count(lines, WAITS[1:]) == count(lines, ("copy_to_host",)) == 0
        assert lines.count(f"copy 1 bytes {BYTES}") == 1


def test_memory_is_used_again_once_nobody_holds_it(record):
    assert [count(lines, ("mem_alloc",)) for lines in record["calls"]] == [0, 1, 1, 0]


def test_a_result_is_anothers_argument_where_it_lies(record):
    lines = record["chain"]
    assert lines.count(f"copy 1 bytes {BYTES}") == 2  # into the arena, and out of it
    assert not {"copy_to_device", "copy_to_host", "wait"} & set(verbs(lines))


def test_a_copy_on_the_host_waits_for_the_call(record):
    seen = record["host"]
    assert verbs(seen["record"]) == ["copy_to_host", "stream_synchronize"]
    assert (seen["shape"], seen["dtype"]) == ([5, 7], "float32")


def test_a_reader_of_dlpack_waits_on_its_own_stream(record):
    seen = record["read"]
    waits = [line for line in unnumbered(seen["record"]) if line[:4] in ("reco", "wait")]
    assert waits == ["record 1 event", "wait 77 event"]
    assert seen["device"] == [2, 0]
    assert seen["same"]
    assert (seen["shape"], seen["strides"], seen["dtype"]) == ([5, 7], [28, 4], "float32")


def test_memory_that_a_stream_has_read_is_written_after_that(record):
    held, free = record["again"]
    assert count(held, ("mem_alloc",)) == 1
    assert not any(line.startswith("record 77") for line in held)
    lines = unnumbered(free)
    assert count(free, ("mem_alloc",)) == 0
    assert lines.index("record 77 event") < lines.index("wait 1 event")
    assert lines.index("wait 1 event") < lines.index(f"copy 1 bytes {BYTES}")


def test_a_reader_without_a_stream_is_waited_for(record):
    shown = record["interface"]["shown"]
    assert (shown["shape"], shown["typestr"], shown["version"]) == ([5, 7], "<f4", 3)
    assert shown["data"] == [shown["address"], False]
    assert shown["stream"] == 1  # the driver's first
    assert verbs(record["interface"]["record"])[0] == "context_synchronize"


@pytest.mark.parametrize("library", ["jax", "cupy"])
def test_libraries_give_their_arrays_for_the_stream_that_reads_them(record, library):
    """JAX's cannot be written; neither is copied on the host."""
    seen = record["libraries"][library]
    assert seen["asked"] == [1]
    assert seen["record"][0] == f"copy 1 bytes {BYTES}"
    assert count(seen["record"], (*WAITS, "copy_to_device", "copy_to_host")) == 0
    assert record["libraries"]["unchanged"]


def test_an_interface_that_names_a_stream_is_waited_for_on_the_device(record):
    lines = unnumbered(record["libraries"]["interface"]["record"])
    at = lines.index("record 66 event")
    assert lines[at : at + 3] == ["record 66 event", "wait 1 event", f"copy 1 bytes {BYTES}"]
    assert count(lines, WAITS) == 0


def test_an_argument_lives_until_its_call_has_ended(record):
    assert record["libraries"]["kept"] == [True, False]


def test_unused_results_make_room(record):
    seen = record["short"]
    assert 10 < seen["count"] < 64
    assert seen["message"].startswith("out of memory on cuda:0: function takes")
    assert "Nothing has run, the state is unchanged" in seen["message"]
    assert count(seen["again"], ("mem_alloc",)) == 0
    assert count(seen["larger"], ("mem_free",)) >= seen["count"]
    assert record["depth"] == 0


class OnHost:
    """A NumPy array that a reader of DLPack gets by `write_capsule`."""

    def __init__(self, array: Any, owner: Any) -> None:
        self.array, self.owner = array, owner

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.HOST, 0

    def __dlpack__(self, **_: Any) -> Any:
        a = self.array
        return dlpack.write_capsule(a.ctypes.data, a.shape, a.dtype, (dlpack.HOST, 0), self.owner)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "float64"])
def test_numpy_takes_what_is_exported_where_it_lies(dtype: str):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    taken = np.from_dlpack(OnHost(array, None))
    np.testing.assert_array_equal(taken, array)
    assert np.shares_memory(taken, array)


def test_torch_takes_bfloat16_and_scalars():
    torch = need_module("torch")
    taken = torch.from_dlpack(OnHost(np.array([0x3F80, 0xC040], np.uint16).view(BFLOAT16), None))
    assert taken.dtype == torch.bfloat16
    assert taken.tolist() == [1.0, -3.0]
    assert torch.from_dlpack(OnHost(np.array(5.0), None)).item() == 5.0


@pytest.mark.parametrize("takes", [True, False])
def test_the_owner_lives_as_long_as_its_reader(takes: bool):
    class Owner:
        pass

    owner = Owner()
    alive = weakref.ref(owner)
    given = OnHost(np.ones(3), owner)
    held = np.from_dlpack(given) if takes else given.__dlpack__()
    del given, owner
    gc.collect()
    assert alive() is not None
    del held
    gc.collect()
    assert alive() is None


@pytest.fixture
def compiler() -> None:
    need_command("g++", "clang++")


def double(out: str = "host", device: str = "sim") -> Any:
    return graphc.compile(
        lambda x: {"double": 2 * x, "sum": graphc.sum(x)},
        graphc.spec((5, 7)),
        device=device,
        out=out,
    )


@pytest.mark.usefixtures("compiler")
def test_results_stay_and_no_later_call_changes_them():
    plain, stays = double(), double("device")
    expected = [plain(X * number) for number in range(6)]
    found = [stays(X * number) for number in range(6)]
    for a, b in zip(found, expected, strict=True):
        assert isinstance(a["double"], DeviceArray)
        np.testing.assert_array_equal(a["double"].numpy(), b["double"])
        assert float(a["sum"]) == b["sum"]
    assert repr(found[0]["double"]) == "DeviceArray(float32[5,7] on sim)"
    assert (found[0]["double"].ndim, len(found[0]["double"]), found[0]["double"].nbytes) == (
        2,
        5,
        140,
    )


@pytest.mark.usefixtures("compiler")
def test_programs_pass_arrays_on_without_the_host():
    stays, log = double("device"), find_device("sim").driver.log
    first = stays(X)
    stays(first["double"])["sum"].numpy()
    before = len(log)
    found = stays(stays(first["double"])["double"])
    np.testing.assert_array_equal(found["double"].numpy(), 8 * X)
    assert "copy to the device" not in log[before:]
    assert log[before:].count("copy to the host") == 1
    # Elsewhere it is an array like any other.
    np.testing.assert_array_equal(double(device="cpu")(first["double"])["double"], 4 * X)


@pytest.mark.usefixtures("compiler")
def test_other_libraries_cannot_read_the_simulated_device():
    found = double("device")(X)["double"]
    with pytest.raises(BufferError, match="numpy\\(\\) copies it to the host"):
        found.__dlpack__()
    assert not hasattr(found, "__cuda_array_interface__")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("out", ["host", "device"])
def test_submitted_steps_are_the_steps_of_calls(device: str, out: str):
    losses = []
    for submits in (False, True):
        graphc.seed(0)
        model = nn.Linear(7, 3)
        step = graphc.compile(
            lambda m, x: graphc.mean(m(x) ** 2),
            model,
            graphc.spec((5, 7)),
            update=optim.SGD(lr=0.1),
            device=device,
            out=out,
        )
        if submits:
            pending = [step.submit(X) for _ in range(5)]
            assert len({id(p.result()) for p in pending}) == 5
            assert pending[0].result() is pending[0].result()
            assert all(p.done() for p in pending)
            losses.append([float(p.result()) for p in pending])
        else:
            losses.append([float(step(X)) for _ in range(5)])
        losses.append(model.weight.numpy().tolist())
    assert losses[:2] == losses[2:]


@pytest.mark.usefixtures("compiler")
def test_programs_of_any_size_submit():
    f = graphc.compile(lambda x: 2 * x, graphc.spec(("batch", 7)), device="sim", out="device")
    pending = [f.submit(X[:rows]) for rows in (5, 2, 5)]
    for rows, each in zip((5, 2, 5), pending, strict=True):
        np.testing.assert_array_equal(each.result().numpy(), 2 * X[:rows])
    assert sorted(s["batch"] for s in f.sizes) == [2, 5]


def test_what_out_may_be():
    with pytest.raises(GraphError, match="out: expected 'host' or 'device', got 'gpu'"):
        graphc.compile(lambda x: x, graphc.spec(2), out="gpu")
    message = "out: 'device' with buckets, whose results are cut to size on the host"
    with pytest.raises(GraphError, match=message):
        graphc.compile(
            lambda x: x, graphc.spec(("batch",)), out="device", batch=graphc.Buckets(2, 4)
        )
