"""What PyCUDA asks of a driver that records where kernels are tuned, as JSON.

test_pycuda_tuning.py runs this as test_pycuda.py runs recording.py.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

import numpy as np

import graphc
from graphc import nn
from graphc.runtime.cuda.cublas import CublasLt
from graphc.runtime.cuda.cudnn import Cudnn
from graphc.runtime.cuda.driver import PycudaDriver
from tests.cuda.recording import DRIVER, taken


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(2, 1 << 34)
    found: dict[str, Any] = {}
    found["tuned"] = tuned(528, {"Registers<16, 32": 0.5})
    found["hardly faster"] = tuned(544, {"Registers<16, 32": 0.995})
    found["libraries missing"] = tuned(560, {}, "libraries")
    DRIVER.fake_product_takes.argtypes = (ctypes.c_double,)
    PycudaDriver.products = CublasLt(ctypes.CDLL(os.environ["FAKE_CUBLAS"]))  # type: ignore[assignment]
    DRIVER.fake_product_takes(1.5)
    found["libraries"] = tuned(560, {}, "libraries")
    DRIVER.fake_product_takes(9.0)
    found["slow libraries"] = tuned(576, {}, "libraries")
    PycudaDriver.convolutions = Cudnn(ctypes.CDLL(os.environ["FAKE_CUDNN"]))  # type: ignore[assignment]
    DRIVER.fake_product_takes(1.5)
    found["convolutions"] = convolved()
    found["depth"] = DRIVER.fake_depth()
    print(json.dumps(found))


TAKES: dict[str, float] = {}
"""Microseconds of a launch of kernels in whose text these words are."""


def compiled(self: Any, text: str, name: str, where: str = "") -> bytes:
    found = [microseconds for words, microseconds in TAKES.items() if words in text]
    return f"image {found[0] if found else 1}".encode()


def tuned(width: int, takes: dict[str, float], tune: bool | str = True) -> dict[str, Any]:
    """What is recorded, noted and chosen where two equal layers are tuned, twice, and called."""
    TAKES.update(takes)
    layers = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    spec = graphc.spec((40, width))
    taken()
    records = []
    for _ in range(2):
        program = graphc.compile(layers, spec, device="cuda", streams=1, tune=tune)
        records.append(taken())
    TAKES.clear()
    program(np.zeros((40, width), np.float32))
    records.append(taken())
    notes = [note for note in program.plan.notes if not note.startswith("streams")]
    return {"records": records, "notes": notes, "kernels": list(program.kernels.values())}


def convolved() -> dict[str, Any]:
    """As `tuned`, of a convolution whose products tensor cores make."""
    spec = graphc.spec((8, 16, 9, 9))
    options: dict[str, Any] = {"streams": 1, "tune": "libraries", "precision": "tf32"}
    taken()
    program = graphc.compile(nn.Conv2d(16, 16, 3), spec, device="cuda", **options)
    records = [taken()]
    program(np.zeros(spec.shape, np.float32))
    records.append(taken())
    return {"records": records, "notes": program.plan.notes}


if __name__ == "__main__":
    main()
