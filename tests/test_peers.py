"""The comparison with peers: their results are those of PyTorch, and what of them is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare
from benchmarks.compare import ALL, Entry, agree, main
from benchmarks.picture import Mark, draw, marks
from tests.tools import need_module, run_python

PEERS = [
    ("jax", "nhwc", "mnist-cnn-b100", "train"),
    ("jax", "nchw", "mnist-cnn-b100", "forward"),
    ("jax", "nhwc", "lstm-h64-b256", "train"),
    ("jax", "nhwc", "gru-h64-b256", "forward"),
    ("jax", "nhwc", "resnet18-b1", "forward"),
    ("jax", "nhwc", "gpt4-b1", "forward"),
    ("jax", "nhwc", "pw-layernorm", "train"),
    ("onnxruntime", "default", "flux-conv-b1000", "forward"),
    ("onnxruntime", "default", "resnet18-b1", "forward"),
    ("onnxruntime", "default", "lstm-h64-b256", "forward"),
    ("onnxruntime", "default", "gru-h64-b256", "forward"),
    ("onnxruntime", "default", "gpt4-b1", "forward"),
    ("onnxruntime", "default", "pw-chain", "forward"),
    ("openvino", "default", "resnet18-b1", "forward"),
    ("openvino", "default", "lstm-h64-b256", "forward"),
    ("openvino", "default", "gpt4-b1", "forward"),
    ("tinygrad", "jit", "mlp-small-b20", "train"),
    ("tinygrad", "jit", "pw-layernorm", "train"),
    ("torch", "channels_last", "resnet18-b1", "forward"),
    ("torch", "frozen", "mlp-small-b20", "forward"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("peer", "variant", "workload", "mode"), PEERS)
def test_a_peer_computes_what_pytorch_does(
    peer: str, variant: str, workload: str, mode: str
) -> None:
    need_module("torch")
    pytest.importorskip(peer)
    arguments = ["--workload", workload, "--mode", mode, "--seconds", "0.01", "--json"]
    module = f"benchmarks.peer_{peer}"
    theirs = json.loads(run_python("-m", module, "--variant", variant, *arguments))
    torchs = json.loads(run_python("-m", "benchmarks.peer_torch", *arguments))
    assert agree(theirs["check"], torchs["check"])


def test_entries_are_read_as_they_are_written() -> None:
    for text in (*ALL, "torch:eager+kept"):
        assert str(Entry.parse(text)) == text
    assert not Entry.parse("onnxruntime:default+kept").offers("train")
    assert Entry.parse("torch:compile").offers("train")
    kept = Entry.parse("jax:nhwc+kept").environment()["GLIBC_TUNABLES"]
    assert "glibc.malloc.trim_threshold=8589934592" in kept


@pytest.mark.parametrize("text", ["numpy:default", "torch", "+kept"])
def test_what_is_no_entry_is_an_error(text: str) -> None:
    message = "expected PEER:VARIANT of graphc, torch, jax, onnxruntime, openvino, tinygrad, got "
    with pytest.raises(SystemExit, match=f"^{re.escape(message + repr(text))}$"):
        Entry.parse(text)


def _result(entry: str, milliseconds: float, check: float = 1.0) -> dict[str, Any]:
    return {
        "entry": entry,
        "peer": entry.partition(":")[0],
        "workload": "mlp",
        "mode": "train",
        "median_ms": milliseconds,
        "p10": milliseconds,
        "p90": milliseconds,
        "gflop_fwd": 1.0,
        "cpu_ms": milliseconds,
        "first_call_s": 1.0,
        "peak_rss_mb": 50,
        "noise": 0.0,
        "check": [check] * 5,
    }


def test_entries_take_turns_and_what_fails_is_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    turns: list[str] = []

    def measure(entry: Entry, *_: Any) -> dict[str, Any] | str:
        turns.append(str(entry))
        if entry.variant == "compile":
            return "no compiler"
        return _result(str(entry), *{"graphc": (2.0,), "torch": (3.0, 1.1)}[entry.peer])

    monkeypatch.setattr(compare, "_measure", measure)
    monkeypatch.setattr(Entry, "installed", True)
    monkeypatch.setattr(compare, "wait_for_quiet", lambda patience: None)
    monkeypatch.setattr(compare, "fma_peak", lambda threads: 100.0)
    out = tmp_path / "results.json"
    entries = ["graphc:default", "torch:eager", "torch:compile"]
    main(["--workload", "mlp-small-b20", "--mode", "train", "--out", str(out), *entries])
    assert turns == [*entries, *(2 * entries[:2])]
    said = capsys.readouterr()
    assert "torch:compile failed on mlp-small-b20 train: no compiler" in said.err
    (line,) = (line for line in said.out.splitlines() if line.startswith("  torch:eager"))
    assert "1.50x" in line and "the best peer" in line and "DIFFERS" in line
    facts = json.loads(out.read_text())
    assert len(facts["results"]) == 6 and facts["peak_gflops"] == 100.0


def test_results_of_bf16_may_differ_by_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = {"default": 1.0, "bfloat16": 1.01, "bfloat16_pairs": 1.03, "eager_bf16": 1.01}
    checks["eager_tf32"] = 1.01

    def measure(entry: Entry, *_: Any) -> dict[str, Any]:
        return _result(str(entry), 1.0, checks[entry.variant])

    monkeypatch.setattr(compare, "_measure", measure)
    monkeypatch.setattr(Entry, "installed", True)
    monkeypatch.setattr(compare, "wait_for_quiet", lambda patience: None)
    monkeypatch.setattr(compare, "fma_peak", lambda threads: 0.0)
    entries = [f"{'torch' if 'eager' in v else 'graphc'}:{v}" for v in checks]
    main(["--workload", "mlp-small-b20", "--mode", "train", "--rounds", "1", *entries])
    lines = [line for line in capsys.readouterr().out.splitlines() if " ms " in line]
    differing = [line.split()[0] for line in lines if "DIFFERS" in line]
    assert differing == ["graphc:bfloat16_pairs", "torch:eager_tf32"]


def test_a_peers_mark_is_its_best_variant() -> None:
    results = [
        _result("graphc:default", 2.0),
        _result("graphc:default", 4.0),
        _result("torch:eager", 9.0),
        _result("torch:eager+kept", 6.0),
        _result("jax:nhwc", 1.5),
    ]
    assert marks(results) == {
        "mlp train": [Mark("jax", 0.5, "jax:nhwc"), Mark("torch", 2.0, "torch:eager+kept")]
    }


def test_graphc_with_other_arithmetic_is_a_mark_and_not_the_measure() -> None:
    results = [
        _result("graphc:default", 2.0),
        _result("graphc:winograd", 1.0),
        _result("onnxruntime:default", 3.0),
    ]
    assert marks(results) == {
        "mlp train": [
            Mark("graphc", 0.5, "graphc:winograd"),
            Mark("onnxruntime", 1.5, "onnxruntime:default"),
        ]
    }


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = [_result("graphc:default", 2.0), _result("torch:eager+kept", 9.0)]
    picture = tmp_path / "picture.png"
    draw({"results": results, "cpu": "one of them", "date": "2026-01-01"}, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
