"""The model of a GPU (tools/gpu_model): walks, tables, L1, and the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphc.kernels.program.kernel import GridLaunch
from graphc.runtime.cuda.compile import compile_cuda
from tests.tools import need_cuda_compiler, need_nvdisasm
from tools.gpu_model import __main__ as command
from tools.gpu_model.compiled import CompiledLaunch, edges_of
from tools.gpu_model.constants import tables
from tools.gpu_model.counts import counts_of
from tools.gpu_model.joined_time import joined_timed, launched, work_of
from tools.gpu_model.l1 import Lines
from tools.gpu_model.launch_time import Timed, Traffic, timed
from tools.gpu_model.machine import H200
from tools.gpu_model.profile import shares_of
from tools.gpu_model.sass import blocks_of, disassembled
from tools.gpu_model.walk import Code

ONE_BLOCK = (32, 1, 1, 4, 1, 1)
"""Blocks of a warp, of which there are four."""
WARP = [(lane, 0, 0) for lane in range(32)]

LOOP = """
S2R R0, SR_CTAID.X
IADD3 R2, R0, 0x3, RZ
MOV R1, RZ
.L_x_0:
IADD3 R1, R1, 0x1, RZ
ISETP.GE.AND P0, PT, R1, R2, PT
@!P0 BRA `(.L_x_0)
EXIT
"""
"""A block turns three times more than its number."""

TICKET = """
S2R R0, SR_TID.X
FFMA R9, R9, R9, R9
ISETP.NE.AND P3, PT, R0, RZ, PT
@P3 BRA `(.L_x_0)
MOV R2, 0x7
ATOMG.E.INC.STRONG.GPU PT, R6, desc[UR6][R6.64], R2
.L_x_0:
BAR.RED.OR.DEFER_BLOCKING 0x0, P0
B2R.RESULT RZ, P0
@P0 BRA `(.L_x_1)
EXIT
.L_x_1:
FFMA R9, R9, R9, R9
FFMA R9, R9, R9, R9
EXIT
"""
"""The last of eight blocks goes on."""

JOINED = """
S2R R0, SR_TID.X
ISETP.NE.AND P2, PT, R0, RZ, PT
MOV R1, RZ
FFMA R9, R9, R9, R9
.L_x_0:
IADD3 R1, R1, 0x1, RZ
@P2 BRA `(.L_x_2)
MEMBAR.ALL.GPU
ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR6][R2.64], R5
.L_x_1:
LDG.E.STRONG.GPU R4, desc[UR6][R2.64]
ISETP.GT.AND P0, PT, R4, -0x1, PT
@P0 BRA `(.L_x_1)
.L_x_2:
BAR.SYNC.DEFER_BLOCKING 0x0
FFMA R9, R9, R9, R9
FFMA R9, R9, R9, R9
ISETP.GE.AND P1, PT, R1, 0x3, PT
@!P1 BRA `(.L_x_0)
EXIT
"""
"""All blocks wait for each other three times."""

TURN = """
S2R R0, SR_TID.X
MOV R1, RZ
.L_x_0:
IADD3 R1, R1, 0x1, RZ
@!P2 LDG.E.STRONG.GPU R4, desc[UR6][R2.64]
ISETP.EQ.AND P0, PT, R4, R1, PT
@P0 BRA `(.L_x_2)
.L_x_1:
LDG.E.STRONG.GPU R4, desc[UR6][R2.64]
CCTL.IVALL
ISETP.NE.AND P0, PT, R4, R1, PT
@P0 BRA `(.L_x_1)
.L_x_2:
BAR.SYNC.DEFER_BLOCKING 0x0
ISETP.GE.AND P1, PT, R1, 0x3, PT
@!P1 BRA `(.L_x_0)
EXIT
"""
"""A warp asks for a turn three times, and waits where that has not come."""

PERIODIC = """
S2R R0, SR_CTAID.X
MOV R1, RZ
MOV R4, RZ
.L_x_0:
IADD3 R4, R4, 0x1, RZ
ISETP.NE.AND P1, PT, R4, PERIOD, PT
SEL R4, R4, RZ, P1
IADD3 R1, R1, 0x1, RZ
ISETP.GT.AND P0, PT, R1, R0, PT
@!P0 BRA `(.L_x_0)
IADD3 R4, R4, 0x6, RZ
.L_x_1:
IADD3 R4, R4, -0x1, RZ
FFMA R9, R9, R9, R9
ISETP.GE.AND P0, PT, R4, RZ, PT
@P0 BRA `(.L_x_1)
EXIT
"""
"""A block turns as often as its number modulo PERIOD says, and more."""

MEMBERS = """
S2R R0, SR_CTAID.X
MOV R1, RZ
ISETP.NE.AND P1, PT, R0, RZ, PT
@P1 EXIT
.L_x_0:
IADD3 R1, R1, 0x1, RZ
ISETP.GE.AND P0, PT, R1, TURNS, PT
@!P0 BRA `(.L_x_0)
EXIT
"""
"""Block 0 turns, others have nothing to do."""

TABLE = """\
__device__ const int turns[] = {2, 7};
extern "C" __global__ void counting(float* x) {
  for (int i = 0; i < turns[blockIdx.x]; i++) {
    x[threadIdx.x] += 1.0f;
    __syncthreads();
  }
}
"""


def code_of(text: str) -> Code:
    """Of instructions without places and semicolons."""
    lines = (x if x.startswith(".") else f"/*0000*/ {x} ;" for x in text.strip().splitlines())
    return Code(blocks_of("\n".join(lines)))


def after(instructions: str, register: str) -> object:
    """What a thread has in a register that an access then takes for its address."""
    code = code_of(f"{instructions}\nLDS R9, [{register}]\nEXIT")
    state = code.traced((0, 0, 0), (5, 0, 0), ONE_BLOCK)
    *_, (address,) = state.traced.values()
    return address


@pytest.mark.parametrize("block", [0, 3])
def test_a_loop_turns_as_often_as_its_block_asks(block: int) -> None:
    walk = code_of(LOOP).walk((block, 0, 0), (0, 0, 0), ONE_BLOCK)
    assert dict(walk.visits) == {0: 1, 1: 3 + block, 2: 1}
    assert not walk.unknown


def test_a_loop_on_data_is_entered_once_and_told_of() -> None:
    walk = code_of(LOOP.replace("S2R R0, SR_CTAID.X", "LDG.E R0, [R4.64]")).walk(
        (0, 0, 0), (0, 0, 0), ONE_BLOCK
    )
    assert dict(walk.visits) == {0: 1, 1: 1, 2: 1}
    assert walk.unknown


@pytest.mark.parametrize(
    ("instructions", "register", "value"),
    [
        ("S2R R0, SR_TID.X\nIMAD R1, R0, 0x64, R0", "R1", 505),
        ("MOV R2, 0xffffffff\nMOV R3, 0x2\nIMAD.HI.U32 R1, R3, 0x80000001, R2", "R1", 4),
        ("MOV R2, 0x5\nLOP3.LUT R1, R2, 0x6, RZ, 0xc0, !PT", "R1", 4),
        ("MOV R2, 0x50\nSHF.R.U32.HI R1, RZ, 0x4, R2", "R1", 5),
        ("S2R R0, SR_TID.X\nLEA R1, R0, 0x10, 0x3", "R1", 56),
        ("ISETP.LT.AND P1, PT, RZ, 0x1, PT\nSEL R1, 0x8, 0x9, !P1", "R1", 9),
        ("LDG.E R2, [R4.64]\nIADD3 R1, R2, 0x1, RZ", "R1", None),
    ],
)
def test_integer_instructions(instructions: str, register: str, value: object) -> None:
    assert after(instructions, register) == value


@pytest.mark.parametrize(
    ("stride", "instruction", "sectors", "conflicts"),
    [
        (4, "LDG.E R9, [R1.64]", 4, 1),
        (128, "LDG.E R9, [R1.64]", 32, 1),
        (4, "LDS R9, [R1]", 0, 1),
        (8, "LDS R9, [R1]", 0, 2),
        (128, "LDS R9, [R1]", 0, 32),
    ],
)
def test_lanes_touch_sectors_and_banks(
    stride: int, instruction: str, sectors: float, conflicts: float
) -> None:
    text = f"S2R R0, SR_TID.X\nMOV R2, RZ\nIMAD R1, R0, {stride:#x}, RZ\n{instruction}\nEXIT"
    (access,) = code_of(text).accesses((0, 0, 0), WARP, ONE_BLOCK).values()
    assert (access.sectors, access.conflicts) == (sectors, conflicts)


@pytest.mark.parametrize(
    ("lines", "missed"),
    [
        ([0, 1, 0, 1], 2),
        ([0, 1, 2, 0], 4),  # the first one has left
        ([0, 1, 0, 2, 0], 3),  # used again, it stays
    ],
)
def test_the_line_not_used_for_longest_leaves(lines: Sequence[int], missed: int) -> None:
    cache = Lines(most=2)
    cache.ask(4 * line for line in lines)
    assert (cache.asked, cache.missed) == (len(lines), missed)


def test_sectors_of_a_line_come_one_by_one() -> None:
    cache = Lines(most=2)
    cache.ask([0, 1, 0, 1])
    assert cache.missed == 2


@pytest.mark.parametrize(("block", "turns"), [(0, 2), (1, 7)])
def test_tables_of_a_compiled_kernel_are_read(block: int, turns: int) -> None:
    need_cuda_compiler()
    image = compile_cuda(TABLE, "counting", "sm_90a").image
    code = Code(disassembled(image, need_nvdisasm())["counting"], tables(image))
    walk = code.walk((block, 0, 0), (0, 0, 0), (32, 1, 1, 2, 1, 1))
    opcodes = [
        i.name
        for number, visits in walk.visits.items()
        for i in code.blocks[number].instructions
        for _ in range(visits)
    ]
    assert opcodes.count("BAR") == turns
    assert not walk.unknown


def launch_of(text: str, blocks: int, edges: tuple[int, ...] = ()) -> CompiledLaunch:
    """A launch of blocks of a warp."""
    return CompiledLaunch("f", (blocks, 1, 1), (32, 1, 1), 32, 0, 0, 0, code_of(text), edges)


def time(launch: CompiledLaunch) -> Timed:
    """A launch that moves nothing."""
    return timed(launch, shares_of(launch, H200), Traffic(0, 0, 0, 0), H200)


def test_what_is_behind_a_ticket_is_done_by_last_blocks_alone() -> None:
    (share,) = shares_of(launch_of(TICKET, 64), H200)
    ((counts, groups),) = [(last.counts, last.groups) for last in share.lasts]
    assert (groups, counts.fma, share.counts.fma) == (64 / 8, 2, 1)
    assert share.total("fma") == 64 + 2 * 8
    last = time(launch_of(TICKET, 64)).terms["last"]
    waits = 2 * H200.l2_latency + H200.ticket + 2 * H200.fence
    assert waits < last * H200.clock < waits + 10


def test_a_member_whose_blocks_take_long_is_no_part_of_an_average() -> None:
    text = MEMBERS.replace("TURNS", "0x4000")
    alone = launch_of(text, 1)
    assert [share.blocks for share in shares_of(launch_of(text, 1000, (1,)), H200)] == [1, 999]
    assert time(launch_of(text, 1000, (1,))).seconds >= time(alone).seconds > 10 * H200.node
    assert time(launch_of(text, 1000)).seconds < time(alone).seconds / 2


def test_a_warp_asks_for_each_of_its_turns_once() -> None:
    """As if these had come then; without the question it waits for each."""
    late = TURN.replace("@P0 BRA `(.L_x_2)", "NOP").replace("@!P2 LDG.E.STRONG.GPU", "MOV")
    for text in (TURN, late):
        (share,) = shares_of(launch_of(text, 1), H200)
        assert not share.counts.unknown
        bare = launch_of(text.replace(".STRONG", ""), 1)
        longer = time(launch_of(text, 1)).terms["latency"] - time(bare).terms["latency"]
        assert 3 * H200.turn - 500 < longer * H200.clock < 3 * H200.turn


def test_blocks_of_every_kind_are_walked_as_often_as_there_are() -> None:
    """Each block turns as often as its number modulo 16, or 12, says, and seven times more."""
    for period in (12, 16):
        text = PERIODIC.replace("PERIOD", hex(period))
        (share,) = shares_of(launch_of(text, 1536), H200)
        assert share.counts.fma == pytest.approx(7 + (period - 1) / 2, rel=0.02)


def test_a_joined_launch_is_what_is_between_waits_and_the_waits_of_loops() -> None:
    launch = launch_of(JOINED, 1000)
    held = launched(launch, 8, H200)
    assert held.grid == (2 * 132, 1, 1)
    work = work_of(held, H200)
    assert work.waits == 3
    fma = [counts_of(row).fma for row in work.blocks.sum(axis=0)]
    assert fma == [264, 2 * 264, 2 * 264, 2 * 264]
    time = joined_timed(held, work, Traffic(0, 0, 0, 0), H200)
    assert time.terms["waits"] == 3 * H200.wait
    assert time.seconds == pytest.approx(H200.node + 3 * H200.wait + time.terms["work"])
    assert 0 < time.terms["work"] < H200.wait


def test_edges_of_members_are_read_from_the_text() -> None:
    text = "void a(\n  if (blockIdx.x < 9)\n"
    kernel = f'extern "C" void\na(int n) {{\n  if (blockIdx.x < 3) if (blockIdx.x < 9)\n}}\n{text}'
    assert edges_of(kernel, GridLaunch("a", (9, 1, 1), (32, 1, 1))) == (3,)


def test_the_command_models_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_cuda_compiler()
    need_nvdisasm()
    file, page = tmp_path / "now.json", tmp_path / "now.md"
    run = ["softmax-4096x1024", "--json", str(file), "--table", str(page)]
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(run)
    found = json.loads(file.read_text())["workloads"]["softmax-4096x1024"]
    ((kernel,), step) = found["kernels"], found["step"]
    assert step["nodes"] == 1 and kernel["bytes"] == 3 * 4096 * 1024 * 4
    assert kernel["floor"] < step["seconds"] < 2 * kernel["floor"]
    assert "A model, not measured" in page.read_text()
    faster = ["softmax-4096x1024", "--set", "copy=8.6e12", "--versus", str(file)]
    capsys.readouterr()
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(faster)
    assert "The constants differ (copy)" in capsys.readouterr().out


def test_the_command_models_a_joined_launch(tmp_path: Path) -> None:
    need_cuda_compiler()
    need_nvdisasm()
    file, page = tmp_path / "now.json", tmp_path / "now.md"
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(["mlp4x256-b16", "--json", str(file), "--table", str(page)])
    step = json.loads(file.read_text())["workloads"]["mlp4x256-b16"]["step"]
    assert step["nodes"] == 1 and list(step["kinds"]) == ["joined"]
    assert 1 < step["executed_over_useful"] < 1.2  # every block's part is walked
    assert step["seconds"] < 30e-6


def test_the_command_takes_what_a_check_has_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_cuda_compiler()
    need_nvdisasm()
    line = {"name": "pw-softmax train graphc:default", "gpu_ms": 0.0155}
    found: dict[str, Any] = {
        "machine": {"gpus": ["NVIDIA H100 80GB HBM3, 580"]},
        "stages": {"calibration": {"constants": {"node": 1.5e-6, "copy": 1.5e12}}},
        "benchmarks": [line, {"name": "failed", "failure": "no"}],
    }
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps(found))
    with pytest.raises(SystemExit, match=r"^0$"):
        command.main(["softmax-4096x1024", "--results", str(file)])
    told = capsys.readouterr().out
    assert "# NVIDIA H100 (fitted)" in told
    assert "| pw-softmax train graphc:default | 15.5 |" in told
    assert "| copy | 1.5e+12 |" in told
    found["stages"] = {}
    file.write_text(json.dumps(found))
    with pytest.raises(SystemExit, match="no fitted constants"):
        command.main(["softmax-4096x1024", "--results", str(file)])


def test_what_the_command_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    command.main([])
    assert "lenet-b100\n" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"^workload: expected one of mlp4x256-b16, .*, got 'x'$"):
        command.main(["x"])
    with pytest.raises(SystemExit, match=r"^--set node=x: expected a number, got 'x'$"):
        command.main(["lenet-b100", "--set", "node=x"])
    with pytest.raises(SystemExit, match=r"^--set a=1: expected one of multiprocessors, clock, "):
        command.main(["lenet-b100", "--set", "a=1"])
