"""Write docs/torch-names.md: the counterpart in graphc of every name of torch.nn,
torch.nn.functional and torch.optim.

The names are those of the installed PyTorch; the AttributeError of a missing name tells what to use
instead.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType

import torch

import graphc
from graphc import nn, optim

PAGE = Path(__file__).parent.parent / "docs" / "torch-names.md"
HEAD = """# PyTorch's names

Written by `tools/write_torch_names.py` from PyTorch {version} and from graphc; do not edit. A name
that is the same has the same meaning, and the same arguments and defaults, with `axis` for `dim`
and `keepdims` for `keepdim`, but for those listed behind the names and those that say how PyTorch
stores and runs: `{common}`.
What stands for another name is also said by the error that its use gives.
"""
COMMON = (
    "device dtype inplace out size_average reduce foreach fused capturable differentiable".split()
)
"""Arguments of PyTorch that nothing in graphc has."""
UNSAID = {"self", "args", "kwargs", "input", "params", "modules", "parameters", *COMMON}
RENAMED = {"dim": "axis", "keepdim": "keepdims", "min_value": "min_val", "max_value": "max_val"}
MODULES = {
    "torch.nn": torch.nn,
    "torch.nn.functional": torch.nn.functional,
    "torch.optim": torch.optim,
}
SCHEDULES = {
    "LambdaLR": "`lr=lambda step: base * factor(step)`",
    "MultiplicativeLR": "`lr=lambda step: base * factor**step`",
    "StepLR": "`lr=lambda step: base * gamma ** (step // step_size)`",
    "MultiStepLR": "`lr=lambda step: base * gamma ** sum(step >= m for m in milestones)`",
    "ConstantLR": "`lr=lambda step: base * (factor if step < total_iters else 1)`",
    "LinearLR": "`lr=lambda step: base * (start + (end - start) * min(1, step / total_iters))`",
    "ExponentialLR": "`lr=lambda step: base * gamma**step`",
    "SequentialLR": "`lr=lambda step: first(step) if step < at else second(step - at)`; after a "
    "`LinearLR`, `optim.schedules.Warmup(second, at, start)`",
    "CosineAnnealingLR": "`lr=optim.schedules.Cosine(base, T_max, low)`",
    "ChainedScheduler": "`lr=lambda step: base * first(step) * second(step)`",
    "ReduceLROnPlateau": "`program.lr = plateau(loss)` after each epoch, with "
    "`plateau = optim.schedules.Plateau(base)`; in `graphc.fit`, `training.ReduceOnPlateau(name)`",
    "CyclicLR": "`lr=lambda step: low + (high - low) * (1 - abs(step / half % 2 - 1))`",
    "CosineAnnealingWarmRestarts": "`lr=optim.schedules.CosineRestarts(base, T_0, T_mult, low)`",
    "OneCycleLR": "`lr=optim.schedules.OneCycle(high, total_steps)`",
    "PolynomialLR": "`lr=lambda step: base * (1 - min(step, total_iters) / total_iters) ** power`",
    "LRScheduler": "any function of the number of finished steps",
}
"""What a schedule is as a rule's `lr`, by its name."""
PRIVATE = re.compile(r"_$|has_torch|handle_torch|boolean_dispatch|assert_int")
"""Functions that only PyTorch's own modules call, and those that write into their argument."""


def names() -> dict[str, tuple[str, list[str]]]:
    """The title of each part of PyTorch, its counterpart in graphc, and its public names."""
    layers = [
        name
        for name in dir(torch.nn)
        if isinstance(getattr(torch.nn, name), type)
        and issubclass(getattr(torch.nn, name), torch.nn.Module)
    ]
    functions = [
        name
        for name in dir(torch.nn.functional)
        if name.islower()
        and not name.startswith("_")
        and not PRIVATE.search(name)
        and callable(getattr(torch.nn.functional, name))
        and not isinstance(getattr(torch.nn.functional, name), ModuleType)
    ]
    rules = [name for name in torch.optim.__all__ if name[0].isupper()]
    return {
        "torch.nn": ("nn", layers),
        "torch.nn.functional": ("graphc", functions),
        "torch.optim": ("optim", rules),
    }


def remedy(owner: object, name: str) -> str:
    """What to use instead, from the message of the AttributeError."""
    try:
        getattr(owner, name)
    except AttributeError as error:
        _, _, said = str(error).partition(repr(name))
        said = re.sub(r"^[:;,]? *(the nearest is )?", "", said)
        said = re.sub(r"; the nearest is ", "; ", said)
        return re.sub(r"(?<![\w`])((?:graphc|nn|optim)\.[\w.]+)", r"`\1`", said) or "—"
    raise AssertionError(f"{name} is there")


def lacking(title: str, owner: object, name: str) -> list[str]:
    """The arguments of PyTorch's `name` that graphc's lacks, if both can be read."""
    theirs = getattr(MODULES[title], name)
    try:
        wanted, own = (inspect.signature(f).parameters for f in (theirs, getattr(owner, name)))
    except (TypeError, ValueError):
        return []
    if list(own) == ["args", "kwargs"]:
        return []
    return [
        p
        for p in wanted
        if p not in UNSAID and p[0] != "_" and p not in own and RENAMED.get(p, p) not in own
    ]


def page() -> str:
    """The whole page."""
    owners = {"nn": nn, "graphc": graphc, "optim": optim}
    common = "`, `".join(COMMON)
    parts = [HEAD.format(version=torch.__version__.split("+")[0], common=common)]
    for title, (owner, listed) in names().items():
        here = [name for name in listed if hasattr(owners[owner], name)]
        other = [name for name in listed if name not in here]
        same = ", ".join(f"`{owner}.{name}`" for name in here)
        rows = [f"| `{name}` | {remedy(owners[owner], name)} |" for name in other]
        without = [(n, lacking(title, owners[owner], n)) for n in here]
        left = "; ".join(f"`{n}`: `{'`, `'.join(a)}`" for n, a in without if a)
        left = f"Arguments that are not there: {left}.\n\n" if left else ""
        parts.append(
            f"## {title}\n\nThe same in graphc, {len(here)} of {len(listed)}: {same}.\n\n{left}"
            f"| not in graphc | use |\n| --- | --- |\n" + "\n".join(rows) + "\n"
        )
    rows = [f"| `{name}` | {SCHEDULES[name]} |" for name in torch.optim.lr_scheduler.__all__]
    parts.append(
        "## torch.optim.lr_scheduler\n\nA rule's `lr` may be a function of the number of finished "
        "steps, and `program.lr` may be set between them.\n\n"
        "| schedule | in graphc |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
