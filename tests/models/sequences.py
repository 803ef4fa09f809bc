"""Transformers, each written once for graphc and PyTorch: `nn` is either's module of layers and
`lib` either's package."""

from __future__ import annotations

from typing import Any


def gpt(nn: Any, lib: Any, layers: int = 1, positions: int = 12, symbols: int = 20) -> Any:
    """A decoder of pre-norm blocks with causal attention: the next symbol's scores at each place,
    [n, symbols, t] from x[n, t]."""

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            features = 16
            self.symbols = nn.Embedding(symbols, features)
            self.positions = nn.Embedding(positions, features)
            block = nn.TransformerEncoderLayer(
                features, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True
            )
            norm = nn.LayerNorm(features)
            self.blocks = nn.TransformerEncoder(block, layers, norm)
            self.head = nn.Linear(features, symbols, bias=False)

        def forward(self, x: Any) -> Any:
            later = lib.triu(lib.ones((positions, positions)), 1) > 0
            y = self.symbols(x) + self.positions.weight
            y = self.blocks(y, mask=later, is_causal=True)
            return lib.swapaxes(self.head(y), 1, 2)

    return GPT()


def vit(nn: Any, lib: Any, layers: int = 1, classes: int = 10) -> Any:
    """A vision transformer: patches of 4 x 4 pixels of 16 x 16 images attend to each other."""

    class Block(nn.Module):
        def __init__(self, features: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
            self.attention = nn.MultiheadAttention(features, 2, batch_first=True)
            self.mlp = nn.Sequential(
                nn.Linear(features, 2 * features),
                nn.GELU(approximate="tanh"),
                nn.Linear(2 * features, features),
            )

        def forward(self, x: Any) -> Any:
            y = self.norm1(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            features = 16
            self.patches = nn.Conv2d(3, features, 4, 4)
            self.positions = nn.Embedding(16, features)
            self.blocks = nn.ModuleList([Block(features) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(features), nn.Linear(features, classes)

        def forward(self, x: Any) -> Any:
            y = lib.swapaxes(self.patches(x).flatten(2), 1, 2) + self.positions.weight
            for block in self.blocks:
                y = block(y)
            return self.head(self.norm(y).mean(1))

    return ViT()
