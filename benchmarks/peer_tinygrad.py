"""Measure tinygrad's CPU backend on the same workloads, each step captured by TinyJit. Its kernels
are built by clang."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Case, main
from benchmarks.workload import RATES

CAPTURED = 3
"""Calls that run, capture and first replay a step."""
CLANGS = ("clang-19", "clang-18", "clang")


class Functions:
    """tinygrad's methods by the names of PyTorch's functions."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        if name not in ("relu", "sigmoid", "tanh", "softmax", "flatten"):
            raise AttributeError(name)
        return getattr(self.tensor, name)

    def conv2d(self, x: Any, w: Any, b: Any, stride: int = 1, padding: int = 0) -> Any:
        return x.conv2d(w, b, stride=stride, padding=padding)

    def max_pool2d(self, x: Any, size: int, stride: int | None = None, padding: int = 0) -> Any:
        return x.max_pool2d(size, stride or size, padding=padding)

    def batch_norm(
        self, x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: bool
    ) -> Any:
        if training:
            old, count = (mean, var), x.numel() // mean.numel()
            mean = x.mean((0, 2, 3))
            var = (x - mean.reshape(1, -1, 1, 1)).square().mean((0, 2, 3))
            old[0].assign(0.9 * old[0] + 0.1 * mean.detach())
            old[1].assign(0.9 * old[1] + 0.1 * var.detach() * count / (count - 1))
        return x.batchnorm(weight, bias, mean, (var + 1e-5).rsqrt())

    def layer_norm(self, x: Any, shape: tuple[int, ...], weight: Any, bias: Any) -> Any:
        return x.layernorm(eps=1e-5) * weight + bias

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        return x.linear(weight.transpose(), bias)

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        return x.gelu() if approximate == "tanh" else 0.5 * x * (1 + (x * 0.5**0.5).erf())

    def swapaxes(self, x: Any, first: int, second: int) -> Any:
        return x.transpose(first, second)

    def embedding(self, indices: Any, table: Any) -> Any:
        return table[indices]

    def scaled_dot_product_attention(self, q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        return q.scaled_dot_product_attention(k, v, is_causal=is_causal)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.tensor.zeros(shape)

    def lstm_cell(self, x: Any, state: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        h, c = state
        gates = x.linear(w_ih.transpose(), b_ih) + h.linear(w_hh.transpose(), b_hh)
        i, f, g, o = gates.chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return (o.sigmoid() * c.tanh()).contiguous(), c.contiguous()

    def gru_cell(self, x: Any, h: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        theirs = x.linear(w_ih.transpose(), b_ih).chunk(3, 1)
        ours = h.linear(w_hh.transpose(), b_hh).chunk(3, 1)
        r, z = (theirs[0] + ours[0]).sigmoid(), (theirs[1] + ours[1]).sigmoid()
        return ((1 - z) * (theirs[2] + r * ours[2]).tanh() + z * h).contiguous()

    def scan(self, step: Callable[..., Any], state: Any, x: Any) -> Any:
        """Unrolled: tinygrad has no loop over time."""
        outputs = []
        for t in range(x.shape[0]):
            state, output = step(state, x[t])
            outputs.append(output)
        return state, self.tensor.stack(*outputs)

    def cross_entropy(self, outputs: Any, y: Any) -> Any:
        return outputs.sparse_categorical_crossentropy(y)

    def mse_loss(self, outputs: Any, y: Any) -> Any:
        return (outputs - y).square().mean()


def prepare(case: Case) -> Callable[[], Any]:
    """A step of the workload, captured; it ends when its results are there."""
    os.environ["DEV"], os.environ["NUM_CPU_THREADS"] = "CPU", str(case.threads)
    os.environ["TRAINING"] = str(int(case.mode == "train"))
    found = next((path for name in CLANGS if (path := shutil.which(name))), None)
    if found is not None:
        os.environ.setdefault("CC", found)
    import tinygrad
    from tinygrad.nn import optim

    tensor, workload, data = tinygrad.Tensor, case.workload, case.workload.data()
    lib = Functions(tensor)
    parameters = {k: tensor(v).contiguous().realize() for k, v in data.parameters.items()}
    statistics = {k: tensor(v).contiguous().realize() for k, v in data.statistics.items()}
    tensors = {**parameters, **statistics}
    x, y = tensor(data.x).realize(), tensor(data.y).realize()

    def forward(x: Any, y: Any) -> Any:
        return workload.forward(lib, tensors, x, False).realize()

    def gradients(x: Any, y: Any) -> Any:
        leaf = x.detach()
        loss = (workload.forward(lib, tensors, leaf, False) * y).sum()
        found = loss.gradient(leaf, *parameters.values())
        tensor.realize(*found)
        return found[0]

    def train(x: Any, y: Any) -> Any:
        update.zero_grad()
        loss = workload.loss(lib, workload.forward(lib, tensors, x, True), y)
        loss.backward()
        return loss.realize(*update.schedule_step(), *statistics.values())

    function = forward if case.mode == "forward" else gradients
    if case.mode == "train" and workload.rule is not None:
        update = getattr(optim, workload.rule)([*parameters.values()], **RATES[workload.rule])
        function = train
    jitted = tinygrad.TinyJit(function)
    device = tinygrad.Device[tinygrad.Device.DEFAULT]

    def step() -> Any:
        result = jitted(x, y)
        device.synchronize()
        return result

    captured = iter([step().numpy() for _ in range(CAPTURED)])
    return lambda: _next(captured, step)


def _next(captured: Any, step: Callable[[], Any]) -> Any:
    """What a call of the capture gave, in turn, for the comparison; then a step."""
    for result in captured:
        return result
    result = step()
    return result.numpy() if result.ndim == 0 else result


if __name__ == "__main__":
    main("tinygrad", ("jit",), prepare)
