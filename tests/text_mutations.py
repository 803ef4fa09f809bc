"""Texts of graphs with something changed in them, as a hand or a broken disk would."""

from __future__ import annotations

import random
import re

import graphc
from graphc import nn, optim

PIECES = [
    *("-" * 3000 + "1", "9" * 5000, "0x" + "f" * 5000, "1e999", "-", "--", "(", ")", "((((" * 200),
    *("[", "]", "{lanes=0x16}", "{lanes=9x1}", "{lanes=0x0}", "f32", "f32[", "bf16", "f32[9,9"),
    *(
        "f32[99999999999999999999999]",
        "f32[-1]",
        "f32[2,,3]",
        "nan0x00",
        "nan0xzz",
        "nan0x7fc00000",
    ),
    *("nan", "inf", "-inf", "-nan", "%", "%110000;", "%ffffffffff;", "%d800;", "%", "%%", "="),
    *(",", ":", "#", " # ", " : ", '"a"', "'a'", "True", "None", "Layout(0,16)", "Layout(0)"),
    *("Layout(a,b)", "Layout('a',1.5)", "\n", "\n  ", "\n      ", "body x", "body", "return"),
    *("update", "in", "state", "kernel", "kernel k", "scan", "1j", "b'x'", "...", "(1,2,3)"),
    *("-(1,2)", '-"a"', "lambda:0", "value=", "digest=", "axes=(9,)", "shape=(0,)", "\\x20"),
    *("\x00", "\r", "\t", "\u2028", "1.5", "1_000", "007", "x" * 300),
]


def programs() -> list[str]:
    """The texts of a small network's training step and of a loop, as traced and as fused."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4))

    def loss(model: nn.Module, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
        return graphc.cross_entropy(model(x), y)

    def odd(x: graphc.Tensor) -> object:
        values = graphc.as_tensor([1.5, float("inf"), -3, 1e-40])
        return x * float("nan") + values, graphc.pad(x, [(1, 2)], value=float("nan"))

    specs = graphc.spec((2, 1, 6, 6)), graphc.spec((2,), "int32")
    update = optim.SGD(lr=0.1, momentum=0.9)
    step = graphc.compile(loss, model, *specs, update=update, device="reference")
    loop = graphc.compile(nn.LSTM(3, 4), graphc.spec((5, 2, 3)), device="reference")
    traced = graphc.trace(odd, graphc.spec((4,)))
    return [*(str(p) for x in (step, loop) for p in (x.stages["trace"], x.graph)), str(traced)]


def mutated(text: str, choice: random.Random) -> str:
    """`text` after one to four changes."""
    for _ in range(choice.randint(1, 4)):
        text = choice.choice(CHANGES)(text, choice) or "x"
    return text


def _cut(text: str, choice: random.Random) -> str:
    begin = choice.randrange(len(text) + 1)
    return text[:begin] + text[begin + choice.choice([1, 2, 5, 20]) :]


def _insert(text: str, choice: random.Random) -> str:
    begin = choice.randrange(len(text) + 1)
    return text[:begin] + choice.choice(PIECES) + text[begin:]


def _replace(pattern: str, text: str, choice: random.Random, before: str = "") -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    match = choice.choice(found)
    return text[: match.start()] + before + choice.choice(PIECES) + text[match.end() :]


def _word(text: str, choice: random.Random) -> str:
    return _replace(r"[\w.]+|[^\w\s]", text, choice)


def _attribute(text: str, choice: random.Random) -> str:
    return _replace(r"=[^ ]+", text, choice, "=")


def _swap(text: str, choice: random.Random) -> str:
    lines = text.split("\n")
    a, b = choice.randrange(len(lines)), choice.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "\n".join(lines)


def _lose(text: str, choice: random.Random) -> str:
    lines = text.split("\n")
    del lines[choice.randrange(len(lines))]
    return "\n".join(lines)


def _repeat(text: str, choice: random.Random) -> str:
    lines = text.split("\n")
    lines.insert(choice.randrange(len(lines)), choice.choice(lines))
    return "\n".join(lines)


CHANGES = (_cut, _insert, _word, _word, _attribute, _attribute, _swap, _lose, _repeat)
