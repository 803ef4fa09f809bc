"""Two training steps of each model on a device, for tools that watch the GPU.

`compute-sanitizer python -m tests.cuda.steps cuda` prints the losses and, on a GPU, a last line of
JSON: symbol -> [registers per thread, bytes spilled per thread, bytes of shared memory].
"""

from __future__ import annotations

import json
import sys
from dataclasses import astuple

from graphc.runtime.cuda import find_device
from tests.small_models import MODELS
from tests.support.executable import batch, trainer


def main(device: str) -> None:
    for name in MODELS:
        train = trainer(name, device, streams=2)
        losses = [float(train(*batch(name))) for _ in range(2)]
        print(name, losses)
    usage = getattr(find_device(device).driver, "usage", {})
    print(json.dumps({symbol: astuple(each) for symbol, each in usage.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
