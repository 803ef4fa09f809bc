"""A simulated GPU: the CUDA text, compiled for this machine, behind the interface of PyCUDA.

`Simulator` has the names of `pycuda.driver`. Kernels run on fibers; what streams do runs as late
and in as strange an order as CUDA allows. docs/simulator.md says what it finds.
"""

from graphc.runtime.sim.driver import Simulator
from graphc.runtime.sim.errors import Error, LaunchError, LogicError, MemoryError, RaceError

__all__ = ["Error", "LaunchError", "LogicError", "MemoryError", "RaceError", "Simulator"]
