"""What the kit's stage `binding` asks of a driver that records, as JSON."""

from __future__ import annotations

import json

import numpy as np

from graphc.runtime.cuda import find_device
from graphc.runtime.cuda.driver import PycudaDriver
from tests.cuda.recording import DRIVER, compiled, taken
from tools.gpu_check import binding


def main() -> None:
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(1, 1 << 30)
    binding.STEPS, binding.ROUNDS, binding.SIZES = 3, 1, (4096, 1 << 16)
    print(json.dumps({"found": binding.compared("cuda"), "record": taken(), "there": there()}))


def there() -> list[int]:
    """Numbers that went to the device and back, at once, as the stage `smoke` sends them."""
    place = find_device("cuda")
    with place.entered():
        memory, back = place.driver.mem_alloc(12), np.zeros(3, np.int32)
        place.driver.memcpy_htod(memory, np.arange(3, dtype=np.int32))
        place.driver.memcpy_dtoh(back, memory)
        locked = place.driver.pagelocked_empty((2, 3), np.float32)
    return [*back.tolist(), *locked.shape]


if __name__ == "__main__":
    main()
