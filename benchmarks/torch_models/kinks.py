"""On which side of 0 a relu stands whose input is smaller than float32 can tell.

The gradient of relu jumps at 0, and of the million elements that a model's relus are given a few
lie so near to it that rounding decides. Then all gradients before are others. Where a gradient is
too far off, the elements that may be to blame are looked for, and it is compared again, as
strictly, with the truth in which some of them are on the other side: those by which the difference
is explained best.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.differences import Results, Truth
from benchmarks.torch_models.models import Subject
from benchmarks.torch_models.truth import results, wide

MARGIN = 8.0
"""Times as far as PyTorch's float32 is off in a channel, that an element may be from 0."""
MOST = 48
"""So many elements are tried."""
LARGEST = 200_000
"""Elements of a gradient that takes part in choosing the sides; all are compared afterwards."""
Place = tuple[int, int]
"""The number of a relu, in the order of a forward pass, and of an element of its input."""


class _Relus(TorchDispatchMode):
    """Keeps what relus are given, and puts elements on the other side in calls from `first` on."""

    def __init__(self, turned: tuple[Place, ...] = (), first: int = 0) -> None:
        super().__init__()
        self.inputs: list[torch.Tensor] = []
        self.turned, self.first, self.keeps = turned, first, not turned
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func) not in ("aten.relu.default", "aten.relu_.default"):
            return func(*args, **(kwargs or {}))
        if self.keeps:
            self.inputs.append(args[0].clone())
        result = func(*args, **(kwargs or {}))
        for call, place in self.turned:
            if call == self.calls - self.first:  # what is above 0 passes its gradient on
                flat = result.view(-1)
                flat[place] = 0.0 if flat[place] > 0 else 1e-30
        self.calls += 1
        return result


def on_their_sides(subject: Subject, truth: Truth, found: Results) -> tuple[Truth, int]:
    """The truth with elements on the side on which `found` has them, and how many were moved."""
    places, calls = _near(subject)
    wrong = [n for n in truth.results if n.startswith("gradient") and n in found]
    used = [n for n in wrong if truth.results[n].size <= LARGEST]
    if not places or not used:
        return truth, 0

    def turned(*chosen: Place) -> Results:
        with _Relus(chosen, calls):
            return results(subject.module, subject, wide)

    def vector(those: Results) -> Any:
        off = [(those[n] - truth.results[n]).ravel() / truth.tolerance[n] for n in used]
        return np.concatenate(off).astype(np.float32)

    moves = np.stack([vector(turned(place)) for place in places], 1)
    share = np.linalg.lstsq(moves, vector(found), rcond=1e-6)[0]
    chosen = [place for place, part in zip(places, share, strict=True) if part > 0.5]
    if not chosen:
        return truth, 0
    return Truth(turned(*chosen), truth.tolerance), len(chosen)


def _near(subject: Subject) -> tuple[list[Place], int]:
    """The elements nearest to 0 in what relus are given, and how many relus there are."""
    exact, single = _inputs(subject, True), _inputs(subject, False)
    found: list[tuple[float, Place]] = []
    for call, (x, other) in enumerate(zip(exact, single, strict=True)):
        channels = 1 if x.ndim > 3 else x.ndim - 1
        others = [axis for axis in range(x.ndim) if axis != channels]
        allowed = MARGIN * (x - other).abs().amax(others, keepdim=True) + 1e-30
        distance = (x.abs() / allowed).view(-1)
        near = torch.nonzero(distance < 1).view(-1).tolist()
        found += [(float(distance[place]), (call, place)) for place in near]
    return [place for _, place in sorted(found)[:MOST]], len(exact)


def _inputs(subject: Subject, exact: bool) -> list[torch.Tensor]:
    module = copy.deepcopy(subject.module).train()

    def change(value: Any) -> Any:
        return wide(value) if exact and isinstance(value, torch.Tensor) else value

    named = {name: change(value) for name, value in subject.named.items()}
    with torch.no_grad(), _Relus() as relus:
        (module.double() if exact else module)(*map(change, subject.arguments), **named)
    return relus.inputs
