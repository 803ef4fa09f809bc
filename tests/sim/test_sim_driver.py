"""The simulated driver beside streams: modules, launches, memory, events, and their messages."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from graphc.base.errors import CompileError
from graphc.runtime.sim import LaunchError, LogicError, MemoryError, Simulator
from graphc.runtime.sim.build import exports
from graphc.runtime.sim.elf import variable_name
from tests.sim.playing import fetch, packed, place, simulator

X = np.arange(64, dtype=np.float32)
COPY = """
extern "C" __global__ void __launch_bounds__(64) copy(const float* x, float* y) {
  extern __shared__ float room[];
  room[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = room[threadIdx.x];
}
"""


@pytest.fixture
def device() -> Simulator:
    return simulator()


def copy_of(device: Simulator):
    return device.module_from_buffer(device.compile(COPY, "copy")).get_function("copy")


def test_kernels_of_any_namespace_take_packed_arguments(device: Simulator):
    text = """
    namespace graphc::inner {
    extern "C" __global__ void mixed(unsigned char a, double b, short c, float* out, long long d) {
      out[0] = a; out[1] = b; out[2] = c; out[3] = d;
    }
    }
    """
    function = device.module_from_buffer(device.compile(text, "mixed")).get_function("mixed")
    out, stream = device.mem_alloc(16), device.Stream(1)
    function.prepare("BdhPq")
    function.prepared_async_call((1, 1), (1, 1, 1), stream, 200, -2.5, -3, out, 1 << 33)
    stream.synchronize()
    want = np.array([200, -2.5, -3, 1 << 33], np.float32)
    np.testing.assert_array_equal(fetch(device, out, want), want)


def test_exports_find_kernels_but_not_in_comments():
    text = '// __global__ void no(int a) {\nextern "C" __global__ void\nyes(int a,\n    int b) {}'
    assert exports(text) == (
        'namespace graphc { extern "C" void yes(int a, int b); }\n'
        "GRAPHC_SIM_KERNEL(yes, 0, 1)\nGRAPHC_SIM_MODULE(nullptr)\n"
    )


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZZN6graphc8ContractINS_7ProblemENS_4TileEE3runEPKfS3_E4ring", "ring"),
        ("_ZZ14missing_barrierE1s_0", "s"),
        ("plain", "plain"),
    ],
)
def test_variables_of_shared_memory_have_their_own_names(symbol: str, name: str):
    assert variable_name(symbol) == name


def test_text_that_does_not_compile_names_kernel_and_line(device: Simulator):
    text = 'extern "C" __global__ void bad(float* y) {\n  y[0] = nothing;\n}\n'
    with pytest.raises(CompileError) as caught:
        device.compile(text, "bad", "model.py:7")
    first, second = str(caught.value).split("\n")
    assert first == (
        "kernel bad (model.py:7) does not compile: "
        "bad.cu:2:10: error: ‘nothing’ was not declared in this scope".replace("‘", "'").replace(
            "’", "'"
        )
    )
    assert second.startswith("command: ")


def test_several_texts_are_one_object_unless_one_of_them_is_wrong(device: Simulator):
    plain = 'extern "C" __global__ void NAME(float* y) {\n  y[0] = VALUE;\n}\n'
    texts = [
        (plain.replace("NAME", name).replace("VALUE", value), name, f"model.py:{value}")
        for name, value in (("one", "1"), ("two", "2"))
    ]
    images = device.compile_all(texts)
    assert images[0] is images[1]
    module, out, stream = device.module_from_buffer(images[0]), place(device, X), device.Stream(1)
    for name, value in (("one", 1), ("two", 2)):
        function = module.get_function(name)
        function._launch_kernel((1, 1, 1), (1, 1, 1), packed(out), 0, stream)
        stream.synchronize()
        assert fetch(device, out, X)[0] == value
    bad = (plain.replace("NAME", "bad").replace("VALUE", "nothing"), "bad", "model.py:7")
    with pytest.raises(CompileError) as caught:
        device.compile_all([*texts, bad])
    assert str(caught.value).startswith("kernel bad (model.py:7) does not compile: bad.cu:2:10: ")


def test_what_is_not_a_module_is_refused(device: Simulator):
    with pytest.raises(LogicError, match=r"^module_from_buffer: not a module: "):
        device.module_from_buffer(b"PTX")


def test_a_kernel_that_is_not_there(device: Simulator):
    module = device.module_from_buffer(device.compile(COPY, "copy"))
    with pytest.raises(LogicError) as caught:
        module.get_function("move")
    assert str(caught.value) == "get_function: the module has no kernel move"


@pytest.mark.parametrize(
    ("grid", "block", "shared", "kind", "message"),
    [
        ((0, 1, 1), (64, 1, 1), 256, LogicError, "no device runs a grid of 0 x 1 x 1 blocks"),
        ((1, 1 << 16, 1), (64, 1, 1), 256, LogicError, "no device runs a grid of 1 x 65536 x 1 bl"),
        ((1, 1, 1), (64, 17, 1), 256, LogicError, "no device runs blocks of (64, 17, 1) threads"),
        ((1, 1, 1), (0, 1, 1), 256, LogicError, "no device runs blocks of (0, 1, 1) threads"),
        (
            (1, 1, 1),
            (96, 1, 1),
            256,
            LaunchError,
            "96 threads per block, its __launch_bounds__ allow 64",
        ),
        (
            (1, 1, 1),
            (64, 1, 1),
            49153,
            LogicError,
            "49153 bytes of dynamic shared memory, allowed are 49152: "
            "set MAX_DYNAMIC_SHARED_SIZE_BYTES",
        ),
    ],
)
def test_launches_that_no_device_takes(device: Simulator, grid, block, shared, kind, message):
    function, x, y = copy_of(device), device.mem_alloc(256), device.mem_alloc(256)
    with pytest.raises(kind) as caught:
        function._launch_kernel(grid, block, packed(x, y), shared, device.Stream(1))
    assert str(caught.value).startswith(f"copy: {message}")


def test_more_shared_memory_must_be_allowed(device: Simulator):
    function, x, y, stream = (
        copy_of(device),
        place(device, X),
        device.mem_alloc(256),
        device.Stream(1),
    )
    attribute = device.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
    with pytest.raises(LogicError) as caught:
        function.set_attribute(attribute, 232449)
    assert str(caught.value) == (
        "copy: 232449 bytes of dynamic shared memory, there are at most 232448"
    )
    function.set_attribute(attribute, 100_000)
    function._launch_kernel((1, 1, 1), (64, 1, 1), packed(x, y), 100_000, stream)
    stream.synchronize()
    np.testing.assert_array_equal(fetch(device, y, X), X)


def test_memory_is_counted_aligned_and_full_of_nan():
    device = simulator(memory=10_000)
    assert device.mem_get_info() == (10_000, 10_000)
    memory = device.mem_alloc(6000)
    assert int(memory) % 256 == 0
    assert device.mem_get_info() == (4000, 10_000)
    assert np.isnan(fetch(device, memory, np.empty(1500, np.float32))).all()
    with pytest.raises(MemoryError) as caught:
        device.mem_alloc(5000)
    assert str(caught.value) == "mem_alloc: 5000 bytes, of 10000 are 4000 free"
    memory.free()
    assert device.mem_get_info() == (10_000, 10_000)
    with pytest.raises(LogicError) as wrong:
        device.mem_alloc(0)
    assert str(wrong.value) == "mem_alloc: expected at least 1 byte, got 0"


def test_events_measure_time_unless_they_were_made_without(device: Simulator):
    stream, memory = device.Stream(1), device.mem_alloc(1 << 20)
    start, stop, untimed = device.Event(), device.Event(), device.Event(2)
    start.record(stream)
    device.memset_d32_async(memory, 7, 1 << 18, stream)
    stop.record(stream)
    untimed.record(stream)
    assert not stop.query()
    with pytest.raises(LogicError) as caught:
        stop.time_since(start)
    assert str(caught.value) == "the event has not ended: synchronize first"
    stop.synchronize()
    assert start.query() and 0 < start.time_till(stop) < 60_000
    stream.synchronize()
    assert stream.is_done()
    with pytest.raises(LogicError) as caught:
        untimed.time_since(start)
    assert str(caught.value) == "the event was made without timing"
    with pytest.raises(LogicError) as caught:
        device.Event().query()
    assert str(caught.value) == "the event was never recorded; CUDA would take it for ended"


def test_each_thread_has_contexts_of_its_own(device: Simulator):
    failures: list[str] = []

    def elsewhere() -> None:
        try:
            device.Stream(1)
        except LogicError as error:
            failures.append(str(error))
        device.Device(0).make_context()
        device.Stream(1)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert failures == ["no context is current in this thread: push one"]
    assert device.Context.get_current() is not None
    with pytest.raises(LogicError) as caught:
        device.Device(1)
    assert str(caught.value) == "cuDeviceGet failed: there is 1 simulated device, got 1"


def test_copies_and_fills_on_the_device(device: Simulator):
    x, y = place(device, X), device.mem_alloc(256)
    device.memcpy_dtod(y, x, 256)
    device.memset_d8(y, 0, 8)
    np.testing.assert_array_equal(fetch(device, y, X), np.r_[0, 0, X[2:]])
    with pytest.raises(LogicError) as caught:
        device.memcpy_htod(x, X[::2])
    assert str(caught.value) == "copy to the device: expected a contiguous array"


def test_one_seed_gives_one_order():
    def order(seed: int) -> list[str]:
        device = simulator(seed=seed)
        streams, memory = [device.Stream(1) for _ in range(3)], device.mem_alloc(3)
        for i, stream in enumerate(streams):
            for _ in range(2):
                device.memset_d8_async(int(memory) + i, 0, 1, stream)
                device.Event().record(stream)
        device.synchronize()
        return list(device.log)

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(6)}) > 1


def test_an_unknown_policy_is_refused():
    with pytest.raises(LogicError) as caught:
        Simulator(policy="fifo")
    assert str(caught.value) == "policy: expected one of random, lazy, eager, got 'fifo'"
