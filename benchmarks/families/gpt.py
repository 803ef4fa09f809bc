"""A small GPT: pre-norm blocks with causal attention, learned positions, an untied head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.workload import Data, Draws, Tensors, Workload


@dataclass(frozen=True)
class GPT(Workload):
    layers: int = 4
    features: int = 256
    heads: int = 4
    positions: int = 128
    symbols: int = 512

    rule: ClassVar[str | None] = "Adam"

    @property
    def gflop(self) -> float:
        t, d = self.positions, self.features
        per_symbol = self.layers * (12 * d * d + 2 * t * d) + d * self.symbols
        return 2e-9 * self.batch * t * per_symbol

    def data(self) -> Data:
        draws, d = Draws(self.name), self.features
        draws.uniform("symbols", (self.symbols, d), d)
        draws.uniform("positions", (self.positions, d), d)
        for i in range(self.layers):
            draws.norm(f"{i}.norm1", d)
            draws.norm(f"{i}.norm2", d)
            for name, shape in (
                ("qkv", (3 * d, d)),
                ("projection", (d, d)),
                ("up", (4 * d, d)),
                ("down", (d, 4 * d)),
            ):
                draws.layer(f"{i}.{name}", shape)
        draws.norm("norm", d)
        draws.layer("head", (self.symbols, d), bias=False)
        shape = (self.batch, self.positions)
        x, y = (draws.generator.randint(0, self.symbols, shape).astype(np.int32) for _ in "xy")
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        d = self.features

        def norm(name: str, x: Any) -> Any:
            return lib.layer_norm(x, (d,), p[f"{name}.weight"], p[f"{name}.bias"])

        def dense(name: str, x: Any) -> Any:
            return lib.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])

        def heads(x: Any) -> Any:
            apart = x.reshape(self.batch, self.positions, self.heads, d // self.heads)
            return lib.swapaxes(apart, 1, 2)

        x = lib.embedding(x, p["symbols"]) + p["positions"]
        for i in range(self.layers):
            joined = dense(f"{i}.qkv", norm(f"{i}.norm1", x))
            q, k, v = (heads(joined[..., n * d : (n + 1) * d]) for n in range(3))
            y = lib.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = lib.swapaxes(y, 1, 2).reshape(self.batch, self.positions, d)
            x = x + dense(f"{i}.projection", y)
            y = lib.gelu(dense(f"{i}.up", norm(f"{i}.norm2", x)), approximate="tanh")
            x = x + dense(f"{i}.down", y)
        return lib.linear(norm("norm", x), p["head.weight"])

    def loss(self, lib: Any, outputs: Any, y: Any) -> Any:
        return lib.cross_entropy(outputs.reshape(-1, self.symbols), y.reshape(-1))


WORKLOADS = (GPT("gpt4-b1", 1, ("forward",)), GPT("gpt4-b8", 8))
LARGER = (
    GPT("gpt12-d768-b8", 8, layers=12, features=768, heads=12, positions=1024, symbols=50304),
)
