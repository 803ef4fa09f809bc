"""Build a web page that trains the LeNet of examples/digits.py in WebAssembly.

    pip install "graphc[demo,export]"
    python examples/train_in_browser/build.py OUT
    python -m http.server --directory OUT      or any other server of files

A training step, a prediction for 100 images and one for a drawn digit are exported together, share
their parameters, and run in a worker of the page. The server computes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import graphc
from graphc import optim

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from digits import LeNet  # noqa: E402

BATCH = 100
LEARN = 1500
COMPARED = 10
PAGE = ("index.html", "style.css", "page.js", "charts.js", "drawing.js", "worker.js")


def read(model, counts):
    """The logits of images as the data set has them, 8 x 8 counts of 0 to 16, when enlarged."""
    images = graphc.astype(counts[:, None], "float32") / 16
    return model(graphc.interpolate(images, size=(28, 28), mode="bilinear"))


def loss_fn(model, counts, labels):
    return graphc.cross_entropy(read(model, counts), labels)


def probabilities(model, counts):
    return graphc.softmax(read(model, counts), axis=-1)


def main(arguments: list[str] | None = None) -> None:
    """Write the page into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="a folder that is empty or missing")
    out = parser.parse_args(arguments).out
    os.environ["GRAPHC_DENORMALS"] = "keep"  # as WebAssembly does
    graphc.seed(0)
    model = LeNet()
    programs, (images, labels) = make_programs(model), load_counts()
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder) / "initial"
        graphc.export(programs, sources, "wasm32", name="digits")
        compile_sources(sources)
        initial, trained = (sources / "digits.weights").read_bytes(), Path(folder) / "trained"
        train(programs["step"], images, labels, COMPARED)
        graphc.export(programs, trained, "wasm32", name="digits")
        state = state_of((trained / "digits.weights").read_bytes())
        out.mkdir(parents=True, exist_ok=True)
        for path in (sources / "digits.mjs", *sorted(sources.glob("build/*.wasm"))):
            shutil.copyfile(path, out / path.name)
    for name in PAGE:
        shutil.copyfile(HERE / name, out / name)
    (out / "digits.weights").write_bytes(initial)
    (out / "digits.bin").write_bytes(images.tobytes() + labels.astype(np.uint8).tobytes())
    about = {
        "version": graphc.__version__,
        "images": len(images),
        "learn": LEARN,
        "batch": BATCH,
        "parameters": sum(array.size for array in model.parameters()),
        "compared": {"steps": COMPARED, "sha256": hashlib.sha256(state).hexdigest()},
    }
    (out / "about.json").write_text(json.dumps(about, indent=2) + "\n")
    print(f"python -m http.server --directory {out}")


def make_programs(model: LeNet) -> dict[str, graphc.Program]:
    """The functions of the export."""
    images, drawn = graphc.spec((BATCH, 8, 8), "uint8"), graphc.spec((1, 8, 8), "uint8")
    labels, update = graphc.spec((BATCH,), "int32"), optim.SGD(lr=0.05, momentum=0.9)
    options = {"device": "cpu", "streams": 1}
    return {
        "step": graphc.compile(loss_fn, model, images, labels, update=update, **options),
        "classify": graphc.compile(probabilities, model, images, **options),
        "recognise": graphc.compile(probabilities, model, drawn, **options),
    }


def load_counts() -> tuple[np.ndarray, np.ndarray]:
    """The digits as u8 [1797, 8, 8] and i32 [1797], in the order of examples/digits.py: the first
    1,500 to learn from, the others to test with."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order].reshape(-1, 8, 8).astype(np.uint8), labels[order].astype(np.int32)


def order_of(epoch: int) -> np.ndarray:
    """The order in which an epoch takes the images; worker.js has the same."""
    h = np.arange(LEARN, dtype=np.uint32) + np.uint32(epoch * LEARN)
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    return np.argsort(h ^ (h >> np.uint32(16)), kind="stable")


def train(step: graphc.Program, images: np.ndarray, labels: np.ndarray, steps: int) -> None:
    """The first steps, as the page trains."""
    for number in range(steps):
        epoch, place = divmod(number, LEARN // BATCH)
        chosen = order_of(epoch)[place * BATCH : (place + 1) * BATCH]
        step(images[chosen], labels[chosen])


def compile_sources(folder: Path) -> None:
    """Run an export's build.sh, with the compilers of the ziglang package, or CXX and CC."""
    environment = dict(os.environ)
    if "CXX" not in environment:
        if find_spec("ziglang") is None:
            raise SystemExit(
                'no compiler for WebAssembly: pip install "graphc[export]", or set CXX'
            )
        environment["CXX"] = f"{sys.executable} -m ziglang c++"
        environment["CC"] = f"{sys.executable} -m ziglang cc"
    subprocess.run(["sh", folder / "build.sh"], env=environment, check=True)


def state_of(weights: bytes) -> bytes:
    """The state in an export's file of weights: a header of 64 bytes, then as many as it says."""
    return weights[: 64 + int.from_bytes(weights[16:24], "little")]


if __name__ == "__main__":
    main()
