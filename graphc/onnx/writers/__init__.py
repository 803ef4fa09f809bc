"""Writers of graphc's ops as ONNX, by family."""

from graphc.onnx.writers import pointwise, structure
from graphc.onnx.writers.rules import writer_of as writer_of

__all__ = ["pointwise", "structure", "writer_of"]
