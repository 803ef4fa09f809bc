"""examples/cortex_m on QEMU's board: the detector adapts with the bits of Python."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import graphc
from benchmarks.exported import CROSS, build, run
from tests.export.harness import need_target
from tests.support.examples import EXAMPLES
from tests.tools import need_command, run_python

FOLDER = EXAMPLES / "cortex_m"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    import adapt

    monkeypatch.delitem(sys.modules, "adapt")
    monkeypatch.delitem(sys.modules, "sounds")
    return adapt


def test_a_worn_machine_is_no_fault_when_the_board_has_adapted() -> None:
    need_command("g++", "clang++")
    need_target("cortex-m")
    output = run_python(str(FOLDER / "adapt.py"))
    rows = re.findall(r"^(\w.*?) +([\d. of]+)$", output, re.MULTILINE)[:3]
    assert [title for title, _ in rows] == ["new", "worn", "worn, after adapting"]
    numbers = [[float(word) for word in row.replace("of", "").split()] for _, row in rows]
    errors, faults, aucs, alarms, sounds, found, judged = np.array(numbers).T
    assert (sounds == judged).all() and sounds[0] == 64
    assert errors[1] > 3 * errors[0] and errors[2] < 0.3 * errors[1]
    assert (faults > errors).all() and aucs.min() > 0.9
    assert alarms[0] <= 8 and alarms[1] == 64 and alarms[2] <= 20
    assert found.min() >= 56
    assert re.search(r"^scores as in Python: True, state \w{8} as in Python: True$", output, re.M)
    counts = re.findall(r"^one call of \w+: ([\d,]+) instructions$", output, re.MULTILINE)
    score, adapt = (int(count.replace(",", "")) for count in counts)
    assert 264_192 < score < adapt  # multiply-adds of one frame


@pytest.mark.parametrize("wrong", ["score", "state"])
def test_it_fails_when_a_bit_differs(wrong: str, example: ModuleType) -> None:
    expected = np.linspace(0, 1, 6 * example.JUDGED, dtype=np.float32).reshape(6, -1)
    lines = [["score", f"{bits:08x}"] for bits in expected.view(np.uint32).ravel()]
    lines += [[f"worn_{what}", "1"] for what in ("sound", "fault") * 3]
    sizes = "arena state weights stack flash score_instructions adapt_instructions"
    lines += [[name, "1"] for name in sizes.split()]
    crc = bytes([0x78, 0x56, 0x34, 0x12])
    example.report([*lines, ["hash", "12345678"]], expected, crc)
    if wrong == "score":
        lines[7][1] = f"{int(lines[7][1], 16) ^ 1:08x}"
    found = "12345678" if wrong == "score" else "12345679"
    with pytest.raises(SystemExit, match=r"^the board has other bits than Python$"):
        example.report([*lines, ["hash", found]], expected, crc)


def test_folding_keeps_the_function(example: ModuleType) -> None:
    need_command("g++", "clang++")
    generator = np.random.default_rng(0)
    sounds = generator.integers(0, 256, (256, 640), np.uint8)
    model = example.train(sounds, epochs=2, batch=128)
    spec = graphc.spec((4, 640), "uint8")
    errors = [
        graphc.compile(example.error, m, spec, device="cpu")(sounds[:4])
        for m in (model.eval(), example.folded(model))
    ]
    np.testing.assert_allclose(*errors, rtol=1e-4)


def test_the_start_code_prints_numbers_and_has_a_main_of_the_users(tmp_path: Path) -> None:
    need_target("cortex-m")
    negative = graphc.compile(lambda x: -x, graphc.spec((2,)), device="reference")
    graphc.export(negative, tmp_path / "made", "cortex-m", name="negative")
    lines = "".join(
        f'cortex_m_print_{kind}({number}u), cortex_m_print("\\n");'
        for number in (0, 7, 1234567890, 4294967295)
        for kind in ("decimal", "hex")
    )
    own = tmp_path / "own.c"
    own.write_text(f'#include "cortex_m.h"\nint main(void) {{ {lines} return 0; }}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAIN", str(own))
        build(tmp_path / "made", "cortex-m")
    words = [*CROSS["cortex-m"], "build/negative.elf"]
    assert run(*words, folder=tmp_path / "made").split() == [
        *("0", "00000000", "7", "00000007"),
        *("1234567890", "499602d2", "4294967295", "ffffffff"),
    ]
