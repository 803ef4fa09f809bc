"""Measure JAX on the same workloads.

Variants: `nhwc` and `nchw` say how convolutions lie for XLA; images come and go as NCHW, and XLA
places transposes as it likes. A training step is one jitted function whose state is donated. In
recurrent layers the products with x are taken out of the loop, which XLA does not do itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.measure import Case, main
from benchmarks.workload import RATES

VARIANTS = ("nhwc", "nchw")


class Functions:
    """JAX's functions by the names that PyTorch has. `moved` holds the running statistics that a
    training step leaves."""

    def __init__(self, jax: Any, variant: str) -> None:
        self.jax, self.numpy = jax, jax.numpy
        self.last = variant == "nhwc"
        self.moved: dict[int, Any] = {}
        self.relu, self.sigmoid, self.softmax = jax.nn.relu, jax.nn.sigmoid, jax.nn.softmax
        self.tanh, self.swapaxes = self.numpy.tanh, self.numpy.swapaxes

    def conv2d(self, x: Any, w: Any, b: Any, stride: int = 1, padding: int = 0) -> Any:
        """`w` lies as `weight` has put it."""
        names = ("NHWC", "HWIO", "NHWC") if self.last else ("NCHW", "OIHW", "NCHW")
        x = x.transpose(0, 2, 3, 1) if self.last else x
        y = self.jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=names
        )
        y = y.transpose(0, 3, 1, 2) if self.last else y
        return y if b is None else y + b.reshape(1, -1, 1, 1)

    def weight(self, array: Any) -> Any:
        """A parameter as the convolutions want it."""
        return array.transpose(2, 3, 1, 0) if self.last and array.ndim == 4 else array

    def max_pool2d(self, x: Any, size: int, stride: int | None = None, padding: int = 0) -> Any:
        around = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        window, steps = (1, 1, size, size), (1, 1, stride or size, stride or size)
        lax = self.jax.lax
        return lax.reduce_window(x, -self.numpy.inf, lax.max, window, steps, around)

    def batch_norm(
        self, x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: bool
    ) -> Any:
        if training:
            old, axes, count = (mean, var), (0, *range(2, x.ndim)), x.size // weight.size
            mean, var = x.mean(axes), x.var(axes)
            if old[0] is not None:
                self.moved[id(old[0])] = 0.9 * old[0] + 0.1 * mean
                self.moved[id(old[1])] = 0.9 * old[1] + 0.1 * var * count / (count - 1)
        scale = weight * self.jax.lax.rsqrt(var + 1e-5)
        shape = (1, -1, *(1,) * (x.ndim - 2))
        return x * scale.reshape(shape) + (bias - mean * scale).reshape(shape)

    def layer_norm(self, x: Any, shape: tuple[int, ...], weight: Any, bias: Any) -> Any:
        apart = x - x.mean(-1, keepdims=True)
        return (
            apart * self.jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * weight
            + bias
        )

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        y = x @ weight.T
        return y if bias is None else y + bias

    def flatten(self, x: Any, first: int) -> Any:
        return x.reshape(*x.shape[:first], -1)

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        return self.jax.nn.gelu(x, approximate=approximate == "tanh")

    def embedding(self, indices: Any, table: Any) -> Any:
        return table[indices]

    def scaled_dot_product_attention(self, q: Any, k: Any, v: Any, is_causal: bool) -> Any:
        scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
        allowed = self.numpy.tril(self.numpy.ones(scores.shape[-2:], bool))
        return self.softmax(self.numpy.where(allowed, scores, -self.numpy.inf), -1) @ v

    def zeros(self, shape: tuple[int, ...], device: Any = None) -> Any:
        return self.numpy.zeros(shape)

    def lstm(self, x: Any, initial: Any, flat: Any, *settings: Any) -> Any:
        """As torch.lstm takes it: all weights of all layers, biases among them."""
        h0, c0 = initial
        for layer in range(h0.shape[0]):
            w_ih, w_hh, b_ih, b_hh = flat[4 * layer : 4 * layer + 4]

            def step(state: Any, z: Any, w: Any = w_hh, b: Any = b_hh) -> Any:
                i, f, g, o = self.numpy.split(z + state[0] @ w.T + b, 4, -1)
                c = self.sigmoid(f) * state[1] + self.sigmoid(i) * self.tanh(g)
                h = self.sigmoid(o) * self.tanh(c)
                return (h, c), h

            _, x = self.jax.lax.scan(step, (h0[layer], c0[layer]), x @ w_ih.T + b_ih)
        return (x,)

    def gru(self, x: Any, h0: Any, flat: Any, *settings: Any) -> Any:
        """As torch.gru takes it."""
        for layer in range(h0.shape[0]):
            w_ih, w_hh, b_ih, b_hh = flat[4 * layer : 4 * layer + 4]

            def step(h: Any, z: Any, w: Any = w_hh, b: Any = b_hh) -> Any:
                ours, theirs = self.numpy.split(h @ w.T + b, 3, -1), self.numpy.split(z, 3, -1)
                r, u = (self.sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
                h = (1 - u) * self.tanh(theirs[2] + r * ours[2]) + u * h
                return h, h

            _, x = self.jax.lax.scan(step, h0[layer], x @ w_ih.T + b_ih)
        return (x,)

    def cross_entropy(self, outputs: Any, y: Any) -> Any:
        logs = self.jax.nn.log_softmax(outputs, -1)
        return -self.numpy.take_along_axis(logs, y[..., None], -1).mean()

    def mse_loss(self, outputs: Any, y: Any) -> Any:
        return ((outputs - y) ** 2).mean()


def prepare(case: Case) -> Callable[[], Any]:
    """A step of the workload; it ends when its results are there."""
    os.environ["JAX_PLATFORMS"], os.environ["NPROC"] = "cpu", str(case.threads)
    if case.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax

    workload, lib, data = case.workload, Functions(jax, case.variant), case.workload.data()
    parameters = {k: lib.weight(jax.numpy.array(v)) for k, v in data.parameters.items()}
    statistics = {k: jax.numpy.array(v) for k, v in data.statistics.items()}
    x, y = jax.numpy.array(data.x), jax.numpy.array(data.y)

    def outputs(parameters: Any, statistics: Any, x: Any, training: bool) -> Any:
        return workload.forward(lib, {**parameters, **statistics}, x, training)

    if case.mode == "forward":
        forward = jax.jit(lambda p, s, x: outputs(p, s, x, False))
        return lambda: jax.block_until_ready(forward(parameters, statistics, x))
    if workload.rule is None:

        def gradients(p: Any, x: Any, y: Any) -> Any:
            return jax.vjp(lambda p, x: outputs(p, {}, x, False), p, x)[1](y)

        jitted = jax.jit(gradients)
        return lambda: jax.block_until_ready(jitted(parameters, x, y))[1]

    def loss_of(p: Any, s: Any, x: Any, y: Any) -> Any:
        lib.moved = {}
        loss = workload.loss(lib, outputs(p, s, x, True), y)
        return loss, {name: lib.moved.get(id(old), old) for name, old in s.items()}

    begin, update = RULES[str(workload.rule)]

    def train(state: Any, x: Any, y: Any) -> Any:
        p, s, moments = state
        (loss, s), grads = jax.value_and_grad(loss_of, has_aux=True)(p, s, x, y)
        p, moments = update(jax, p, grads, moments)
        return (p, s, moments), loss

    jitted = jax.jit(train, donate_argnums=0)
    state = [(parameters, statistics, begin(jax, parameters))]

    def step() -> Any:
        state[0], loss = jitted(state[0], x, y)
        return jax.block_until_ready((state[0], loss))[1]

    return step


def _zeros(jax: Any, p: Mapping[str, Any]) -> Any:
    return jax.tree.map(jax.numpy.zeros_like, p)


def _sgd(jax: Any, p: Any, grads: Any, moments: Any) -> Any:
    rate = RATES["SGD"]
    moments = jax.tree.map(lambda v, g: rate["momentum"] * v + g, moments, grads)
    return jax.tree.map(lambda p, v: p - rate["lr"] * v, p, moments), moments


def _adam(jax: Any, p: Any, grads: Any, moments: Any) -> Any:
    m, v, t = moments
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    first, second, rate = 1 - 0.9**t, 1 - 0.999**t, RATES["Adam"]["lr"]

    def moved(p: Any, m: Any, v: Any) -> Any:
        return p - rate * (m / first) / (jax.numpy.sqrt(v / second) + 1e-8)

    return jax.tree.map(moved, p, m, v), (m, v, t)


RULES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "SGD": (_zeros, _sgd),
    "Adam": (lambda jax, p: (_zeros(jax, p), _zeros(jax, p), jax.numpy.float32(0)), _adam),
}
"""What an update begins with, and the update."""


if __name__ == "__main__":
    main("jax", VARIANTS, prepare)
