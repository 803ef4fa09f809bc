"""PyTorch modules that are measured and tested: models of words, and torchvision's."""

from __future__ import annotations

from types import ModuleType

import torch
import torch.nn.functional as F
from torch import nn


class LanguageModel(nn.Module):
    """Words [n, t] to scores [n, t, words] by two layers of LSTM; `tied`: one table of words."""

    def __init__(self, words: int, features: int, tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(words, features)
        self.lstm = nn.LSTM(features, features, 2, batch_first=True)
        self.next = nn.Linear(features, words)
        if tied:
            self.next.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.next(self.lstm(self.words(words))[0])
        return scores


class Block(nn.Module):
    """A block of a GPT: [n, t, features] to the same."""

    def __init__(self, features: int, heads: int, gelu: str) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.attend, self.project = nn.Linear(features, 3 * features), nn.Linear(features, features)
        wide = 4 * features
        self.mlp = nn.Sequential(
            nn.Linear(features, wide), nn.GELU(approximate=gelu), nn.Linear(wide, features)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        parts = self.attend(self.ln_1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(n, t, c))
        result: torch.Tensor = x + self.mlp(self.ln_2(x))
        return result


class GPT(nn.Module):
    """Words [n, t] to scores [n, t, words], t at most `places`; one table of words."""

    def __init__(
        self, words: int, features: int, places: int, blocks: int, heads: int, gelu: str = "none"
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, features), nn.Embedding(places, features)
        self.blocks = nn.Sequential(*(Block(features, heads, gelu) for _ in range(blocks)))
        self.ln, self.next = nn.LayerNorm(features), nn.Linear(features, words, bias=False)
        self.next.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        scores: torch.Tensor = self.next(self.ln(self.blocks(x)))
        return scores


def torchvision_models() -> ModuleType:
    """torchvision's models, also where its own kernels are built for another PyTorch: importing it
    asks for two of them, which no model here runs."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import models

    found: ModuleType = models
    return found
