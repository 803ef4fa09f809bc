"""A training loop that may be copied, and callbacks for it."""

from graphc.training.callbacks import Callback, Checkpoints, EarlyStopping, ReduceOnPlateau
from graphc.training.curve import Curve
from graphc.training.events import TensorBoard
from graphc.training.fit import fit
from graphc.training.history import History
from graphc.training.progress import Progress
from graphc.training.run import Run

__all__ = [
    "Callback",
    "Checkpoints",
    "Curve",
    "EarlyStopping",
    "History",
    "Progress",
    "ReduceOnPlateau",
    "Run",
    "TensorBoard",
    "fit",
]


def __dir__() -> list[str]:
    return __all__
