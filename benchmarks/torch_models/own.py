"""Architectures that the packages do not have: a U-Net, and taggers of recurrent layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.torch_models.models import WORDS, Subject, add, images, text


class UNet(nn.Module):
    """Three levels, what the way down found being joined to the way up."""

    def __init__(self, width: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.first, self.second = _block(3, width), _block(width, 2 * width)
        self.bottom = _block(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.back_second = _block(4 * width, 2 * width)
        self.back_first = _block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images [n, 3, h, w] to scores [n, classes, h, w]."""
        first = self.first(x)
        second = self.second(nn.functional.max_pool2d(first, 2))
        bottom = self.bottom(nn.functional.max_pool2d(second, 2))
        up = self.back_second(torch.cat([self.up_second(bottom), second], 1))
        scores: torch.Tensor = self.head(self.back_first(torch.cat([self.up_first(up), first], 1)))
        return scores


class Tagger(nn.Module):
    """A score of each tag for each symbol of a text."""

    def __init__(self, layer: Callable[..., nn.RNNBase], layers: int, both: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 16)
        self.recurrent = layer(16, 24, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(48 if both else 24, 9)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Symbols [n, t] to scores [n, t, tags]."""
        scores: torch.Tensor = self.head(self.recurrent(self.embedding(words))[0])
        return scores


def _block(before: int, after: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        layers += [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


add("own", "unet", lambda: Subject(UNet(), (images(32),)))
add("own", "lstm tagger", lambda: Subject(Tagger(nn.LSTM, 1, False), (text(),)))
add("own", "lstm tagger, both ways", lambda: Subject(Tagger(nn.LSTM, 2, True), (text(),)))
add("own", "gru tagger", lambda: Subject(Tagger(nn.GRU, 1, True), (text(),)))
