"""What graphc's ops are in ONNX: a writer for each, by family."""

from graphc.onnx.writers import pointwise, structure
from graphc.onnx.writers.rules import writer_of as writer_of

__all__ = ["pointwise", "structure", "writer_of"]
