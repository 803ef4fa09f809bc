"""graphc: a deep-learning framework that compiles models to a plan of generated kernels.

A Python function is traced once to a graph of ops, which is differentiated, optimized, planned and
compiled. `compile` is the entry point.
"""

from graphc import data, fft, linalg, nn, optim, text, training
from graphc import functions as _functions
from graphc.base.errors import CompileError, GraphError, PlanError, RunError
from graphc.export import export
from graphc.functions import *  # noqa: F403
from graphc.functions.hints import missing as _missing
from graphc.gradients.custom import custom_vjp
from graphc.gradients.derivatives import hvp, jvp, linearize, vjp
from graphc.gradients.reverse import grad, value_and_grad
from graphc.nn.initialize import seed
from graphc.parallel.options import DataParallel
from graphc.parallel.pipeline import PipelineParallel
from graphc.program import Buckets, Program, SizedProgram, compile
from graphc.program.audit import Audit
from graphc.program.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from graphc.program.debug_print import show, tap
from graphc.program.jacobians import hessian, jacfwd, jacrev
from graphc.program.saved_program import load
from graphc.program.tracing import trace
from graphc.program.vmap import vmap
from graphc.program.weights import load_weights, save_weights
from graphc.pytorch import from_torch, to_torch
from graphc.trace import Tensor, spec
from graphc.training import fit

__version__ = "0.2.0"

__all__ = [
    "Audit",
    "Checkpoint",
    "Buckets",
    "CompileError",
    "DataParallel",
    "PipelineParallel",
    "GraphError",
    "PlanError",
    "Program",
    "RunError",
    "SizedProgram",
    "Tensor",
    "compile",
    "custom_vjp",
    "data",
    "export",
    "fft",
    "fit",
    "from_torch",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "linalg",
    "linearize",
    "load",
    "load_checkpoint",
    "load_weights",
    "nn",
    "optim",
    "save_checkpoint",
    "save_weights",
    "seed",
    "show",
    "spec",
    "tap",
    "text",
    "to_torch",
    "trace",
    "training",
    "value_and_grad",
    "vjp",
    "vmap",
    *_functions.NAMES,
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    raise AttributeError(_missing(name, __all__), name=name)
