"""Helpers of test_cudnn.py and of tests beside it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import graphc
from graphc import nn, optim
from graphc.ir import Node
from graphc.kernels.cuda.libraries.convolution import convolution_of
from graphc.kernels.program.calls import Convolution
from tests.kernels.cuda_harness import traced
from tests.support.cublas import spec
from tests.tools import ROOT, need_command

FAKE = ROOT / "tests" / "cuda" / "fake_cudnn.c"


class Net(nn.Module):
    """Convolutions with what follows them in networks: a bias and relu, nothing, a sum and relu.
    Pixels of three channels have room for more, and so have their weights."""

    def __init__(self) -> None:
        graphc.seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.wide = nn.Conv2d(8, 8, 1)
        self.second = nn.Conv2d(8, 8, (3, 2), stride=(2, 1), padding=1, bias=False)
        self.third = nn.Conv2d(8, 8, 3, dilation=2, padding=2, groups=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        x = self.second(graphc.relu(self.wide(graphc.relu(self.first(x)))))
        x = graphc.relu(self.third(graphc.relu(x)) + x)
        return self.head(graphc.max(x, axis=(2, 3)))


def loss_fn(net: Net, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.cross_entropy(net(x), y)


def contractions(precision: str) -> list[Node]:
    """Those of a training step."""
    specs = spec(2, 3, 7, 6), spec(2, dtype="int32")
    options = {"update": optim.SGD(lr=0.1), "device": "cuda", "precision": precision}
    # As is done where libraries are tried:
    options["disable"] = ["fuse_columns", "fuse_rows", "fuse_products"]
    step = graphc.compile(loss_fn, Net(), *specs, **options)
    found = [n for n in step.graph.nodes if getattr(n.op, "template", "") == "contract"]
    return [n for n in found if any("conv" in inner.op.name for inner in n.op.body.nodes)]


def conv(**settings: Any) -> Any:
    return lambda x, w: graphc.conv2d(x, w, **settings)


IMAGES = spec(2, 4, 7, 6)


STEPS = {precision: contractions(precision) for precision in ("float32", "tf32", "bfloat16")}


NODES = [
    traced("rows", conv(), IMAGES, spec(6, 4, 3, 2)),
    traced("strided", conv(stride=2, padding=(2, 1), dilation=(1, 2)), IMAGES, spec(6, 4, 3, 2)),
    traced("grouped", conv(groups=2), IMAGES, spec(6, 2, 3, 2)),
    *(node for nodes in STEPS.values() for node in nodes[1:]),
]


def convolution(node: Node) -> Convolution:
    found = convolution_of(node)
    assert found is not None, f"{node.op.kernel} is a convolution"
    return found


def build_fake(folder: Path) -> Path:
    made = folder / "libcudnn.so.9"
    command = [need_command("gcc"), "-shared", "-fPIC", "-O1", str(FAKE), "-ldl", "-o", str(made)]
    subprocess.run(command, check=True)
    return made
