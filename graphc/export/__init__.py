"""Programs as C and C++ sources: training and inference without Python."""

from graphc.export.entry import export

__all__ = ["export"]
