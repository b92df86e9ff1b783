"""Fitting the numbers of ``score`` to labelled instructions, and judging them on others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foveola.bridge.context import ContextBook
from foveola.bridge.corpus import Labelled
from foveola.bridge.encoder import Encoder, Vectors
from foveola.bridge.head import fit_head
from foveola.bridge.intents import Intents
from foveola.bridge.normalise import Normaliser, Understood
from foveola.bridge.payload import NONE, Context
from foveola.bridge.score import (
    FAMILIAR_AT,
    REVIEW_AT,
    Calibration,
    Floats,
    fit_logistic,
    reliability,
    review_threshold,
)
from foveola.bridge.sources import Sources

PASS_WRONG = 0.01
"""The share of all instructions that may pass without review although they were understood wrongly."""
CONTEXT = Context("ST04", 0.0, "L9001")
_RULE_WEIGHTS, _ENCODER_WEIGHTS = (2.0, 3.0, 4.5, 6.0, 8.0), (0.0, 2.0, 4.0, 6.0, 9.0)
_HEAD_WEIGHTS = (0.0, 4.0, 6.0, 9.0, 13.0)
_FOLDS = 5
_START = Calibration(1.0, 1.0, (), 0.1)


@dataclass(frozen=True, slots=True)
class Views:
    """A corpus seen once: rules and nearness [N, intents] and the index [N] of the intent that was meant."""

    items: tuple[Labelled, ...]
    understood: tuple[Understood, ...]
    rules: Floats
    near: Floats
    truth: np.ndarray[Any, np.dtype[np.int64]]


class Calibrator:
    """Fits and judges on parts of one corpus; every text is encoded once.

    Whoever writes the corpus also writes the words of the intents, and tomorrow's operator knows neither. So the fit
    sees every instruction several times: with all words and phrases, and ``strangers`` times with a random half of
    them gone, which is what an unknown wording looks like. What the head says of an instruction, and how familiar it
    is, is taken from the other ``groups`` (corpora of other hands or days), for the same reason.
    """

    def __init__(
        self,
        intents: Intents,
        encode: Encoder,
        items: Sequence[Labelled],
        *,
        strangers: int = 3,
        groups: Sequence[int] | None = None,
    ) -> None:
        self._intents, self._encode, self._items = intents, remembering(encode), tuple(items)
        self._normaliser = Normaliser(intents, Sources(()), ContextBook(), self._encode, _START)
        self.views = self._see(intents)
        self._strange = [self._see(forgetful(intents, seed)) for seed in range(strangers)]
        self._vectors = self._encode([one.text for one in self.views.understood])
        given = np.arange(len(self._items)) % _FOLDS if groups is None else np.array(groups)
        self._groups = given if len(set(given.tolist())) > 1 else np.arange(len(self._items)) % _FOLDS

    def _see(self, intents: Intents) -> Views:
        normaliser = Normaliser(intents, Sources(()), ContextBook(), self._encode, _START)
        understood = normaliser.understand([one.text for one in self._items], [one.kind for one in self._items])
        truth = [intents.names.index(intents[one.intent].id) for one in self._items]
        return Views(
            self._items,
            tuple(understood),
            np.stack([one.rule_row for one in understood]),
            np.stack([one.near_row for one in understood]),
            np.array(truth),
        )

    def fit(self, part: Sequence[int], *, pass_wrong: float = PASS_WRONG) -> Calibration:
        """Weights by likelihood, coefficients by regression, the threshold by the share of wrong ones that may pass."""
        index = np.array(part)
        seen = [self.views, *self._strange]
        head, familiar = self._from_others(index)
        rules, near, truth = (
            np.concatenate([getattr(views, name)[index] for views in seen]) for name in ("rules", "near", "truth")
        )
        heads = np.tile(head, (len(seen), 1))

        def loss(weights: tuple[float, float, float]) -> float:
            shares = _weighing(*weights).shares(rules, near, heads)
            return float(-np.log(shares[np.arange(len(truth)), truth] + 1e-12).mean())

        weights = min(itertools.product(_RULE_WEIGHTS, _ENCODER_WEIGHTS, _HEAD_WEIGHTS), key=loss)
        pairs = [self._features(views, _weighing(*weights), index, head, familiar) for views in seen]
        features, wrong = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
        # By group: a threshold taken on the very data of the regression would be too hopeful.
        groups = np.tile(self._groups[index], len(seen))
        held = np.zeros(len(wrong))
        for group in set(groups.tolist()):
            mine = groups == group
            fitted = replace(_weighing(*weights), coefficients=fit_logistic(features[~mine], wrong[~mine]))
            held[mine] = fitted.wrong(features[mine])
        return replace(
            _weighing(*weights),
            coefficients=fit_logistic(features, wrong),
            review_p=review_threshold(held, wrong, pass_wrong),
            wordings=tuple(dict.fromkeys(self._items[i].text for i in index)),
            head=fit_head(self._vectors[index], self.views.truth[index], self._intents.names),
        )

    def _from_others(self, index: np.ndarray[Any, Any]) -> tuple[Floats, Floats]:
        """Head [len(index), intents] and familiarity [len(index)] of each, by the groups that it is not in."""
        head, familiar = np.zeros((len(index), len(self._intents.names))), np.zeros(len(index))
        for group in set(self._groups[index].tolist()):
            mine = self._groups[index] == group
            others = index[~mine]
            read = fit_head(self._vectors[others], self.views.truth[others], self._intents.names)
            head[mine] = read(self._vectors[index[mine]], self._intents.names)
            known = self._knowing(replace(_START, wordings=tuple(self._items[i].text for i in others)))
            familiar[mine] = [known.familiar(self.views.understood[i]) for i in index[mine]]
        return head, familiar

    def _knowing(self, calibration: Calibration) -> Normaliser:
        return Normaliser(self._intents, Sources(()), ContextBook(), self._encode, calibration)

    def _features(
        self, views: Views, calibration: Calibration, index: np.ndarray[Any, Any], head: Floats, familiar: Floats
    ) -> tuple[Floats, Floats]:
        shares = calibration.shares(views.rules[index], views.near[index], head)
        rows = [
            self._normaliser.features(replace(views.understood[i], head_row=read), row, CONTEXT, 1.0, float(known))
            for i, row, read, known in zip(index, shares, head, familiar, strict=True)
        ]
        return np.array(rows), (shares.argmax(axis=1) != views.truth[index]).astype(np.float64)

    def judge(self, calibration: Calibration, part: Sequence[int]) -> dict[str, Any]:
        """Figures on ``part``: accuracies with baselines, reliability, and what passes at the threshold."""
        index = np.array(part)
        head = calibration.head(self._vectors[index], self._intents.names)
        knowing = self._knowing(calibration)
        likeness = np.array([knowing.familiar(self.views.understood[i]) for i in index])
        features, wrong = self._features(self.views, calibration, index, head, likeness)
        wrong_p = calibration.wrong(features)
        score = np.array([calibration.ambiguity(float(p)) for p in wrong_p])
        familiar = likeness >= FAMILIAR_AT
        hostile = np.array(["hostile" in self.views.understood[i].rules.flags for i in index])
        passed = (score < REVIEW_AT) & familiar & ~hostile
        lots = [(self.views.items[i], self.views.understood[i]) for i in index if self.views.items[i].lot]
        right = sum(self._lot(one) == (CONTEXT.lot if item.lot == "CTX" else item.lot) for item, one in lots)
        truth = self.views.truth[index]
        shares = calibration.shares(self.views.rules[index], self.views.near[index], head)
        acts = shares.argmax(axis=1) != self._intents.names.index(NONE)
        top3 = np.argsort(-shares, axis=1)[:, :3]
        return {
            "count": len(index),
            "accuracy": round(1 - float(wrong.mean()), 4),
            "accuracy_top3": round(float((top3 == truth[:, None]).any(axis=1).mean()), 4),
            "accuracy_rules_alone": round(float(self._rules_right(index).mean()), 4),
            "accuracy_encoder_alone": round(float((self.views.near[index].argmax(axis=1) == truth).mean()), 4),
            "accuracy_head_alone": round(float((head.argmax(axis=1) == truth).mean()), 4),
            "lot_right": round(right / max(len(lots), 1), 4),
            "unfamiliar": round(1 - float(familiar.mean()), 4),
            "reviewed": round(1 - float(passed.mean()), 4),
            "wrong_and_passed": round(float((wrong * passed).mean()), 4),
            "wrong_and_acted_on": round(float((wrong * passed * acts).mean()), 4),
            "wrong_of_passed": round(float((wrong * passed).sum() / max(passed.sum(), 1)), 4),
            "calibration_error": round(_calibration_error(wrong_p, wrong), 4),
            "reliability": reliability(wrong_p, wrong),
        }

    def _lot(self, one: Understood) -> str | None:
        return self._normaliser.lot_of(one, CONTEXT)[0]

    def _rules_right(self, index: np.ndarray[Any, Any]) -> Floats:
        """Rules that say nothing mean NONE: they have no other opinion."""
        nothing = list(self._intents.names).index(NONE)
        rows = self.views.rules[index]
        best = np.where(rows.max(axis=1) > 0, rows.argmax(axis=1), nothing)
        return np.asarray(best == self.views.truth[index], np.float64)


def _weighing(rule: float, encoder: float, head: float) -> Calibration:
    return Calibration(rule, encoder, (), 0.1, head_weight=head)


def remembering(encode: Encoder) -> Encoder:
    """The same encoder, which encodes a text once."""
    known: dict[str, Vectors] = {}

    def recall(texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, encode(new), strict=True))
        return np.stack([known[text] for text in texts])

    return recall


def forgetful(intents: Intents, seed: int) -> Intents:
    """The same intents with a random half of each list of words and phrases."""
    draw = random.Random(seed)

    def half(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(draw.sample(words, len(words) // 2)))

    kept = [
        replace(one, zh=half(one.zh), en=half(one.en), phrases=half(one.phrases), codes=half(one.codes))
        for one in intents.all
    ]
    return replace(intents, all=tuple(kept))


def _calibration_error(wrong_p: Floats, wrong: Floats) -> float:
    diagram = reliability(wrong_p, wrong)
    return float(sum(abs(one["predicted"] - one["observed"]) * one["count"] for one in diagram)) / len(wrong)


def halves(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Two halves of ``range(count)``, drawn by ``seed``."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return sorted(order[: count // 2]), sorted(order[count // 2 :])
