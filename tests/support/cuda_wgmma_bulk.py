"""Helpers of test_cuda_wgmma_bulk.py and of tests beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphc.kernels.cuda.contract import schedules
from graphc.kernels.cuda.contract.tiles import tensor_tiles as tiles
from graphc.kernels.cuda.contract.tiles.bulk_tiles import BulkTile
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GROUP_TILES
from tests.support.cuda_tensor import prefer


def take(tile: BulkTile, monkeypatch: pytest.MonkeyPatch) -> BulkTile:
    """Let contractions take the tile wherever TMA can copy; else the smallest of wgmma."""
    monkeypatch.setenv("GRAPHC_WGMMA", "1")
    monkeypatch.setenv("GRAPHC_TMA", "1")
    prefer(GROUP_TILES[-1], "GROUP_TILES", GROUP_TILES[-1:], monkeypatch)
    monkeypatch.setattr(tiles, "GROUP_TILES", GROUP_TILES[-1:])
    monkeypatch.setattr(schedules, "BULK_TILES", (replace(tile, speed=1e6),))
    return tile
