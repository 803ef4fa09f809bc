"""Two training steps of each model on a device, for tools that watch the GPU:
`compute-sanitizer python -m tests.cuda.steps cuda`."""

from __future__ import annotations

import sys

from tests.cuda.test_executable import batch, trainer
from tests.small_models import MODELS


def main(device: str) -> None:
    for name in MODELS:
        train = trainer(name, device, streams=2)
        losses = [float(train(*batch(name))) for _ in range(2)]
        print(name, losses)


if __name__ == "__main__":
    main(sys.argv[1])
