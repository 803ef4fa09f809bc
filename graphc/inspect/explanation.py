"""The answer of `program.explain`: reasons as data, which print as text."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base import html

TOPICS = ("what", "fused", "apart", "tile", "memory", "stream", "event", "gone")
"""What a reason may be about, in the order in which explanations give them: what the subject is;
what shares its kernel, and why; what does not, and the rule that refused; how its kernel is cut;
where its bytes lie, and why so long; why it is on its stream; what an event orders and costs; which
pass removed it."""

MOST_NAMED = 4
"""Things that a line names of which one and the same is to be said; the others are counted."""


@dataclass(frozen=True)
class Reason:
    """One statement about a subject; `about` names another node, value or step, or is ""."""

    topic: str
    text: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.about}: {self.text}" if self.about else self.text


@dataclass(frozen=True)
class Explanation:
    """The reasons for a subject, such as `kernel fc1_bias_relu` or `event e3`; prints one per line.

    `lines` are the user's lines that it comes from.
    """

    subject: str
    lines: tuple[str, ...]
    reasons: tuple[Reason, ...]

    def of(self, topic: str) -> tuple[Reason, ...]:
        """The reasons about one of `TOPICS`."""
        return tuple(reason for reason in self.reasons if reason.topic == topic)

    def __str__(self) -> str:
        head = "  ".join(filter(None, (self.subject, " ".join(self.lines))))
        alike: dict[tuple[str, str], list[str]] = {}
        for reason in self.reasons:
            alike.setdefault((reason.topic, reason.text), []).append(reason.about)
        return "\n".join([head, *(_line(*key, about) for key, about in alike.items())])

    def _repr_html_(self) -> str:
        text = "\n".join(str(self).splitlines()[1:])
        return html.details("  ".join(filter(None, (self.subject, *self.lines))), text, opened=True)


def _line(topic: str, text: str, about: list[str]) -> str:
    """What is said of several things alike, in one line."""
    few = ", ".join(filter(None, about[:MOST_NAMED]))
    rest = f" and {len(about) - MOST_NAMED} more" if len(about) > MOST_NAMED else ""
    return f"  {topic:7} {few}{rest}: {text}" if few else f"  {topic:7} {text}"
