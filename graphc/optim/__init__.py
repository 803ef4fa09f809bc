"""Optimizers with the arguments, defaults and arithmetic of torch.optim."""

from graphc.optim import schedules
from graphc.optim.adam import Adam, AdamW
from graphc.optim.adam_variants import Adamax, NAdam, RAdam, SparseAdam
from graphc.optim.applied import apply
from graphc.optim.large_batch import LAMB, Lion, Muon
from graphc.optim.missing import missing as _missing
from graphc.optim.private import DPSGD
from graphc.optim.rule import Rule
from graphc.optim.scaled import Adagrad, RMSprop
from graphc.optim.sgd import ASGD, SGD
from graphc.optim.sized import Adadelta, Rprop

__all__ = [
    "ASGD",
    "DPSGD",
    "LAMB",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "Rule",
    "SparseAdam",
    "apply",
    "schedules",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    raise AttributeError(_missing(name, __all__), name=name)
