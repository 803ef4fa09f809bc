"""Gradients of single samples, clipped and summed, for private training (DP-SGD).

Abadi et al., "Deep Learning with Differential Privacy" (2016): the gradient of each sample is
scaled down to norm `clip` at most, and Gaussian noise of standard deviation `noise * clip` is added
to their sum. The loss of one sample is traced and differentiated, and `vmap` makes one backward
pass of all samples of it. What a weight's gradient contracts in that pass, inputs x and gradients d
of the outputs, is there for all samples at once, so that two things need no gradients of single
samples in memory (the book-keeping of Bu et al., 2023):

- the norm of a product of one row is |x| |d|; of p rows, the sum of the elements of X X^T times
  those of D D^T, where that is less work than the gradient (`sample_norms.py`), as in convolutions
  of small images;
- the clipped sum is one product over all samples, of x and c d, with the factors c of the clipping.

Gradients of other kinds (of biases and norms, of a convolution of large images for its norm, of a
parameter that is used twice) are computed for each sample; small ones of convolutions are kept for
the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from graphc import functions, ops
from graphc.base.source_lines import error
from graphc.functions.array.draws import uniforms
from graphc.gradients.reverse import check_scalar_loss, gradients, one_like
from graphc.gradients.vocabulary import Known
from graphc.ir import Node, Value, Where, tree
from graphc.nn.parameter import Parameter
from graphc.nn.selection import Selection
from graphc.ops.axes import folded
from graphc.program.micro_batches import Gradients, by_parts, is_read, joined, noted
from graphc.program.sample_norms import convolution_squares, is_by_pixels, product_squares
from graphc.program.tracing import Traced
from graphc.program.vmap import Samples
from graphc.trace import Builder, Tensor
from graphc.trace.mixed import in_precision

KEPT, POSITIONS = 16 << 20, 16
"""Bytes of all samples' gradients of a filter up to which they are kept from the norms for the sum:
reading them is faster than convolving again, from so many positions on."""
COSINE = (1.0, -1.2337005, 0.25366932, -0.020862687, 0.00091772294, -2.3824152e-05)
SINE = (1.5707964, -0.6459638, 0.07968992, -0.0046741436, 0.0001516717)
"""cos(x pi / 2) and sin(x pi / 2) / x in [0, 1] as polynomials in x^2."""
_WHERE = Where(derived=True, function="clip_samples")


@dataclass(frozen=True)
class PrivateDifferentiation:
    """How `compile` differentiates a function for `optim.DPSGD` while it is traced."""

    clip: float
    noise: float
    selection: Selection | None
    """The parameters; None for all that are trainable."""
    parts: int = 1
    apart: ClassVar[bool] = False

    def __call__(self, traced: Traced, fn: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the results of `fn`, and give its private gradients to the update."""
        parameters = noted(traced, self.selection)
        result, sums = by_parts(self, traced.builder, fn, args, parameters)
        with traced.builder.at(_WHERE), in_precision(traced.builder, ""):
            means = {name: self._mean(total, _count(args)) for name, total in sums.items()}
        traced.builder.applied += [(parameters[name], mean) for name, mean in means.items()]
        return result

    def once(
        self,
        builder: Builder,
        fn: Callable[..., Any],
        args: Sequence[Any],
        parameters: Mapping[str, Parameter],
    ) -> tuple[Any, Gradients]:
        """Return the results of `fn` for a micro-batch, and the sums of its clipped gradients."""
        samples = _Private(builder)
        entered = [tree.map_leaves(samples.one, arg, str(n)) for n, arg in enumerate(args)]
        samples.length = samples.count()
        with samples.building():
            result, found = _differentiated(samples, fn, entered, parameters)
        if not found:
            raise error("the loss depends on none of the trainable parameters of the arguments")
        samples.rewrite()
        with builder.at(_WHERE), in_precision(builder, ""):
            sums = self._sums(samples, found)
        leaves = iter([samples.known[leaf.value] for _, leaf in tree.leaves(result)])
        whole = tree.map_leaves(lambda _, leaf: samples.of_batch(leaf, next(leaves)), result)
        return whole, sums

    def _mean(self, total: Tensor, count: int) -> Tensor:
        """The mean of a parameter's clipped gradients, with noise."""
        if self.noise:
            total = total + _normal(total.shape) * (self.noise * self.clip)
        return total * (1 / count)

    def _sums(self, samples: _Private, found: Mapping[str, Tensor]) -> Gradients:
        """The sum of the clipped gradients of each parameter."""
        made = {name: _Gradient.of(samples, grad) for name, grad in found.items()}
        squares = functions.stack([gradient.squares() for gradient in made.values()])
        norms = functions.sqrt(functions.sum(squares, 0))
        factors = functions.minimum(1.0, self.clip / functions.maximum(norms, 1e-12))
        return {name: gradient.total(factors) for name, gradient in made.items()}


def _count(args: Sequence[Any]) -> int:
    """The number of samples."""
    leaves = (leaf for arg in args for _, leaf in tree.leaves(arg) if isinstance(leaf, Tensor))
    return next(leaf.shape[0] for leaf in leaves if leaf.ndim)


def _differentiated(
    samples: _Private,
    fn: Callable[..., Any],
    args: Sequence[Any],
    parameters: Mapping[str, Parameter],
) -> tuple[Any, dict[str, Tensor]]:
    """The results for one sample, and the gradients of its loss by the names of parameters."""
    result = fn(*args)
    loss = result[0] if isinstance(result, tuple) else result
    check_scalar_loss(loss)
    result = tree.map_leaves(lambda _, leaf: samples.own(functions.as_tensor(leaf)), result)
    read = [name for name, p in parameters.items() if is_read(samples, p.state)]
    weights = [samples.read_state(parameters[name].state) for name in read]
    with samples.at(Where(derived=True)):
        seed = one_like(loss)
    grads = gradients([loss], [seed], weights, samples)
    return result, {n: g for n, g in zip(read, grads, strict=True) if g is not None}


class _Private(Samples):
    """The graph of a batch of one sample, which is then rewritten for all."""

    def one(self, path: str, leaf: Any) -> Any:
        """Return what the function gets of an array: a batch of one sample."""
        if not isinstance(leaf, Tensor) or not leaf.ndim:
            return leaf
        shape = (leaf.shape[0], 1, *leaf.shape[1:])
        return self.enter("arguments", 0, functions.reshape(leaf, shape), path)

    def of_batch(self, element: Tensor, known: Known) -> Tensor:
        """Return a result for the whole batch."""
        return joined(element.value.type, self.with_samples_at(known, 0))

    def producer(self, value: Value) -> Node | None:
        """Return the node of one sample's graph that makes a value."""
        return next((node for node in self.nodes if value in node.outputs), None)


@dataclass(frozen=True)
class _Gradient:
    """The gradient of a parameter for each sample: views of a node's result in one sample's graph.

    The node is None for a gradient that is computed for each sample.
    """

    samples: _Private
    whole: Known
    """The gradient of all samples, which is computed where something reads it."""
    node: Node | None
    views: tuple[Node, ...]

    @classmethod
    def of(cls, samples: _Private, gradient: Tensor) -> _Gradient:
        """Find the product that makes one sample's gradient."""
        views: list[Node] = []
        node = samples.producer(gradient.value)
        while node is not None and isinstance(node.op, ops.Reshape | ops.PermuteDims):
            views.insert(0, node)
            node = samples.producer(node.inputs[0])
        if node is None or not isinstance(node.op, ops.Matmul | ops.Conv2dWgrad):
            node = None
        elif not all(samples.known[v].stacked for v in node.inputs):
            node = None
        elif isinstance(node.op, ops.Matmul) and any(v.type.rank != 2 for v in node.inputs):
            node = None
        return cls(samples, samples.known[gradient.value], node, tuple(views))

    def squares(self) -> Tensor:
        """Return the squared norm of each sample's gradient, f32 [samples]."""
        if self.node is not None and isinstance(self.node.op, ops.Matmul):
            x, d = self._operands()  # [n, m, p] and [n, p, k]
            (m, p), k = x.shape[1:], d.shape[2]
            if p == 1:
                return _square_sum(x) * _square_sum(d)
            if p * (m + k) < m * k:
                return product_squares(x, d)
        if self._is_by_pixels():
            assert self.node is not None and isinstance(self.node.op, ops.Conv2dWgrad)
            return convolution_squares(self.node.op, *self._operands())
        return _square_sum(self._each())

    def total(self, factors: Tensor) -> Tensor:
        """Return the sum of the samples' gradients, each times its factor [samples]."""
        if self.node is None or self._is_kept():
            each = self._each()
            return functions.sum(each * _beside(factors, each), 0)
        x, d = self._operands()
        scaled = d * _beside(factors, d)
        if isinstance(self.node.op, ops.Matmul):
            m, k = x.shape[1], d.shape[2]
            rows = functions.reshape(functions.permute_dims(x, (1, 0, 2)), (m, -1))
            total = rows @ functions.reshape(scaled, (-1, k))
        else:
            f = self.samples.f
            total = f.emit(self.node.op, folded(f, x), folded(f, scaled))
        for view in self.views:
            (total,) = self.samples.outer.emit(view.op, total)
        return total

    def _is_kept(self) -> bool:
        """Whether the samples' gradients, which the norms need, are kept for the sum."""
        assert self.node is not None, "only a product is computed twice"
        (weight,), (_, d) = self.node.outputs, self.node.inputs
        nbytes = self.samples.length * weight.type.nbytes
        if not isinstance(self.node.op, ops.Conv2dWgrad) or self._is_by_pixels():
            return False
        return nbytes <= KEPT and math.prod(d.type.shape[2:]) >= POSITIONS

    def _is_by_pixels(self) -> bool:
        """Whether the norms are those of a convolution, computed from products of pixels."""
        if self.node is None or not isinstance(self.node.op, ops.Conv2dWgrad):
            return False
        x, d = (v.type.shape for v in self.node.inputs)
        return is_by_pixels(self.node.op, x, d, self.samples.length)

    def _operands(self) -> tuple[Tensor, Tensor]:
        assert self.node is not None, "only a product has operands"
        x, d = (self.samples.known[v].tensor for v in self.node.inputs)
        return x, d

    def _each(self) -> Tensor:
        return self.samples.with_samples_at(self.whole, 0)


def _normal(shape: tuple[int, ...]) -> Tensor:
    """Normal numbers like those of `randn`, by both halves of two of Box and Muller's pairs."""
    count = math.prod(shape)
    a, b, c, d = uniforms((-(-count // 4),))
    drawn = []
    for one, other in ((a, b), (c, d)):
        radius = functions.sqrt(functions.log(1 - one) * -2)
        drawn += [radius * x for x in _on_circle(other)]
    return functions.reshape(functions.concat(drawn)[:count], shape)


def _on_circle(uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinates of a point on the unit circle, with errors below 2^-23.

    The first two bits are the signs, the others an angle in the first quarter.
    """
    quarters = uniform * 4
    quarter = functions.floor(quarters)
    half = functions.floor(quarters * 0.5)
    angle = quarters - quarter
    square = angle * angle
    cosine, sine = _polynomial(square, COSINE), angle * _polynomial(square, SINE)
    return cosine * (1 - half * 2), sine * (1 - (quarter - half * 2) * 2)


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The polynomial with these coefficients, of x^0 first."""
    *others, last = coefficients
    total = x * last + others.pop()
    for coefficient in reversed(others):
        total = total * x + coefficient
    return total


def _square_sum(x: Tensor) -> Tensor:
    """The sum of squares of each sample's elements."""
    return functions.sum(functions.square(x), tuple(range(1, x.ndim)))


def _beside(factors: Tensor, x: Tensor) -> Tensor:
    """A factor for each sample, in the shape that multiplies x [samples, ...]."""
    return functions.reshape(factors, (-1, *(1,) * (x.ndim - 1)))
