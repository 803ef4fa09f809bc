"""The CUDA device, real or simulated: plans of generated kernels on several streams.

PyCUDA provides the context, modules, streams, events and memory, and launches the kernels;
cuda-bindings compiles them (NVRTC) and captures a whole step as one CUDA graph. `device="sim"` runs
the same code on a simulated GPU with PyCUDA's interface.
"""

from graphc.runtime.cuda.device import Device, find_device, gpu_found, lacks_tensor_cores
from graphc.runtime.cuda.executable import CudaExecutable, Unavailable, load
from graphc.runtime.cuda.player import Results

__all__ = [
    "CudaExecutable",
    "Device",
    "Results",
    "Unavailable",
    "find_device",
    "gpu_found",
    "lacks_tensor_cores",
    "load",
]
