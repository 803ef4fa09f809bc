"""A simulated GPU: the CUDA text, compiled for this machine, behind PyCUDA's interface.

`Simulator` has the names of `pycuda.driver`. Kernels run on fibers; streams run as late and in as
adverse an order as CUDA allows. docs/simulator.md lists what it finds.
"""

from graphc.runtime.sim.driver import Simulator
from graphc.runtime.sim.errors import Error, LaunchError, LogicError, MemoryError, RaceError

__all__ = ["Error", "LaunchError", "LogicError", "MemoryError", "RaceError", "Simulator"]
