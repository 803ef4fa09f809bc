"""Update rules with the arguments, defaults and arithmetic of torch.optim."""

from graphc.optim.adam import Adam, AdamW
from graphc.optim.missing import missing as _missing
from graphc.optim.rule import Rule
from graphc.optim.scaled import Adagrad, RMSprop
from graphc.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Rule"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    raise AttributeError(_missing(name, __all__), name=name)
