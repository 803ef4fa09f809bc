"""ONNX files: load them as modules, and save modules as files.

reading.py     files and tensors, checked
model.py       a file as a module
needed.py      which values must be known when a model is traced, which operators are not offered
schemas.py     what ONNX itself says of operators
interpret.py   ONNX's graphs as functions of traced tensors
operators/     what each operator is in graphc
writers/       what each op is in ONNX
saving.py      modules as files
backend.py     graphc behind ONNX's interface for backends
"""

try:
    import onnx as _onnx
except ImportError:
    raise ImportError("ONNX files need the onnx package: pip install 'graphc[onnx]'") from None

from graphc.onnx.model import Model, load
from graphc.onnx.saving import save

assert _onnx.__name__ == "onnx"
__all__ = ["Model", "load", "save"]


def __dir__() -> list[str]:
    return __all__
