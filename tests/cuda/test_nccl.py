"""Messages on a GPU are calls of NCCL on the plan's streams, in its order, and in its graph."""

from __future__ import annotations

from typing import Any

import pytest

from graphc.base.errors import RunError
from graphc.runtime.cuda import nccl
from tests.cuda.records import parts, recorded, verbs


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return recorded("recording_nccl", tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return recorded("recording_sharded", tmp_path_factory.mktemp("sharded"))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return recorded("recording_shards", tmp_path_factory.mktemp("shards"))


def issued(lines: list[str]) -> list[list[Any]]:
    """Launches, messages, records and waits as [kind, stream from 0, elements or event]."""
    found: list[list[Any]] = []
    for line in lines:
        words = line.split()
        if words[0] == "launch":
            found.append(["launch", int(words[1]) - 1, 1])
        elif words[0] in ("all_reduce", "reduce_scatter", "all_gather"):
            found.append(["message", int(words[1]) - 1, int(words[3])])
        elif words[0] in ("record", "wait"):
            found.append([words[0], int(words[1]) - 1, int(words[3])])
    return found


def planned(record: dict[str, Any], first_event: int) -> list[list[Any]]:
    found: list[list[Any]] = []
    for kind, stream, what in record["plan"]:
        if kind == "launch":
            found += [[kind, stream, 1]] * what
        elif kind != "copy":
            found.append([kind, stream, what if kind == "message" else what + first_event])
    return found


@pytest.mark.parametrize("which", ["record", "sharded"])
def test_messages_are_issued_where_and_when_the_plan_says(
    which: str, request: pytest.FixtureRequest
) -> None:
    found_all = request.getfixturevalue(which)
    for lines in parts(found_all["steps"][0]):
        found = issued(lines)
        first = min(event for kind, _, event in found if kind in ("record", "wait"))
        expected = planned(found_all, first)
        assert [x for x in found if x[0] != "record"] == [x for x in expected if x[0] != "record"]
        assert sum(kind == "message" for kind, *_ in found) > 2
        assert {stream for kind, stream, _ in found if kind == "message"} == {1}


def test_messages_sum_float32_in_place(record: dict[str, Any]) -> None:
    calls = [x for x in record["steps"][0] if x.startswith("all_reduce")]
    assert all(x.endswith("kind 7 op 0 of 99 in place") for x in calls)


def test_slices_are_scattered_and_gathered_in_turns(sharded: dict[str, Any]) -> None:
    for lines in parts(sharded["steps"][0]):
        sent = [x for x in lines if x.startswith(("reduce_scatter", "all_gather"))]
        assert len(sent) > 4
        for scattered, gathered in zip(sent[::2], sent[1::2], strict=True):
            count = scattered.split()[3]
            assert scattered.endswith(f"count {count} kind 7 op 0 of 99")
            assert gathered.endswith(f"count {count} kind 7 of 99")


def test_pieces_of_shards_are_exchanged_and_sums_gathered(shards: dict[str, Any]) -> None:
    for lines in parts(shards["steps"][0]):
        assert not [x for x in lines if x.startswith(("all_reduce", "reduce_scatter"))]
        starts = [n for n, x in enumerate(lines) if x.startswith("group_start")]
        assert len(starts) > 2
        assert sum(x.startswith("all_gather") for x in lines) == len(starts)
        for start in starts:
            group = lines[start : start + 6]
            count = int(group[1].split()[3])
            stream = group[1].split()[1]
            expected = ["group_start"]
            for rank in (0, 1):
                expected += [f"send {stream} count {count} kind 7 to {rank} of 99"]
                expected += [f"recv {stream} count {count} kind 7 from {rank} of 99"]
            assert group == [*expected, "group_end"]


def test_later_steps_launch_the_graph_alone(record: dict[str, Any]) -> None:
    for lines in record["steps"][1:]:
        assert "all_reduce" not in verbs(lines)
        assert "launch_graph" in verbs(lines) or any("graph" in verb for verb in verbs(lines))


def test_ranks_join_at_compile_and_take_the_state_of_rank_0_at_the_first_step(
    record: dict[str, Any],
) -> None:
    joined = [x for x in record["compile"] if x.startswith("communicator")]
    assert joined == ["communicator of 2 identity 4711 rank 0"]
    assert [verbs(lines).count("broadcast") > 0 for lines in record["steps"]] == [
        True,
        False,
        False,
    ]


def test_nccl_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(name: str) -> None:
        raise ImportError("no nccl")

    monkeypatch.setattr(nccl, "import_module", lacking)
    with pytest.raises(RunError) as error:
        nccl.communicator(None, -1)  # type: ignore[arg-type]
    assert str(error.value) == (
        "data-parallel training on GPUs needs nccl4py (pip install 'graphc[nccl]'): no nccl"
    )


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return recorded("recording_stages", tmp_path_factory.mktemp("stages"))


def test_a_stage_sends_and_receives_in_the_order_of_its_plan(staged: dict[str, Any]) -> None:
    names = {"send": "send", "recv": "receive", "share": "share"}
    kinds = names.values()
    planned = [each for each in staged["plan"] if each[0] in kinds]
    assert [kind for kind, *_ in planned] == [
        "send",
        *(kind for _ in range(3) for kind in ("send", "receive")),
        "receive",
        "share",
    ]
    for lines in parts(staged["steps"][0]):
        calls = [line.split() for line in lines if line.split()[0] in names]
        found = [[names[c[0]], int(c[1]) - 1, int(c[3]), int(c[7])] for c in calls]
        assert found == planned
        assert all(c[5] == "1" for c in calls), "as bytes"
