"""Error messages for names of torch.optim that graphc lacks."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_REMEDIES = {
    "lr_scheduler": "a rule's lr may be a function of the number of finished steps, as in "
    "optim.SGD(lr=lambda step: 0.1 * 0.99**step), and program.lr = 0.05 sets it between calls; "
    "optim.schedules has cosines, warm-ups, one-cycle and plateaus",
    "swa_utils": "a rule's ema= keeps averages of the weights; rule.averaged gives a model of them",
    "LBFGS": "it calls the loss several times in a step, which the host decides: give "
    "scipy.optimize.minimize(method='L-BFGS-B') a program of the loss and its gradient, as in "
    "docs/guide.md",
    "Optimizer": "compile's update= takes a rule; the base of all rules is optim.Rule",
}
_NEAREST = {"Adafactor": "Adam"}


def missing(name: str, known: Sequence[str]) -> str:
    """Return the message of the AttributeError for `name`, with what to use instead if known."""
    if name in _REMEDIES:
        return f"graphc.optim has no {name!r}: {_REMEDIES[name]}"
    close = next(iter(difflib.get_close_matches(name, known, 1, 0.75)), "")
    nearest = _NEAREST.get(name, close)
    hint = f"; the nearest is optim.{nearest}" if nearest else ""
    return f"graphc.optim has no {name!r}{hint}"
