"""What a GPU of another compute capability cannot do is not applicable in a check, no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_gpu_check import ABOUT, answering, taken, written
from tools.gpu_check import __main__ as kit
from tools.gpu_check import goals
from tools.gpu_check.process import Done
from tools.gpu_check.report import CheckReport


def test_what_an_a100_cannot_do_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a100 = {**ABOUT, "machine": {"gpus": ["NVIDIA A100-SXM4-80GB, 580, 81920 MiB, 8.0"]}}
    report = CheckReport(tmp_path / "a100.json", a100)
    commands = answering(monkeypatch, Done(0, '{"median_ms": 1.0}\n', "", 1.0))
    assert taken(report, ["gpt12-d768-b8", "mnist-cnn-b100"]) == 0
    lines = {line["name"].partition(" ")[2]: line for line in written(report)["benchmarks"]}
    missing = {name for name, line in lines.items() if "not applicable" in line}
    variants = {name.partition(":")[2] for name in missing}
    assert variants == {"early", "tf32_clusters", "wgmma", "wgmma_tma"}
    assert lines["train graphc:wgmma"]["not applicable"] == (
        "wgmma needs compute capability 9.0, this GPU has 8.0"
    )
    assert not any(command[3] in variants for command in commands)
    assert kit.passed(written(report)) and not written(report)["failures"]
    assert "train graphc:wgmma: wgmma needs" in "\n".join(kit.summary(written(report)))


@pytest.mark.parametrize(("variant", "capability", "able"), [
    ("wgmma", 9.0, True), ("wgmma", 10.0, False), ("tf32_clusters", 12.0, True),
    ("tf32", 7.5, False), ("bfloat16", 7.5, False), ("default", 7.5, True), ("tf32", 8.9, True),
])  # fmt: skip
def test_what_gpus_can_do(variant: str, capability: float, able: bool) -> None:
    each = goals.Measurement("graphc", variant, "pw-gelu", "train")
    assert (goals.why_not(each, capability) == "") is able
