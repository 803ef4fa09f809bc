"""The arguments of compile that say how a function is compiled, checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.base import config
from graphc.base.source_lines import error
from graphc.base.target import Target
from graphc.functions.array.tensors import is_integer
from graphc.nn.selection import Selection
from graphc.optim.private import DPSGD
from graphc.optim.rule import Rule
from graphc.parallel.options import DataParallel
from graphc.parallel.pipeline import PipelineParallel
from graphc.program.loading import target_for
from graphc.program.micro_batches import Differentiation
from graphc.program.private import PrivateDifferentiation
from graphc.program.ranks import pipeline_of, ranks_of

if TYPE_CHECKING:
    from graphc.parallel.group import Group
    from graphc.program.pipelined import Pipelined

MIXED = {"bfloat16": "bf16", "float16": "f16"}
"""The values of `mixed` and the dtypes that they stand for."""


@dataclass(frozen=True)
class Options:
    """How `compile` makes a program, whatever its function and specs."""

    settings: config.Config
    update: Rule | None
    selection: Selection | None
    """The parameters to update; None for all that are trainable."""
    device: str
    target: Target
    precision: str
    training: bool
    """Whether modules train whose mode was not set."""
    seed: int | None
    mixed: str
    """The two-byte dtype of products with mixed precision, "bf16" or "f16", or ""."""
    differentiation: Differentiation | Pipelined | PrivateDifferentiation | None
    """How the gradient is computed while the function is traced; None if it is not."""
    holder: Rule | None
    """The optimizer that holds the loss's scale of a program that returns gradients."""
    stays: bool
    """Whether results stay on the device."""
    parallel: DataParallel | None = None
    """The ranks that have a part of the batch each; None for a process by itself."""
    pipeline: PipelineParallel | None = None
    """The ranks that have a stage of the function each; None for a process by itself."""

    @property
    def group(self) -> Group | None:
        """The ranks; None for a process by itself."""
        ranks = self.parallel or self.pipeline
        return None if ranks is None else ranks.group

    @classmethod
    def of(
        cls,
        update: Any,
        train: Any,
        device: str | None,
        streams: int | str | None,
        threads: int | None,
        precision: str,
        tune: bool | str | None,
        training: bool | None,
        seed: int | None,
        disable: Iterable[str],
        memory: int | str | None,
        wait: bool | None,
        mixed: str | None,
        accumulate: int,
        gradients: Any,
        out: str,
        parallel: Any = None,
    ) -> Options:
        """Return the options that arguments of `compile` give, or raise GraphError."""
        from graphc.passes import (
            pipeline as passes,  # not before it is needed: they are a tenth of the package's import
        )

        pipeline = pipeline_of(parallel, update, accumulate, mixed, gradients)
        if isinstance(parallel, PipelineParallel):
            trains_alone = pipeline is None and update is not None
            accumulate, parallel = parallel.micro_batches if trains_alone else 1, None
        ranks = ranks_of(parallel, update, accumulate)
        together = ranks is not None or pipeline is not None
        if together and tune:
            raise error("tune: with parallel= expected False, since each rank would measure others")
        if together and streams in (None, "auto"):
            streams = 1  # what one rank measures, others would measure otherwise
        disable = (disable,) if isinstance(disable, str) else disable
        optional = passes.OPTIONAL
        settings = config.read(streams, threads, device, tune, disable, optional, memory, wait)
        if pipeline is not None:
            left_out = dict.fromkeys((*settings.disable, *passes.NOT_IN_LOOPS))
            settings = replace(settings, disable=tuple(left_out))
        if precision not in passes.PRECISIONS:
            *most, last = map(repr, passes.PRECISIONS)
            raise error(f"precision: expected {', '.join(most)} or {last}, got {precision!r}")
        if training not in (None, True, False):
            raise error(f"training: expected True, False or None, got {training!r}")
        if update is not None and not isinstance(update, Rule):
            kind = f"the class {update.__name__}" if isinstance(update, type) else None
            got = kind or type(update).__name__
            raise error(f"update: expected a rule such as graphc.optim.SGD(lr=0.1), got {got}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer)):
            raise error(f"seed: expected an integer or None, got {seed!r}")
        if train is not None and update is None and not gradients:
            raise error("train: says what update= may change, which is not given")
        if mixed is not None and mixed not in MIXED:
            raise error(f"mixed: expected 'bfloat16', 'float16' or None, got {mixed!r}")
        if out not in ("host", "device"):
            raise error(f"out: expected 'host' or 'device', got {out!r}")
        narrow = "" if mixed is None else MIXED[mixed]
        selection = None if train is None else Selection("train", train)
        chosen, target = target_for(settings, precision)
        if not is_integer(accumulate) or accumulate < 1:
            raise error(
                f"accumulate: expected a number of micro-batches from 1 up, got {accumulate!r}"
            )
        if not isinstance(gradients, bool | Rule):
            raise error(f"gradients: expected a bool or the optimizer, got {gradients!r}")
        if gradients and update is not None:
            raise error("gradients: are results in place of update=, which is given too")
        if gradients is True and narrow == "f16":
            raise error(
                "gradients: with mixed='float16' expected the optimizer, which holds the loss's "
                "scale, got True"
            )
        if accumulate > 1 and update is None and not gradients:
            raise error("accumulate: is of use with update= or gradients=, neither is given")
        differentiation: Differentiation | Pipelined | PrivateDifferentiation | None = None
        if pipeline is not None:
            from graphc.program.pipelined import Pipelined

            clip = None if update is None else update.clip_grad_norm
            differentiation = Pipelined(pipeline, selection, update is not None, clip)
        elif isinstance(update, DPSGD):
            if narrow == "f16":
                raise error(
                    "mixed: DPSGD expected None or 'bfloat16', since a step that is skipped where "
                    "a scaled loss overflows would tell of its samples"
                )
            differentiation = PrivateDifferentiation(
                update.clip, update.noise, selection, int(accumulate)
            )
        elif gradients or accumulate > 1 or (ranks is not None and ranks.shards is not None):
            returns = gradients is not False
            scaled, apart = narrow == "f16", ranks is not None and ranks.shards is not None
            parts = ranks.pieces if ranks is not None and apart else int(accumulate)
            differentiation = Differentiation(parts, scaled, selection, returns, apart)
        trains = (update is not None or bool(gradients)) if training is None else training
        holder = gradients if isinstance(gradients, Rule) else None
        return cls(
            settings,
            update,
            selection,
            chosen,
            target,
            precision,
            trains,
            seed,
            narrow,
            differentiation,
            holder,
            out == "device",
            ranks,
            pipeline,
        )
