"""Batches of training data as NumPy arrays, prefetched, with a position to go on from."""

from graphc.data.batches import Batches

__all__ = ["Batches"]


def __dir__() -> list[str]:
    return __all__
