"""What the checks of whole models (benchmarks/torch_models) find, and the checks themselves."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.differences import Truth
from tests.tools import need_command, need_module

torch = need_module("torch")


def subject(small: float) -> Any:
    """A model of which one relu of the hidden layer is given this number."""
    from benchmarks.torch_models.models import Subject

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))
    x = torch.randn(6, 3)
    with torch.no_grad():
        off = x[2].double() @ module[0].weight[1].double()
        module[0].bias[1] = float(small - off)
    return Subject(module, (x,))


def test_a_gradient_beside_a_kink_is_right_on_either_side_and_another_is_not() -> None:
    from benchmarks.torch_models.kinks import _Relus, on_their_sides
    from benchmarks.torch_models.truth import results, wide

    given = subject(1e-9)
    exact = results(given.module, given, wide)
    truth = Truth(exact, dict.fromkeys(exact, 1e-6))
    assert truth.differences(exact) == []
    with _Relus(((0, 2 * 5 + 1),), 1):
        found = results(given.module, given, torch.clone)
    assert {line.split()[1] for line in truth.differences(found)} == {"0.weight", "0.bias"}
    moved, turned = on_their_sides(given, truth, found)
    assert (moved.differences(found), turned) == ([], 1)
    found["gradient 2.bias"] = found["gradient 2.bias"] * 1.001
    assert on_their_sides(given, truth, found)[0].differences(found) != []


def test_a_tolerance_is_a_few_roundings_and_what_is_missing_or_nan_is_wrong() -> None:
    from benchmarks.torch_models.truth import results, truth

    given = subject(0.1)
    found = truth(given)
    single = results(given.module, given, torch.clone)
    assert found.differences(single) == []
    assert all(0 < t < 1e-4 for t in found.tolerance.values())
    for name in ("output 0", "loss", "gradient 2.weight"):
        assert found.differences({**single, name: single[name] * 1.001}) != []
        assert found.differences({**single, name: single[name] * float("nan")}) != []
        assert found.differences({n: a for n, a in single.items() if n != name}) == [
            f"{name} is missing"
        ]


def _hangs(name: str) -> dict[str, Any]:
    time.sleep(60)
    return {}


def _raises(name: str) -> dict[str, Any]:
    raise ValueError(name)


def _dies(name: str) -> dict[str, Any]:
    os._exit(3)


@pytest.mark.parametrize(
    ("task", "why"),
    [(_hangs, "took longer than 0 s"), (_raises, "mine"), (_dies, "the process ended with 3")],
)
def test_a_model_that_hangs_raises_or_dies_has_failed(task: Any, why: str) -> None:
    from benchmarks.torch_models.processes import alone

    limit = 0.2 if task is _hangs else 30.0
    assert alone(task, "mine", limit)["failed"].splitlines()[-1].endswith(why)


def test_the_page_says_what_is_wrong_and_what_was_not_finished(tmp_path: Path) -> None:
    from benchmarks.torch_models.page import BEGIN, END, write

    right = {"name": "a", "package": "p", "parameters": 1000, "operators": 8, "share": 1.0,
             "use": 0.25, "wrong": [], "results": 5, "turned": 0, "breaks": {}}  # fmt: skip
    rows = {
        "a": {
            **right,
            "graphc_cold_s": 3.4,
            "graphc_cold_cpu_s": 2.0,
            "eager_ms": 1.5,
            "graphc_ratio": 1.2,
            "graphc_low": 1.1,
            "graphc_high": 2.0,
            "note": "inductor took longer than 240 s",
        },
        "b": {**right, "name": "b", "share": 0.5, "wrong": ["loss is missing"], "turned": 1},
        "c": {"name": "c", "package": "p", "failed": "trace\ntook longer than 9 s"},
    }
    for name, row in rows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(row))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nworn out\n{END}\nafter\n")
    write(tmp_path, page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "worn out" not in text
    assert "2 models, 10 results compared, 1 models wrong: b; 75.0% of" in text
    assert "| a | 1,000 | 8 | 100.0% | 0.25 | 3 s (2) | > 240 s |  |  | 1.50 ms | 1.20 (" in text
    assert "Steps of 1 models were timed. Eager takes 1.20 times as long as graphc (median;" in text
    assert "| b | 1,000 | 8 | 50.0% | WRONG |" in text
    assert "- c: took longer than 9 s" in text


SOME = ("unet", "lstm tagger", "mobilenet_v2", "swin", "test_vit", "bert", "llama", "t5")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SOME)
def test_models_of_other_packages_compute_what_pytorch_does(name: str) -> None:
    need_command("g++", "clang++")
    for models in ("own", "vision", "timm_models", "language"):
        pytest.importorskip(f"benchmarks.torch_models.{models}")
    from benchmarks.torch_models.check import check

    found = check(name)
    assert found["wrong"] == []
    assert found["share"] >= 0.9
