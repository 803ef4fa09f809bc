"""What `recording_nccl.py` prints, of a plan whose ranks divide the optimizer's state."""

from __future__ import annotations

from tests.cuda.recording_nccl import main

if __name__ == "__main__":
    main(sharded=True)
