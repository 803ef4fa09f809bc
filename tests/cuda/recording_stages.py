"""What `recording_nccl.py` prints, of a plan whose ranks have a stage each."""

from __future__ import annotations

from tests.cuda.recording_nccl import main

if __name__ == "__main__":
    main(stages=4)
