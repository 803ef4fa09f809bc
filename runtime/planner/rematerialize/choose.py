"""Choose the tasks that rerun to save memory, as cheaply as possible.

The peak of a training step holds what the forward pass computed for the backward pass. A value may
instead be freed and recomputed before the backward pass reads it, from values that are still there
or are recomputed in turn. Choosing the cheapest set of tasks is NP-hard (Jain et al., Checkmate,
MLSys 2020). The search here:

1. A family of choices is tried: rerun all tasks whose time per saved byte is below a threshold,
   except those whose results cross certain cuts through the forward pass. Cuts are where little
   crosses, at equal distances in held bytes: sqrt(n) of them is the classic choice (Chen et al.,
   2016), and several numbers are tried.
2. Of the choices within the limit, the cheapest are improved: results are kept after all, those
   first that cost most per byte to recompute, while the peak stays within the limit.
3. If none is within the limit, the search repeats on the sequence of least peak, so that recomputed
   values may be freed and recomputed again.

Each choice is judged by the live bytes of the sequence that it leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphc.runtime.planner.rematerialize.sequence import Rematerializer, TaskSequence

LARGE = 1 / 2000
"""The fraction of the peak from which a value is worth freeing."""
SEGMENTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Numbers of segments that a step is cut into, between which values are kept."""
THRESHOLDS = 6
"""Thresholds of time per byte that are tried for each: quantiles of the occurring values."""
REFINED = 2
"""Choices of the family that are improved."""
ROUNDS = 3
"""How often the search repeats."""
HALVINGS = 5
"""Bisection steps for the least peak within a time limit."""


class RematerializationChoices:
    """The choices for one sequence; `times` are the microseconds of its tasks."""

    def __init__(
        self, base: TaskSequence, repeatable: Mapping[int, frozenset[int]], times: Sequence[float]
    ) -> None:
        self.base, self.times = base, times
        self.repeater = Rematerializer(base, repeatable)
        self.known: dict[frozenset[int], TaskSequence] = {}
        nbytes, writer = base.value_bytes, self.repeater.writer
        self.large = [v for v in self.repeater.values if nbytes[v] >= LARGE * base.peak]
        held = {v: nbytes[v] if self.repeater.has_idle_time(v) else 0 for v in self.large}
        """The bytes that keeping a value costs."""
        together: dict[int, int] = {}
        for v in self.large:
            together[writer[v]] = together.get(writer[v], 0) + (held[v] or nbytes[v])
        self.held = held
        self.price = {
            v: times[base.steps[writer[v]].task] / together[writer[v]] for v in self.large
        }
        self.family = [(choice, self.sequence(choice)) for choice in self._family()]

    @property
    def least(self) -> TaskSequence:
        """The sequence of the family with the least peak."""
        return min((s for _, s in self.family), key=lambda s: (s.peak, s.cost(self.times)))

    def sequence(self, choice: frozenset[int]) -> TaskSequence:
        """The sequence with these values recomputed."""
        if choice not in self.known:
            self.known[choice] = self.repeater.repeat(choice)
        return self.known[choice]

    def cheapest(self, limit: int) -> TaskSequence | None:
        """The cheapest sequence found with a peak of at most `limit` bytes; None if there is
        none."""
        fitting = [c for c, s in self.family if s.peak <= limit]
        fitting.sort(key=lambda choice: self.sequence(choice).cost(self.times))
        improved = [self._improved(choice, limit) for choice in fitting[:REFINED]]
        return min(improved, key=lambda s: (s.cost(self.times), s.peak), default=None)

    def _family(self) -> Iterator[frozenset[int]]:
        yield frozenset()
        prices = sorted(self.price.values())
        thresholds = {
            prices[-1 - len(prices) * n // THRESHOLDS] for n in range(THRESHOLDS) if prices
        }
        for kept in {self._crossing(n) for n in SEGMENTS}:
            for most in sorted(thresholds):
                yield frozenset(v for v in self.large if self.price[v] <= most) - kept

    def _crossing(self, segments: int) -> frozenset[int]:
        """The values that cross one of the cuts between `segments` segments."""
        live, repeater, nbytes = self.base.live, self.repeater, self.base.value_bytes
        middle = live.index(max(live))
        lives = {
            v: (place, min(repeater.last[v], middle))
            for v, place in repeater.writer.items()
            if place < middle and place < repeater.last[v]
        }
        change, held = [0] * (middle + 1), [0] * (middle + 1)
        for v, (begin, end) in lives.items():
            change[begin] += nbytes[v]
            change[end] -= nbytes[v]
            held[begin] += self.held.get(v, 0)
        cuts, since, crossing = list[int](), 0, 0
        best: tuple[int, int] | None = None
        for place in range(middle):
            crossing += change[place]
            best = min(best or (crossing, place), (crossing, place), key=lambda cut: cut[0])
            since += held[place]
            if segments * since >= sum(held) and segments > 1:
                cuts.append(best[1])
                best, since = None, 0
        return frozenset(
            v for v, (begin, end) in lives.items() if any(begin <= cut < end for cut in cuts)
        )

    def _improved(self, choice: frozenset[int], limit: int) -> TaskSequence:
        """`choice` with as much kept as the limit allows, the most expensive first."""
        found = self.sequence(choice)
        repeated = {found.buffer[v] for s in found.steps if s.rerun for v in s.writes}
        choice = frozenset(v for v in choice if self.base.buffer[v] in repeated)
        groups = [sorted(choice, key=lambda v: (-self.price[v], v))]
        while groups:
            group = groups.pop()
            trial = choice.difference(group)
            kept = self.repeater.repeat(trial)
            if kept.peak <= limit:
                choice, found = trial, kept
            elif len(group) > 1:
                half = len(group) // 2
                groups += [group[half:], group[:half]]
        return found


def repeat_within(
    base: TaskSequence, repeatable: Mapping[int, frozenset[int]], times: Sequence[float], limit: int
) -> TaskSequence:
    """The cheapest sequence found with a peak of at most `limit` bytes, or the one of least
    peak."""
    for _ in range(ROUNDS):
        repeats = RematerializationChoices(base, repeatable, times)
        found = repeats.cheapest(limit)
        if found is not None:
            return found
        if repeats.least.peak >= base.peak:
            break
        base = repeats.least
    return base


def repeat_for(
    base: TaskSequence,
    repeatable: Mapping[int, frozenset[int]],
    times: Sequence[float],
    most: float,
) -> TaskSequence:
    """The sequence of least peak found whose reruns take at most `most` microseconds."""
    repeats = RematerializationChoices(base, repeatable, times)
    affordable = [s for _, s in repeats.family if s.cost(times) <= most]
    found = min(affordable, key=lambda s: (s.peak, s.cost(times)), default=base)
    low = repeats.least.peak
    for _ in range(HALVINGS):
        trial = repeats.cheapest((low + found.peak) // 2)
        if trial is not None and trial.cost(times) <= most:
            found = trial
        else:
            low = (low + found.peak) // 2
    return found
