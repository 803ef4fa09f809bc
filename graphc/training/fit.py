"""fit: a training loop that is short enough to be copied and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from graphc.base.source_lines import error
from graphc.program.program import Program
from graphc.training.callbacks import Callback, callback_of
from graphc.training.history import History, Means, Metrics, Outcome, metrics_of, samples_of
from graphc.training.interrupts import Interrupts
from graphc.training.progress import Progress
from graphc.training.run import Run

Evaluate = Callable[[], Any] | tuple[Program, Iterable[Any]]


def fit(
    program: Any,
    batches: Iterable[Any],
    epochs: int,
    *,
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback | Callable[[Run], Any]] = (),
    progress: bool = True,
    history: History | None = None,
) -> History:
    """Call a training program with every batch of some epochs.

    Ctrl-C lets the step finish, tells the callbacks (`Checkpoints` writes a checkpoint) and raises
    KeyboardInterrupt; a second one stops at once. With the same history another call goes on where
    the first one stopped, with the very next batch of `graphc.data.Batches`.

    Args:
        program: A program that was compiled with `update=`, or a function that calls some. Its
            result is the loss, a tuple that begins with it, or a dict of metrics; dicts of scalars
            in the tuple are metrics too.
        batches: `graphc.data.Batches`, or another iterable of batches, which is gone through once
            in each epoch. A tuple gives the program's arguments in their order, a dict by name.
        epochs: The number of epochs in all, those of `history` included.
        evaluate: A function that is called after each epoch and returns metrics, a dict or a
            number; or a program and batches: the means of its metrics get names such as `val_loss`.
        callbacks: Callbacks, told in this order; a function is called with the `Run` after each
            epoch.
        progress: Whether to show a line of progress on standard error (with tqdm if installed).
        history: The history to go on with.

    Returns:
        The metrics of each epoch: means over its samples, and those of `evaluate`.

    Raises:
        GraphError: An argument is wrong, or an epoch has no batches. Exceptions of programs,
            batches and callbacks are raised as they are.

    Example:
        >>> x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(64, 1)
        >>> specs = graphc.spec((16, 1)), graphc.spec((16, 1))
        >>> step = graphc.compile(
        ...     lambda m, x, y: graphc.mse_loss(m(x), y),
        ...     nn.Linear(1, 1),
        ...     *specs,
        ...     update=optim.SGD(lr=0.1),
        ... )
        >>> batches = graphc.data.Batches((x, 2 * x), 16, shuffle=0)
        >>> history = graphc.fit(step, batches, 5, progress=False)
        >>> len(history), history["loss"][-1] < history["loss"][0]
        (5, True)
    """
    _check(program, epochs, evaluate)
    run = Run(program, batches, epochs, History() if history is None else history)
    active = [Progress()] * progress + [callback_of(callback) for callback in callbacks]
    with ExitStack() as ending, Interrupts() as interrupts:
        for callback in active:
            ending.callback(callback.end, run)
            callback.begin(run)
        run.resume()
        while run.epoch < epochs and not run.stop:
            for batch in batches:
                run.last = _begun(program, batch)
                run.history.steps += 1
                run.history.means.add(run.last, samples_of(batches, batch))
                for callback in active:
                    callback.step(run)
                if interrupts.asked:
                    break
            else:
                run.history.close(_evaluated(evaluate))
                for callback in active:
                    callback.epoch(run)
            if interrupts.asked:
                run.history.position = run.position
                for callback in active:
                    callback.interrupted(run)
                raise KeyboardInterrupt
    return run.history


def _evaluated(evaluate: Evaluate | None) -> Metrics:
    """The metrics of an evaluation, by their names in a history."""
    if evaluate is None:
        return {}
    if not isinstance(evaluate, tuple):
        found = evaluate()
        return metrics_of(found) if isinstance(found, dict) else {"val": float(found)}
    program, batches = evaluate
    means = Means()
    for batch in batches:
        means.add(metrics_of(_called(program, batch)), samples_of(batches, batch))
    return {f"val_{name}": value for name, value in means.values().items()}


def _begun(program: Any, batch: Any) -> Metrics | Outcome:
    """The metrics of a training step; on a GPU, before it has ended."""
    if isinstance(program, Program) and program.runs_ahead:
        return Outcome(_called(program.submit, batch))
    return metrics_of(_called(program, batch))


def _called(program: Any, batch: Any) -> Any:
    """The result of a program for a batch."""
    if isinstance(batch, dict):
        return program(**batch)
    return program(*batch) if isinstance(batch, tuple | list) else program(batch)


def _check(program: Any, epochs: Any, evaluate: Any) -> None:
    if not callable(program) or (isinstance(program, Program) and program.update is None):
        got = "one without it" if callable(program) else type(program).__name__
        raise error(f"fit: expected a program that was compiled with update=, got {got}")
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise error(f"fit: epochs expected a whole number from 0 up, got {epochs!r}")
    pair = isinstance(evaluate, tuple) and len(evaluate) == 2 and callable(evaluate[0])
    if evaluate is not None and not pair and not callable(evaluate):
        raise error(f"fit: evaluate expected a function or (program, batches), got {evaluate!r}")
    if pair and isinstance(evaluate[0], Program) and evaluate[0].update is not None:
        raise error("fit: evaluate expected a program without update=, got one that trains")
