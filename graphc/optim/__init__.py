"""Update rules with the arguments, defaults and arithmetic of torch.optim."""

from graphc.optim.adam import Adam, AdamW
from graphc.optim.rule import Rule
from graphc.optim.scaled import Adagrad, RMSprop
from graphc.optim.sgd import SGD

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "Rule"]
