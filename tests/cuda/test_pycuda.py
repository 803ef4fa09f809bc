"""The real PyCUDA and cuda-bindings, on a driver library that records what it is asked for."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.cuda.records import DRIVERS, count, parts, recorded, verbs
from tests.tools import need_package, run_python

STEPS = 6
"""Of the recurrent layers of recording.py."""
ALLOCATIONS = ("mem_alloc", "host_alloc", "mem_free", "event_create", "stream_create")
SYNCHRONISATIONS = ("event_synchronize", "stream_synchronize", "context_synchronize")


@pytest.fixture(scope="module", params=DRIVERS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return recorded("recording", tmp_path_factory.mktemp("driver"), request.param)


def issued(lines: list[str]) -> list[list[Any]]:
    """Launches, records and waits as [kind, stream from 0, symbol or event]."""
    found = []
    for line in lines:
        words = line.split()
        if words[0] == "launch":
            found.append(["launch", int(words[1]) - 1, words[2]])
        elif words[0] in ("record", "wait"):
            found.append([words[0], int(words[1]) - 1, int(words[3])])
    return found


def planned(plan: list[list[Any]], first_event: int) -> list[list[Any]]:
    found = []
    for kind, stream, what in plan:
        if kind == "launch":
            found += [[kind, stream, symbol] for symbol in what]
        else:
            found.append([kind, stream, what + first_event])
    return found


def first_event(lines: list[str]) -> int:
    return min(event for kind, _, event in issued(lines) if kind != "launch")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_step_is_one_launch_forward_and_two_backward(record, kind):
    seen = record["recurrent"][kind]
    at_once, captured = parts(seen["first step"])
    forward, backward = seen["loops"]
    assert [len(launches) for launches in forward] == [1]
    assert [len(launches) for launches in backward] == [1, 1]
    for lines in (at_once, captured):
        launched = Counter(line.split()[2] for line in lines if line.startswith("launch "))
        for (symbol,) in (*forward, *backward):
            assert launched[symbol] == STEPS


def test_pycuda_gets_the_launches_records_and_waits_of_the_plan_in_order(record):
    at_once, _ = parts(record["steps"][0])
    assert issued(at_once) == planned(record["plan"], first_event(at_once))
    assert count(at_once, ("launch",)) > 20


def test_the_capture_is_given_the_same_calls(record):
    at_once, captured = parts(record["steps"][0])
    launches = [line for line in at_once if line.startswith(("launch", "record", "wait"))]
    assert captured == launches


def test_launches_of_the_critical_path_have_the_higher_priority(record):
    step = record["steps"][0]
    launches = [line.split() for line in parts(step)[1] if line.startswith("launch")]
    first = [f"priority -5 node {n}" for n, words in enumerate(launches, 1) if words[1] == "1"]
    assert [line for line in step if line.startswith("priority")] == first
    assert 0 < len(first) < len(launches)
    assert any("dgrad" in launches[int(line.split()[-1]) - 1][2] for line in first)


def test_a_joined_step_is_one_cooperative_launch_in_a_graph(record):
    """Of fewer blocks than the device would hold, as there is less to do."""
    joined = record["joined"]
    first, second = joined["steps"]
    assert joined["whole"] == joined["of"]
    _, captured = parts(first)
    (line,) = captured
    words = line.split()
    assert words[:2] == ["cooperative", "1"] and words[2].endswith("_joined")
    assert 1 < int(words[4]) <= 264 and words[7:11] == ["block", "256", "1", "1"]
    assert all(int(address) > 0 for address in words[-2:]) and words[-2] != words[-1]
    assert [x for x in first if x.startswith("cooperative")] == [line, line]
    assert count(first, ("launch",)) == count(second, ("launch", "cooperative")) == 0
    assert count(second, ("graph_launch",)) == 1


def test_one_stream_has_no_priority_and_no_driver_needs_to_take_one(record):
    assert not [line for line in record["one stream"] if line.startswith("priority")]
    assert count(record["one stream"], ("graph_instantiate",)) == 1
    assert not [line for line in record["refused"] if line.startswith("priority")]
    assert count(record["refused"], ("graph_instantiate",)) == 1


def test_dgrad_and_wgrad_of_a_layer_go_to_different_streams(record):
    _, captured = parts(record["steps"][0])
    streams = {symbol: stream for kind, stream, symbol in issued(captured) if kind == "launch"}
    assert streams["fc2_dgrad_relu_grad_kernel"] != streams["fc2_wgrad_kernel"]
    assert streams["fc1_dgrad_relu_grad_kernel"] != streams["fc1_wgrad_kernel"]


def test_every_event_is_recorded_before_it_is_waited_for(record):
    recorded = set()
    waits = 0
    for kind, _, what in issued(parts(record["steps"][0])[1]):
        if kind == "record":
            recorded.add(what)
        elif kind == "wait":
            waits += 1
            assert what in recorded
    assert waits >= len(recorded) > 2


def test_a_replayed_step_is_one_graph_launch_and_one_synchronisation(record):
    for step in record["steps"][1:]:
        counts = Counter(verbs(step))
        assert counts["graph_launch"] == 1
        assert counts["launch"] == 0
        assert count(step, SYNCHRONISATIONS) == 1
        assert verbs(step) == [
            "copy_to_device",
            "graph_launch",
            "copy_to_host",
            "record",
            "event_synchronize",
        ]


def test_no_step_allocates(record):
    for step in record["steps"]:
        assert count(step, ALLOCATIONS) == 0


def test_nothing_waits_before_a_result_is_read(record):
    calls, first, second = record["submitted"]
    assert Counter(verbs(calls))["graph_launch"] == 2
    assert count(calls, SYNCHRONISATIONS) == 0
    assert verbs(first) == verbs(second) == ["event_synchronize"]


def test_the_step_is_captured_from_one_stream_by_one_thread(record):
    step = record["steps"][0]
    assert [line for line in step if "capture" in line] == [
        "begin_capture 1 mode 1",
        "end_capture 1",
    ]


def test_streams_do_not_wait_for_the_default_stream_and_events_take_no_time(record):
    compiled = record["compile"]
    assert {line[-7:] for line in compiled if line.startswith("stream_create")} == {"flags 1"}
    assert {line[-7:] for line in compiled if line.startswith("event_create")} == {"flags 2"}
    assert Counter(verbs(compiled))["stream_create"] == 2


def test_the_primary_context_is_used_and_left_after_every_call(record):
    assert record["compile"][0] == "retain_primary_context 0"
    assert record["depth"] == 0


def test_reading_state_copies_it_once(record):
    first, again = record["reading state"]
    assert Counter(verbs(first))["copy_to_host"] == 17
    assert again == []


def test_setting_the_rate_copies_four_bytes(record):
    assert record["setting the rate"][0] == "copy_to_device 1 bytes 4"
    assert len(record["setting the rate"]) == len(record["steps"][1]) + 1


def test_an_array_on_the_gpu_costs_one_copy_on_it(record):
    settled = record["foreign"]["settled"]
    assert settled[0] == "copy 1 bytes 140"
    assert "copy_to_device" not in verbs(settled)


def test_the_stream_that_writes_a_foreign_array_is_waited_for(record):
    busy, silent = record["foreign"]["busy"], record["foreign"]["silent"]
    assert [re.sub(r"event \d+", "event", line) for line in busy[1:4]] == [
        "record 77 event",
        "wait 1 event",
        "copy 1 bytes 140",
    ]
    assert silent[1].startswith("record 1 ")


def test_a_foreign_array_must_fit(record):
    assert record["foreign"]["strided"] == (
        "GraphError: x: expected a contiguous array on the GPU, got shape [5, 7] with strides of "
        "[4, 20] bytes"
    )
    assert record["foreign"]["shape"] == (
        "GraphError: function: x is f32[5,7], got float32[4,7]; shapes are fixed, but a program of "
        "graphc.spec(('batch', 7)) takes every size"
    )


def test_a_larger_program_moves_the_arena_and_others_are_captured_anew(record):
    growing = record["growing"]
    (arena,) = (line for line in growing["compile"] if line.startswith("mem_alloc"))
    assert int(arena.split()[1]) > 1 << 20, "filters are state of both programs, in one form"
    assert Counter(verbs(growing["compile"]))["mem_free"] == 1
    again = Counter(verbs(growing["again"]))
    assert (again["graph_update"], again["graph_instantiate"], again["graph_launch"]) == (1, 0, 1)
    captured = growing["again"][verbs(growing["again"]).index("begin_capture") :]
    assert again["launch"] == Counter(verbs(captured))["launch"] > 20, "kernels are loaded already"
    assert count(growing["again"], ALLOCATIONS) == 0
    assert verbs(growing["after"]) == verbs(record["steps"][1])


def test_a_graph_that_the_driver_does_not_update_is_made_anew(record):
    refused = Counter(verbs(record["growing"]["refused"]))
    assert (refused["graph_update"], refused["graph_instantiate"]) == (1, 1)
    assert refused["graph_launch"] == 1


def test_a_second_device_has_a_context_streams_and_state_of_its_own(record):
    lines = record["second device"]
    assert lines[0] == "retain_primary_context 1"
    streams = {line.split()[1] for line in lines if line.startswith("launch")}
    assert streams == {"3", "4"}
    assert [line for line in lines if line.startswith("copy_to_host 1")], "parameters come along"


def test_a_device_that_is_not_there_is_named_at_the_call(record):
    assert record["third device"] == (
        "RunError: device 'cuda:2': this machine has 2 GPUs. The kernels are generated and planned "
        "(program.kernels, program.plan), not run; the state is unchanged. device='sim' plays them "
        "without a GPU"
    )


def test_too_little_memory_is_known_before_anything_is_launched(record):
    assert re.fullmatch(
        r"RunError: out of memory on cuda:0: function takes \d+\.\d\d MB of work memory, "
        r"\d+\.\d\d MB for inputs and outputs and 0\.00 MB for state; of 17179\.87 MB are "
        r"\d+\.\d\d MB free\. Nothing has run, the state is unchanged\. The largest buffers: "
        r"%exp \d+\.\d\d MB \(recording\.py:\d+\), %x \d+\.\d\d MB, %matmul \d+\.\d\d MB",
        record["too large"]["message"],
    )
    assert record["too large"]["record"] == []


def test_tensor_maps_are_made_for_where_operands_lie(record):
    """Of a product of [2048, 512] and [512, 2048] of bfloat16: a map of each is among the launch's
    arguments, behind the addresses, at a multiple of 64 bytes. They are made anew where the arena
    has moved, and not by calls in between."""
    first, again, moved = record["maps"]["calls"]
    for lines in (first, moved):
        (launch,) = {line for line in lines if line.startswith("launch ") and "matmul" in line}
        words = [int(word) for word in launch.split(" arguments ")[1].split()]
        a, b = words[:2]
        maps = [line for line in lines if line.startswith("tensor_map")]
        ends = "step {} box 64 64 each 1 1 interleave 0 swizzle 3 promotion 2 fill 0"
        head = "tensor_map aligned 1 type 9 rank 2 address"
        assert maps == [
            f"{head} {a} sizes 512 2048 " + ends.format(1024),
            f"{head} {b} sizes 2048 512 " + ends.format(4096),
        ]
        assert len(words) == 8 + 2 * 16 and (words[8], words[24]) == (a, b)
    assert not any(line.startswith("tensor_map") for line in again)
    assert first != moved


def test_a_driver_that_makes_no_tensor_map_is_named(record):
    assert record["maps"]["refused"] == (
        "RunError: cuTensorMapEncodeTiled failed with 801 for 2048 x 512 bf16, 1024 bytes apart: "
        "TMA cannot be used here, leave GRAPHC_TMA unset"
    )


def test_launches_directly_behind_one_on_their_stream_begin_early_where_that_is_asked_for(record):
    early = record["early"]
    expected, last = [], {}
    for kind, stream, what in early["plan"]:
        if kind == "launch":
            for symbol in what:
                name = "launch_ex" if last.get(stream) == "launch" else "launch"
                expected.append([name, str(stream + 1), symbol])
                last[stream] = "launch"
        elif kind != "record":
            last[stream] = kind
    assert {kind for kind, *_ in expected} == {"launch", "launch_ex"}
    for part in parts(early["step"]):
        lines = [line.split() for line in part if line.startswith("launch")]
        assert [words[:3] for words in lines] == expected
        assert all("attribute 6 1" in " ".join(w) for w in lines if w[0] == "launch_ex")
    assert not any("launch_ex" in line for step in record["steps"] for line in step)


def test_any_thread_may_call(record):
    assert Counter(verbs(record["thread"]))["graph_launch"] == 1


def test_a_forked_process_is_told_so(record):
    assert record["fork"] == (
        "RunError: cuda:0: a forked process cannot use the GPU of its parent; start it with "
        "multiprocessing's method 'spawn'"
    )


def test_what_a_program_held_is_given_back_at_the_next_call(record):
    at_once, later = record["forgotten"]
    assert at_once == []
    assert later[0] == "context_synchronize"
    assert {"module_unload", "graph_destroy"} <= set(verbs(later))


def test_errors_of_launches_are_told_and_the_next_call_works(record):
    at_once, of_graph, after = record["failing"]
    assert at_once == (
        "RunError: cuda:0: cuLaunchKernel failed: an illegal memory access was encountered; what "
        "the call updates may be lost"
    )
    assert of_graph == (
        "RunError: cuda:0: cuGraphLaunch failed: CUDA_ERROR_ILLEGAL_ADDRESS; what the call updates "
        "may be lost"
    )
    assert Counter(verbs(after))["graph_launch"] == 1


def test_programs_with_next_to_nothing_to_do_run(record):
    assert record["nothing"] == [[[2], [3, 0], [4]], [1.0, 1.0]]


def test_pycuda_without_a_driver_says_what_is_missing():
    need_package("pycuda")
    printed = run_python("-c", WITHOUT_DRIVER)
    assert re.fullmatch(
        r"device 'cuda': (PyCUDA cannot be loaded \(.*libcuda.*\): is NVIDIA's driver installed\?|"
        r"the CUDA driver does not start: .*|has a GPU)\. .*\n",
        printed,
    )


WITHOUT_DRIVER = """
import numpy
import graphc
program = graphc.compile(lambda x: x + 1, graphc.spec((2,)), device="cuda")
try:
    program(numpy.zeros(2, numpy.float32))
except graphc.RunError as error:
    print(error)
else:
    print("device 'cuda': has a GPU. ")
"""
