"""Every example runs and does what it says."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

import graphc
from tests.support.examples import EXAMPLES, load
from tests.tools import need_command, need_module, need_package, run_python

TESTED = {
    "char_lstm",
    "data_parallel",
    "data_parallel_dask",
    "data_parallel_ray",
    "pipeline_parallel",
    "digits",
    "export_cpp",
    "gpt_text",
    "inspect_stages",
    "mlp",
    "own_layer",
    "own_op",
    "ppo",
    "private_digits",
    "resume",
    "sac",
    "torch_resnet",
    "two_streams",
    "vmap",
}


def test_every_example_is_tested_here():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TESTED


def test_digits_learns_and_ends_with_its_accuracy(capsys):
    need_module("sklearn")
    accuracy = load("digits").main([])
    output = capsys.readouterr().out
    assert accuracy >= 97
    assert output.splitlines()[-1] == f"test accuracy: {accuracy:.1f} %"
    assert re.search(r"\d+ operations became \d+ kernel launches on 1 stream\(s\)", output)
    assert re.search(r"work memory: peak [\d.]+ MB, lower bound [\d.]+ MB", output)


def test_private_digits_learn_and_say_how_private_they_are(capsys):
    need_module("sklearn")
    example = load("private_digits")
    accuracy, epsilon = example.main(["--steps", "60"])
    assert accuracy > 80
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"test accuracy {accuracy:.1f} %, epsilon {epsilon:.2f} at delta 0.0001"
    need_module("dp_accounting")
    assert example.spent(1.1, 32 / 1500, 470) < example.spent(1.1, 32 / 1500, 940)


def test_char_lstm_learns_and_writes(capsys):
    bits = load("char_lstm").main(["--steps", "60", "--hidden", "32", "--sample", "40"])
    lines = capsys.readouterr().out.splitlines()
    assert bits < 5.3  # of 6.6 at first
    assert re.fullmatch(r"step +60: [\d.]+ bits per character, [\d.]+ ms per step", lines[10])
    assert len("\n".join(lines[11:])) == 40


def test_gpt_text_learns_and_goes_on_with_all_prompts(capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    gpt = load("gpt_text")
    small = ["--steps", "40", "--features", "32", "--layers", "2", "--sample", "20"]
    assert gpt.main(small) < 5.5  # of 6.6 at first
    output = capsys.readouterr().out
    assert re.search(r"^[\d,]+ characters per second, 4 at a time$", output, re.MULTILINE)
    written = output.split("---\n")[1:]
    for prompt, text in zip(gpt.PROMPTS, written, strict=True):
        assert text.startswith(prompt) and len(text) == len(prompt) + 20 + 1


def test_ppo_balances_the_pole(capsys):
    need_module("gymnasium")
    assert load("ppo").main(["--steps", "40000", "--seed", "1"]) > 400  # of 500; 20 at first
    assert re.search(r"^ +\d+,\d+ steps: return +[\d.]+, [\d,]+ steps", capsys.readouterr().out)


def test_sac_swings_the_pendulum_up():
    need_module("gymnasium")
    assert load("sac").main(["--steps", "4500"]) > -400  # -1,200 at first


def test_resume_goes_on_with_the_same_bits(tmp_path, capsys):
    resume, whole, parts = load("resume"), str(tmp_path / "whole"), str(tmp_path / "parts")
    expected = resume.main(["--folder", whole, "--steps", "120"])
    resume.main(["--folder", parts, "--steps", "70"])
    (tmp_path / "parts" / "step-70.safetensors").write_bytes(b"damaged")
    assert resume.main(["--folder", parts, "--steps", "120"]) == expected
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == ["goes on from step 50", f"step 120: loss {expected!r}"]
    audits = [(tmp_path / name / "step.audit").read_text() for name in ("whole", "parts")]
    assert audits[0] == audits[1]
    point = np.zeros((64, 2), np.float32)
    models = [graphc.load(tmp_path / name / "model.graphc") for name in ("whole", "parts")]
    np.testing.assert_array_equal(models[0](point), models[1](point))


def test_digits_reads_the_files_of_mnist(tmp_path, capsys):
    generator = np.random.default_rng(0)
    for name, count in (("train", 200), ("t10k", 50)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = generator.integers(0, 10, count, dtype=np.uint8)
        write_idx(tmp_path / f"{name}-images-idx3-ubyte", images)
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte.gz", labels)
    digits = load("digits")
    accuracy = digits.main(["--data", str(tmp_path), "--epochs", "1"])
    assert capsys.readouterr().out.splitlines()[0] == "200 images to learn from, 50 to test with"
    assert 0 <= accuracy <= 100
    images, labels, _, test_labels = digits.load_mnist(tmp_path)
    assert images.shape == (200, 1, 28, 28)
    assert images.dtype == np.float32
    assert 0 <= images.min() <= images.max() <= 1
    assert labels.dtype == test_labels.dtype == np.int32


def test_digits_says_which_file_of_mnist_is_missing(tmp_path):
    name = "train-images-idx3-ubyte"
    message = f"{tmp_path}: expected {name} or {name}.gz, found neither"
    with pytest.raises(SystemExit, match=f"^{re.escape(message)}$"):
        load("digits").main(["--data", str(tmp_path)])


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    content = header + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_digits_keeps_edges_when_it_enlarges():
    image = np.arange(4, dtype=np.float32).reshape(1, 2, 2)
    assert load("digits").enlarge(image, 4).tolist() == [
        [[0, 0.25, 0.75, 1], [0.5, 0.75, 1.25, 1.5], [1.5, 1.75, 2.25, 2.5], [2, 2.25, 2.75, 3]]
    ]


def test_export_goes_on_in_c(capsys):
    need_command("g++")
    losses = load("export_cpp").main()
    assert losses[-1] < 0.05 * losses[0]
    assert capsys.readouterr().out.count("as in Python: True") == 2


def test_mlp_learns():
    assert load("mlp").main() < 0.02


def test_vmap_trains_models_at_once_and_finds_the_sample_that_does_not_belong(capsys):
    losses, norms = load("vmap").main()
    assert losses.shape == (8,) and norms.shape == (64,)
    assert losses.max() < 0.2  # of which 9 / 64 are the sample's
    assert capsys.readouterr().out.splitlines()[-1] == "the sample that pulls hardest: 0"
    assert norms.argmax() == 0


def test_own_layer_learns():
    first, last = load("own_layer").main()
    assert last < 0.2 * first


def test_own_op_has_its_gradient_and_shares_a_kernel(capsys):
    assert load("own_op").main() < 1e-6
    kernels = [line for line in capsys.readouterr().out.splitlines() if "= kernel " in line]
    assert len(kernels) == 1


def test_two_streams_give_the_same_bits(capsys):
    assert load("two_streams").main()
    output = capsys.readouterr().out
    assert "stream 0: " in output
    assert "stream 1: " in output


def test_inspect_stages_follows_a_line(capsys):
    program = load("inspect_stages").main()
    output = capsys.readouterr().out
    place = output.split(": ")[0]
    for stage in program.stages:
        assert f"after {stage}: " in output
    assert output.count(place) >= len(program.stages)
    assert 'extern "C"' in output
    assert "plan loss_fn" in output
    assert "profile loss_fn" in output


@pytest.mark.slow
def test_a_resnet_of_torchvision_learns_as_in_eager():
    need_command("g++", "clang++")
    need_module("torch")
    need_module("sklearn")
    need_package("torchvision")
    accuracies = []
    for arguments in ([], ["--plan"], ["--backend", "eager"]):
        output = run_python("examples/torch_resnet.py", *arguments)
        accuracies.append(float(re.search(r"test accuracy: ([\d.]+) %$", output.strip())[1]))
    # Rounding alone parts them, which 60 steps make large; and 1 % is 3 of 297 digits.
    assert min(accuracies) > 90
    assert min(accuracies[:2]) > accuracies[2] - 3
