"""How sure is it: words and encoder made one distribution, and a calibrated probability that its first choice is wrong.

The share of an intent is a softmax over ``rule_weight · rules + encoder_weight · nearness + head_weight · head``. The
probability of being wrong is a logistic regression on what makes instructions ambiguous (``FEATURES``). The ambiguity
score is that probability on another scale, ``p ** gamma``, with gamma such that the probability at which review begins
is 0.65.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.bridge.head import Head
from foveola.bridge.rules import FLAGS, RuleVerdict
from foveola.exchange import Damaged

BUILT_IN = Path(__file__).with_name("calibration.json")
REVIEW_AT = 0.65
FAMILIAR_AT = 0.35
"""Likeness to the nearest known wording below which a person looks whatever the probabilities say, for those were
fitted to other wordings. It was chosen on ``corpus_develop.txt`` before that was fitted to."""
FEATURES = (
    "one", "top", "margin", "agree", "seconded", "lead", "familiar", "silent", "missing", "unsettled", "unsure",
    "short", "nothing", *FLAGS,
)  # fmt: skip
Floats = NDArray[np.float64]
_UNLEARNT = Head()


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted numbers. ``review_p`` is the probability of being wrong from which a person looks; ``wordings`` are
    the texts that were fitted to, by which a wording is known to be unfamiliar."""

    rule_weight: float
    encoder_weight: float
    coefficients: tuple[float, ...]
    review_p: float
    wordings: tuple[str, ...] = ()
    head_weight: float = 0.0
    head: Head = _UNLEARNT

    def shares(self, rules: Floats, nearness: Floats, head: Floats) -> Floats:
        """Distribution [N, intents] over the intents from all three views, each [N, intents]."""
        logits = self.rule_weight * rules + self.encoder_weight * nearness + self.head_weight * head
        away = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(away / away.sum(axis=-1, keepdims=True), np.float64)

    def wrong(self, features: Floats) -> Floats:
        """Probability [N] that the first intent is not what was meant, from features [N, len(FEATURES)]."""
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(features @ np.array(self.coefficients), -30, 30))), np.float64)

    def ambiguity(self, wrong: float) -> float:
        """The same on the scale whose threshold is ``REVIEW_AT``; monotone, 0 at 0 and 1 at 1."""
        return float(min(1.0, max(wrong, 1e-12) ** (math.log(REVIEW_AT) / math.log(self.review_p))))


def features_of(
    shares: Floats, nearness: Floats, head: Floats, verdict: RuleVerdict, names: Sequence[str], *, familiar: float,
    missing: bool, unsettled: bool, confidence: float, chars: int,
) -> list[float]:  # fmt: skip
    """The features of one instruction from its rows of shares, nearness and head (all [intents])."""
    order = np.argsort(-shares)
    top = names[int(order[0])]
    values = {
        "one": 1.0,
        "top": float(shares[order[0]]),
        "margin": float(shares[order[0]] - shares[order[1]]),
        "agree": float(names[int(np.argmax(nearness))] == top),
        "seconded": float(names[int(np.argmax(head))] == top),
        "lead": float(np.diff(np.partition(head, -2)[-2:])[0]) if len(head) > 1 else 0.0,
        "familiar": familiar,
        "silent": float(not verdict.scores),
        "missing": float(missing),
        "unsettled": float(unsettled),
        "unsure": 1.0 - confidence,
        "short": float(chars < 4),
        "nothing": float(top == "NONE"),
    }
    values |= {flag: float(flag in verdict.flags) for flag in FLAGS}
    return [values[name] for name in FEATURES]


def fit_logistic(features: Floats, wrong: Floats, *, ridge: float = 1.0, steps: int = 50) -> tuple[float, ...]:
    """Coefficients of a ridge-penalised logistic regression by Newton's method; the intercept is not penalised."""
    penalty = np.full(features.shape[1], ridge)
    penalty[FEATURES.index("one")] = 1e-6
    found = np.zeros(features.shape[1])
    for _ in range(steps):
        p = 1.0 / (1.0 + np.exp(-np.clip(features @ found, -30, 30)))
        slope = features.T @ (p - wrong) + penalty * found
        curve = (features * (p * (1 - p))[:, None]).T @ features + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        found = found - step
        if float(np.abs(step).max()) < 1e-8:
            break
    return tuple(round(float(value), 6) for value in found)


def review_threshold(wrong_p: Floats, wrong: Floats, share: float) -> float:
    """The largest probability up to which the instructions that pass are wrong in at most ``share`` of all."""
    order = np.argsort(wrong_p, kind="stable")
    passed_wrong = np.cumsum(wrong[order]) / len(wrong)
    allowed = np.flatnonzero(passed_wrong <= share)
    # Half way to the next one, so that the last that may pass does; never so loose that only certainty is reviewed.
    last = int(allowed[-1]) if len(allowed) else 0
    following = wrong_p[order[min(last + 1, len(order) - 1)]]
    return float(np.clip((wrong_p[order[last]] + following) / 2, 0.03, 0.5))


def reliability(wrong_p: Floats, wrong: Floats, bins: int = 5) -> list[dict[str, float]]:
    """The diagram: for bins of equal count, the predicted and the observed share of wrong intents."""
    order = np.argsort(wrong_p, kind="stable")
    return [
        {"predicted": round(float(wrong_p[part].mean()), 4), "observed": round(float(wrong[part].mean()), 4),
         "count": len(part)}
        for part in np.array_split(order, bins) if len(part)
    ]  # fmt: skip


def load_calibration(path: Path = BUILT_IN) -> Calibration:
    """Read a calibration. Raises ``Damaged`` when it is none, or one for other features."""
    try:
        document: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8"))
        if tuple(document["features"]) != FEATURES:  # type: ignore[arg-type]
            raise ValueError
        numbers = {name: document[name] for name in ("rule_weight", "encoder_weight", "head_weight", "review_p")}
        given: dict[str, Any] = dict(document)
        lists = {name: tuple(given[name]) for name in ("coefficients", "wordings")}
        head = given["head"]
        read = Head(tuple(head["intents"]), tuple(head["mean"]), tuple(tuple(row) for row in head["weights"]))
        return Calibration(**lists, **numbers, head=read)  # type: ignore[arg-type]
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged(f"{path.name} is no calibration of this version; run `foveola bridge calibrate`.") from None


def save_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration so that ``load_calibration`` reads it."""
    document = {"features": FEATURES, **asdict(calibration)}
    head = document.pop("head")
    lines = [json.dumps(document, ensure_ascii=False, indent=1)[:-2]]
    lines.append(f' "head": {json.dumps(head, ensure_ascii=False)}')  # thousands of numbers, in one line
    path.write_text(",\n".join(lines) + "\n}\n", encoding="utf-8")
