"""What `graphc doctor` says of a GPU whose driver records, and the third step of a program whose
kernels are compiled, as JSON."""

from __future__ import annotations

import json
import os

import numpy as np

import graphc
from graphc import nn, optim
from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.driver import PycudaDriver
from graphc.runtime.cuda.parts import describe_parts
from tests.cuda.recording import DRIVER, taken


def main() -> None:
    os.environ["PATH"] = "/usr/bin:/bin"  # where no nvcc is
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    DRIVER.fake_machine(1, 1 << 34)
    layer = nn.Linear(8, 3)
    step = graphc.compile(
        lambda layer, x: graphc.mean(layer(x) ** 2),
        layer,
        graphc.spec((5, 8)),
        update=optim.SGD(lr=0.1),
        device="cuda",
    )
    for _ in range(3):
        taken()
        step(np.ones((5, 8), np.float32))
    found = {
        "step": taken(),
        "lines": describe_parts(),
        "compiled": len(find_device("cuda").driver.usage),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
