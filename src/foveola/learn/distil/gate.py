"""May a repaired model replace the one that serves? Held against records that neither has learnt from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from foveola.learn.distil.measure import Marks

STEPS = (1.0, 0.75, 0.5, 0.25)
"""How far to go from the old weights to the new ones; the first that passes is taken."""


@dataclass(frozen=True, slots=True)
class GateOptions:
    """``points``: what a head class may lose, in points of accuracy. ``calibration``: what the calibration error may
    grow, 0..1. ``head``: the share of the labels from which a class is one of the head."""

    points: float = 1.0
    calibration: float = 0.02
    head: float = 0.1


@dataclass(frozen=True, slots=True)
class Sight:
    """What a model answers on the guard set: on pictures from before the stream, and on held back ones of it."""

    old: Marks
    new: Marks


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reasons`` say what stands against it; none: it may. ``share`` is how far it goes to the new weights."""

    share: float
    reasons: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing stands against it."""
        return not self.reasons

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"passed": self.passed, "share": self.share, "reasons": list(self.reasons)}


def judge(
    before: Sight, after: Sight, heads: Sequence[int], classes: Sequence[str], options: GateOptions | None = None
) -> tuple[str, ...]:
    """What stands against replacing ``before`` by ``after``: head classes that lose, and worse calibration."""
    options = options or GateOptions()
    reasons = []
    for where, then, now in (("old", before.old, after.old), ("new", before.new, after.new)):
        for label in heads:
            lost = 100 * (then.of(label) - now.of(label))
            if lost > options.points + 1e-6:
                reasons.append(
                    f"{classes[label]} loses {lost:.1f} points on {then.count[label]} {where} pictures; "
                    f"at most {options.points:g} are allowed."
                )
        worse = now.calibration_error - then.calibration_error
        if sum(then.count) and worse > options.calibration:
            reasons.append(
                f"The calibration error on {where} pictures grows from {then.calibration_error:.3f} to "
                f"{now.calibration_error:.3f}; at most {options.calibration:g} more are allowed."
            )
    if not any(before.old.count[label] or before.new.count[label] for label in heads):
        reasons.append("The guard set has no picture of a head class, so nothing can be said; give it some.")
    return tuple(reasons)


def pass_gate(sight_at: Callable[[float], Sight], judge_at: Callable[[Sight], tuple[str, ...]]) -> Verdict:
    """The farthest of ``STEPS`` that passes; where none does, the reasons against the whole step and share 0.

    ``sight_at(share)`` looks with weights between the old (0) and the new ones (1).
    """
    first: tuple[str, ...] = ()
    for share in STEPS:
        reasons = judge_at(sight_at(share))
        if not reasons:
            return Verdict(share, ())
        first = first or reasons
    return Verdict(0.0, first)
