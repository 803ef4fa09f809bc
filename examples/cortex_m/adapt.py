"""A microcontroller that learns: a detector of faults adapts to its machine, without Python.

    pip install "graphc[export]"
    python examples/cortex_m/adapt.py        qemu-system-arm has to be installed

The model is the autoencoder of MLPerf Tiny's anomaly detection. It is trained here, on sounds of a
new machine; a frame that it rebuilds badly is a fault. Batch norms are folded, all layers but the
last become constants, and two functions are exported for a Cortex-M7, which share the last layer:
`score`, the error of one frame, and `adapt`, an SGD step on eight frames. main.c runs them on
QEMU's board: when the machine has worn, every sound is an alarm, until the board has adapted. Its
scores and its state are compared with Python's, bit by bit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
from sounds import NEW, WORN, frames

import graphc
from graphc import nn, optim

WIDTHS = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640)
JUDGED, BATCH, STEPS = 64, 8, 64
BOARD = "qemu-system-arm -M mps2-an500 -nographic -semihosting -icount shift=0 -kernel"
HERE = Path(__file__).resolve().parent


class Autoencoder(nn.Module):
    """With batch norms to be trained, without to be deployed."""

    def __init__(self, normed: bool) -> None:
        self.linears = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(WIDTHS)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(w) for w in WIDTHS[1:-1]] if normed else [])

    def forward(self, x):
        *hidden, last = self.linears
        for i, linear in enumerate(hidden):
            x = linear(x)
            x = graphc.relu(self.norms[i](x) if len(self.norms) else x)
        return last(x)


def error(model, counts):
    """The mean square of what the model leaves of frames u8 [n, 640]: [n]."""
    x = graphc.astype(counts, "float32") / 64 - 2
    return graphc.mean(graphc.square(model(x) - x), axis=-1)


def loss_fn(model, counts):
    return graphc.mean(error(model, counts))


def train(sounds: np.ndarray, epochs: int = 60, batch: int = 128) -> Autoencoder:
    """The model for frames of a new machine."""
    model, generator = Autoencoder(normed=True), np.random.default_rng(1)
    spec = graphc.spec((batch, WIDTHS[0]), "uint8")
    step = graphc.compile(loss_fn, model, spec, update=optim.Adam(lr=1e-3), device="cpu")
    for _ in range(epochs):
        for chosen in generator.permutation(len(sounds)).reshape(-1, batch):
            step(sounds[chosen])
    return model


def folded(model: Autoencoder) -> Autoencoder:
    """The same function in evaluation, without batch norms."""
    deployed = Autoencoder(normed=False)
    state = {f"linears.{n}": a for n, a in model.linears.state_dict().items()}
    for i, norm in enumerate(model.norms):
        scale = norm.weight.numpy() / np.sqrt(norm.running_var.numpy() + np.float32(norm.eps))
        shift = state[f"linears.{i}.bias"] - norm.running_mean.numpy()
        state[f"linears.{i}.bias"] = shift * scale + norm.bias.numpy()
        state[f"linears.{i}.weight"] = state[f"linears.{i}.weight"] * scale[:, None]
    deployed.load_state_dict(state)
    return deployed


def make_programs(model: Autoencoder) -> dict[str, graphc.Program]:
    """The functions of the export."""
    one, batch = (graphc.spec((n, WIDTHS[0]), "uint8") for n in (1, BATCH))
    last, rate = model.linears[-1], optim.SGD(lr=2.0)  # a mean over 640 numbers has small gradients
    return {
        "score": graphc.compile(error, model, one, device="cpu"),
        "adapt": graphc.compile(loss_fn, model, batch, update=rate, train=last, device="cpu"),
    }


def in_python(programs: dict[str, graphc.Program], sounds: dict[str, np.ndarray]) -> np.ndarray:
    """The scores f32 [6, 64] in the order in which main.c makes them."""

    def judge(*names: str) -> list[list[float]]:
        return [[float(programs["score"](f[None])[0]) for f in sounds[n]] for n in names]

    before = judge("new_sound", "new_fault", "worn_sound", "worn_fault")
    for batch in sounds["heard"].reshape(STEPS, BATCH, -1):
        programs["adapt"](batch)
    return np.array(before + judge("worn_sound", "worn_fault"), np.float32)


def on_board(folder: Path, sounds: dict[str, np.ndarray], threshold: float) -> list[list[str]]:
    """The words of each line that main.c prints, built into an export's folder."""
    text = [f"enum {{FRAME = {WIDTHS[0]}, JUDGED = {JUDGED}, BATCH = {BATCH}, STEPS = {STEPS}}};"]
    text.append(f"static const float THRESHOLD = {threshold.hex()}f;")
    for name, made in sounds.items():
        rows = ",\n".join("{" + ",".join(map(str, frame)) + "}" for frame in made.tolist())
        text.append(f"static const unsigned char {name}[][FRAME] = {{\n{rows}}};")
    (folder / "frames.h").write_text("\n".join(text) + "\n")
    environment = {**os.environ, "MAIN": str(HERE / "main.c")}
    if "CXX" not in environment:
        environment["CXX"] = f"{sys.executable} -m ziglang c++"
        environment["CC"] = f"{sys.executable} -m ziglang cc"
    subprocess.run(["sh", "build.sh"], cwd=folder, env=environment, check=True)
    command = [*BOARD.split(), "build/detector.elf"]
    done = subprocess.run(
        command, cwd=folder, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return [line.split() for line in done.stdout.splitlines()]


def auc(normal: np.ndarray, fault: np.ndarray) -> float:
    """How often a fault scores above a sound without."""
    return float(np.mean(fault[:, None] > normal))


def main(arguments: list[str] | None = None) -> None:
    """Train, export, run on the board, print a table, and compare bits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of sounds and of the model")
    seed = parser.parse_args(arguments).seed
    if "CXX" not in os.environ and find_spec("ziglang") is None:
        raise SystemExit('no compiler for Cortex-M: pip install "graphc[export]", or set CXX')
    if not shutil.which(BOARD.split()[0]):
        raise SystemExit(f"{BOARD.split()[0]} is not on the PATH")
    graphc.seed(seed)
    generator = np.random.default_rng(seed)
    model = folded(train(frames(NEW, 1024, generator)))
    sounds = {
        "new_sound": frames(NEW, JUDGED, generator),
        "new_fault": frames(NEW, JUDGED, generator, fault=True),
        "worn_sound": frames(WORN, JUDGED, generator),
        "worn_fault": frames(WORN, JUDGED, generator, fault=True),
        "heard": frames(WORN, STEPS * BATCH, generator),
    }
    programs = make_programs(model)
    known = [float(programs["score"](frame[None])[0]) for frame in frames(NEW, 128, generator)]
    threshold = float(np.float32(np.quantile(known, 0.98)))
    with tempfile.TemporaryDirectory() as made:
        start, end = Path(made) / "start", Path(made) / "end"
        graphc.export(programs, start, "cortex-m", name="detector", calls=1)
        expected = in_python(programs, sounds)
        graphc.export(programs, end, "cortex-m", name="detector", calls=1)
        crc = (end / "detector.weights").read_bytes()[12:16]
        lines = on_board(start, sounds, threshold)
    report(lines, expected, crc)


def report(lines: list[list[str]], expected: np.ndarray, crc: bytes) -> None:
    """Print what the board found; SystemExit if a bit differs from Python's."""
    bits = np.array([int(value, 16) for key, value in lines if key == "score"], np.uint32)
    scores = bits.view(np.float32).reshape(-1, JUDGED)
    alarms = [int(value) for key, value in lines if key.endswith(("_sound", "_fault"))]
    print("the machine          error: normal    fault     AUC   false alarms   faults found")
    for row, title in enumerate(("new", "worn", "worn, after adapting")):
        normal, fault = scores[2 * row : 2 * row + 2]
        print(
            f"{title:20} {normal.mean():14.4f} {fault.mean():8.4f} {auc(normal, fault):7.3f} "
            f"{alarms[2 * row]:8} of {JUDGED} {alarms[2 * row + 1]:8} of {JUDGED}"
        )
    found = dict(lines)
    for name in ("arena", "state", "stack"):
        print(f"{name}: {int(found[name]):,} bytes")
    weights, sounds = int(found["weights"]), (4 * JUDGED + STEPS * BATCH) * WIDTHS[0]
    code = int(found["flash"]) - weights - sounds
    print(f"flash: {weights:,} bytes of weights, {code:,} of code, {sounds:,} of frames")
    for name in ("score", "adapt"):
        print(f"one call of {name}: {int(found[name + '_instructions']):,} instructions")
    same = np.array_equal(bits, expected.view(np.uint32).ravel())
    same_state = bytes.fromhex(found["hash"])[::-1] == crc
    print(f"scores as in Python: {same}, state {found['hash']} as in Python: {same_state}")
    if not (same and same_state):
        raise SystemExit("the board has other bits than Python")


if __name__ == "__main__":
    main()
