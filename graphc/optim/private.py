"""Stochastic gradient descent on private gradients (DP-SGD)."""

from __future__ import annotations

from graphc.base.source_lines import error
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups
from graphc.optim.sgd import SGD


class DPSGD(SGD):
    """Differentially private stochastic gradient descent: `SGD` on clipped, noisy gradients.

    The loss is computed for each sample of the batch, the first axis of every array, as a batch of
    one. The gradient of each sample, by all parameters together, is scaled down to norm `clip` at
    most; Gaussian noise of standard deviation `noise * clip` is added to the sum; the step uses the
    sum divided by the size of the batch. The program returns the mean loss.

    How private a run is depends on `noise`, on how batches are drawn and on the number of steps; an
    accountant such as Opacus' or dp-accounting says it (see the guide). The noise is that of
    `graphc.randn`: float32 numbers, none above 5.8 standard deviations, from a counter-based
    generator that is not cryptographic.

    Args:
        clip: The largest norm of a sample's gradient.
        noise: The standard deviation of the noise, in units of `clip`.
        lr: The learning rate, or a function from the number of finished steps to one.
        momentum: The factor of the previous step, as in `SGD`.
        weight_decay: The factor of w that is added to the gradient.
        nesterov: Whether to use Nesterov's momentum.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.

    Raises:
        GraphError: `clip` is not positive or `noise` is negative.

    Example:
        >>> def loss_fn(model, x, y):
        ...     return graphc.mse_loss(model(x), y)
        ...
        >>> rule = optim.DPSGD(clip=1.0, noise=1.1, lr=0.1)
        >>> specs = graphc.spec((4, 3)), graphc.spec((4, 1))
        >>> step = graphc.compile(loss_fn, nn.Linear(3, 1), *specs, update=rule)
        >>> x, y = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32)
        >>> bool(step(x, y) >= 0)
        True
    """

    def __init__(
        self,
        clip: float,
        noise: float,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        groups: Groups = (),
        ema: float | None = None,
    ) -> None:
        super().__init__(
            lr,
            momentum,
            weight_decay=weight_decay,
            nesterov=nesterov,
            groups=groups,
            ema=ema,
        )
        self.clip, self.noise = self.number("clip", clip), self.number("noise", noise)
        if not self.clip:
            raise error(f"DPSGD: clip expected a positive number, got {clip!r}")
