"""From the log-probability of an answer to the probability that it is right, and the threshold that bounds the risk.

Isotonic regression (pool adjacent violators, Ayer et al. 1955) on held-out answers; the threshold is chosen so that,
with probability 1 - delta, at most the wished share of the answers above it is wrong (selection with guaranteed risk,
Geifman and El-Yaniv 2017, tested in a fixed order: Angelopoulos et al., Learn then Test, 2021).
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foveola.exchange import Damaged

FORMAT = "foveola.confidence/1"
NOTHING = 2.0
"""A threshold that no probability reaches."""


@dataclass(frozen=True, slots=True)
class Confidence:
    """What one model's scores mean. ``scores`` ascend; from ``scores[i]`` on, ``probabilities[i]`` of them are right.

    Answers whose probability reaches ``threshold`` are taken. ``model_hash`` names the weights it was learnt on.
    """

    model_hash: str
    scores: tuple[float, ...]
    probabilities: tuple[float, ...]
    threshold: float
    target_risk: float
    delta: float
    samples: int

    def __call__(self, score: float) -> float:
        """The probability that an answer with this score is right; NaN is never trusted."""
        if math.isnan(score):
            return 0.0
        return self.probabilities[max(0, bisect.bisect_right(self.scores, score) - 1)]

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return {"format": FORMAT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class RiskPoint:
    """Taking the most confident ``coverage`` of all answers, ``risk`` of them is wrong."""

    coverage: float
    risk: float


def fit(
    scores: Sequence[float], right: Sequence[bool], *, model_hash: str, target_risk: float = 0.02, delta: float = 0.1
) -> Confidence:
    """Learn from answers whose rightness is known. ``ValueError`` for fewer than 20 or values out of range."""
    if len(scores) != len(right) or len(scores) < 20:
        raise ValueError(f"{len(scores)} scores and {len(right)} verdicts; expected the same number, at least 20")
    if not (0 < target_risk < 1 and 0 < delta < 1):
        raise ValueError("target_risk and delta lie between 0 and 1")
    pairs = sorted(zip(scores, right, strict=True), key=lambda pair: pair[0])
    # One half says what a score means, the other what a threshold costs: a bound needs answers that it was not made of.
    knots, probabilities = _isotonic(pairs[::2])
    confidence = Confidence(model_hash, knots, probabilities, NOTHING, target_risk, delta, len(pairs))
    threshold = _threshold([(confidence(score), ok) for score, ok in pairs[1::2]], target_risk, delta)
    return replace(confidence, threshold=threshold)


def _isotonic(pairs: Sequence[tuple[float, bool]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Steps of the non-decreasing function nearest to the verdicts; each step is smoothed by Laplace's rule."""
    blocks: list[tuple[float, int, int]] = []  # first score, right ones, all
    for score, equal in itertools.groupby(pairs, key=lambda pair: pair[0]):
        verdicts = [ok for _, ok in equal]
        blocks.append((score, sum(verdicts), len(verdicts)))
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][2] >= blocks[-1][1] * blocks[-2][2]:
            (start, ok_one, one), (_, ok_two, two) = blocks[-2:]
            blocks[-2:] = [(start, ok_one + ok_two, one + two)]
    told = [(good + 1) / (count + 2) for _, good, count in blocks]
    for at in range(1, len(told)):  # smoothing small blocks more than large ones may break the order
        told[at] = max(told[at], told[at - 1])
    return tuple(start for start, _, _ in blocks), tuple(told)


def _threshold(judged: Sequence[tuple[float, bool]], target_risk: float, delta: float) -> float:
    """The least probability above which the risk is bounded; more than 1 (nothing is taken) where none is.

    The levels are tested from the strictest on, each at ``delta``, until one fails: testing in an order that is fixed
    beforehand needs no correction for their number (Angelopoulos et al. 2021, section 3.2).
    """
    best = NOTHING
    for level in sorted({probability for probability, _ in judged}, reverse=True):
        taken = [ok for probability, ok in judged if probability >= level]
        if risk_bound(0, len(taken), delta) > target_risk:
            continue  # too few to prove anything, whatever they are
        if risk_bound(taken.count(False), len(taken), delta) > target_risk:
            break
        best = level
    return best


def risk_bound(wrong: int, count: int, delta: float) -> float:
    """The largest risk under which ``wrong`` or fewer of ``count`` have a probability of at least ``delta``.

    One-sided Clopper-Pearson bound (1934), by bisection of the binomial distribution. 1.0 for no samples.
    """
    if wrong >= count:
        return 1.0
    low, high = wrong / count, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(wrong, count, middle) > delta else (low, middle)
    return high


def _at_most(wrong: int, count: int, risk: float) -> float:
    """P(Binomial(count, risk) <= wrong)."""
    if risk <= 0:
        return 1.0
    if risk >= 1:
        return 0.0
    yes, no = math.log(risk), math.log1p(-risk)
    whole = math.lgamma(count + 1)
    return math.fsum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * yes + (count - k) * no)
        for k in range(wrong + 1)
    )


def risk_curve(probabilities: Sequence[float], right: Sequence[bool]) -> list[RiskPoint]:
    """The selective-risk curve of answers that were not learnt from; equal probabilities are one point."""
    judged = sorted(zip(probabilities, right, strict=True), key=lambda pair: -pair[0])
    points, wrong = [], 0
    for taken, (probability, ok) in enumerate(judged, 1):
        wrong += not ok
        if taken == len(judged) or judged[taken][0] != probability:
            points.append(RiskPoint(taken / len(judged), wrong / taken))
    return points


def area_under_risk(points: Sequence[RiskPoint]) -> float:
    """The mean risk over all coverages (AURC): lower is better; a score that says nothing has the whole risk."""
    area, before = 0.0, 0.0
    for point in points:
        area += point.risk * (point.coverage - before)
        before = point.coverage
    return area


def read_confidence(path: Path, model_hash: str) -> Confidence:
    """What ``foveola confidence`` wrote. Raises ``Damaged`` where it is none, or of other weights."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("format") != FORMAT:
            raise ValueError("another format")
        document["scores"], document["probabilities"] = tuple(document["scores"]), tuple(document["probabilities"])
        confidence = Confidence(**document)
        numbers = (*confidence.scores, *confidence.probabilities, confidence.threshold)
        if not confidence.scores or len(confidence.scores) != len(confidence.probabilities):
            raise ValueError("no steps")
        if list(confidence.scores) != sorted(confidence.scores) or not all(math.isfinite(one) for one in numbers):
            raise ValueError("not ascending")
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise Damaged(f"{path.name} is no confidence of this version; make one with `foveola confidence`.") from None
    if confidence.model_hash != model_hash:
        raise Damaged(
            f"{path.name} was made for model {confidence.model_hash[:12]}, and the small one is {model_hash[:12]}; "
            "make it anew with `foveola confidence`."
        )
    return confidence
