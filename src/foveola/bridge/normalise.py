"""From what a device handed in to a payload: cleaned, understood, put into context, judged, passed through the gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foveola.bridge.context import ContextBook
from foveola.bridge.encoder import Encoder, Nearness
from foveola.bridge.entities import Names, names_in, repaired_ids
from foveola.bridge.familiar import Wordings
from foveola.bridge.intents import Intents
from foveola.bridge.numbers import quantities, with_digits
from foveola.bridge.payload import NONE, BridgePayload, Candidate, Context, RawInstruction, SourceKind, Verdict
from foveola.bridge.rules import Rules, RuleVerdict
from foveola.bridge.score import FAMILIAR_AT, REVIEW_AT, Calibration, Floats, features_of
from foveola.bridge.sources import Source, Sources
from foveola.bridge.text import MAX_CHARS, clean
from foveola.exchange import Invalid

TOP = 3
MAX_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Understood:
    """What one text was taken for, before context, gate and threshold. Arrays are [intents]."""

    text: str
    rules: RuleVerdict
    rule_row: Floats
    near_row: Floats
    head_row: Floats
    names: Names


def prepare(text: str, intents: Intents) -> str:
    """``text`` made plain: clean, numbers in digits, identifiers repaired, at most ``MAX_CHARS`` long."""
    return repaired_ids(with_digits(clean(text)[:MAX_CHARS]), intents)


class Normaliser:
    """Understands instructions of one plant; safe to call from several threads."""

    def __init__(
        self, intents: Intents, sources: Sources, contexts: ContextBook, encode: Encoder, calibration: Calibration
    ) -> None:
        self.intents = intents
        self.sources = sources
        self.contexts = contexts
        self._rules = Rules(intents)
        self._encode = encode
        self._near = Nearness(intents, encode)
        self._calibration = calibration
        known = [*intents.wordings, *(prepare(text, intents) for text in calibration.wordings)]
        self._known = Wordings(known, intents.ids)

    def understand(self, texts: Sequence[str], kinds: Sequence[SourceKind]) -> list[Understood]:
        """The three views of each text: its words, how near it is to each intent's phrases, what the head reads."""
        prepared = [prepare(text, self.intents) for text in texts]
        if not prepared:
            return []
        vectors = self._encode(prepared)
        near, heads = self._near.of(vectors), self._calibration.head(vectors, self.intents.names)
        found = []
        for text, kind, row, head in zip(prepared, kinds, near, heads, strict=True):
            verdict = self._rules(text, kind)
            scores = np.array([verdict.scores.get(name, 0.0) for name in self.intents.names])
            names = names_in(text, self.intents, verdict.anchor)
            found.append(Understood(text, verdict, scores, row.astype(np.float64), head, names))
        return found

    def familiar(self, one: Understood) -> float:
        """Likeness (0..1) to the nearest known wording; a machine's own code is known."""
        return 1.0 if one.rules.code else self._known.nearest(one.text)

    def features(
        self, one: Understood, shares: Floats, context: Context, confidence: float, familiar: float
    ) -> list[float]:
        """What ``Calibration.wrong`` wants to know about one instruction."""
        best = self.intents[self.intents.names[int(np.argmax(shares))]]
        lot, from_context = self.lot_of(one, context)
        return features_of(
            shares,
            one.near_row,
            one.head_row,
            one.rules,
            self.intents.names,
            familiar=familiar,
            missing="lot" in best.needs and lot is None,
            unsettled=from_context and not context.settled,
            confidence=confidence,
            chars=len(one.text),
        )

    def lot_of(self, one: Understood, context: Context) -> tuple[str | None, bool]:
        """The lot that is meant, and whether it comes from the context."""
        if one.names.lots:
            return one.names.lots[0], False
        return context.lot, context.lot is not None

    def __call__(self, raw: RawInstruction) -> BridgePayload:
        """Normalise one instruction.

        Raises ``UnknownSource``, ``Spoofed``, and ``Invalid`` for an empty or overlong text or a senseless number.
        """
        source = self.sources.admit(raw)
        _check(raw)
        context = self.contexts.at(source.place, raw.src_id, raw.at_s, raw.arrived_s)
        (one,) = self.understand([raw.text], [source.kind])
        shares = self._calibration.shares(one.rule_row, one.near_row, one.head_row)
        familiar = self.familiar(one)
        features = self.features(one, shares, context, raw.confidence, familiar)
        wrong = float(self._calibration.wrong(np.array([features]))[0])
        order = np.argsort(-shares, kind="stable")[:TOP]
        candidates = tuple(Candidate(self.intents.names[int(i)], float(shares[i])) for i in order)
        ambiguity = self._calibration.ambiguity(wrong)
        reasons = self._reasons(raw, one, context, candidates[0].intent, familiar)
        if reasons:
            ambiguity = max(ambiguity, 1.0 if "hostile" in reasons else REVIEW_AT)
        intent, verdict = self._gate(source, candidates[0].intent, ambiguity)
        lot, from_context = self.lot_of(one, context)
        if from_context and not (one.names.pronoun or "lot" in self.intents[candidates[0].intent].needs):
            lot = None  # what lies at the place is not meant by everything that is said there
        return BridgePayload(
            id=raw.id,
            src_id=raw.src_id,
            text=one.text,
            resolved_intent=intent,
            ambiguity_score=ambiguity,
            audit_required=verdict in ("review", "denied"),
            verdict=verdict,
            wrong=wrong,
            candidates=candidates,
            margin=candidates[0].share - candidates[1].share,
            context=context,
            entities={**one.names.others, **({"lot": lot} if lot else {})},
            quantities=quantities(one.text),
            reasons=(*reasons, *sorted(one.rules.flags - {"hostile"})),
            urgent=intent is not None and self.intents[intent].urgent,
        )

    def _reasons(
        self, raw: RawInstruction, one: Understood, context: Context, intent: str, familiar: float
    ) -> tuple[str, ...]:
        """What sends an instruction to a person whatever the numbers say."""
        reasons = []
        if "hostile" in one.rules.flags:
            reasons.append("hostile")
        if len(clean(raw.text)) > MAX_CHARS:
            reasons.append("long")
        if familiar < FAMILIAR_AT:
            reasons.append("unfamiliar")
        if "lot" in self.intents[intent].needs:
            lot, from_context = self.lot_of(one, context)
            if lot is None:
                reasons.append("missing_lot")
            elif from_context and not context.settled:
                reasons.append("lot_changed_just_then")
        return tuple(reasons)

    @staticmethod
    def _gate(source: Source, intent: str, ambiguity: float) -> tuple[str | None, Verdict]:
        if intent == NONE:
            return NONE, "review" if ambiguity >= REVIEW_AT else "ignore"
        if intent not in source.allowed:
            return None, "denied"
        return intent, "review" if ambiguity >= REVIEW_AT else "send"


def _check(raw: RawInstruction) -> None:
    if not raw.text.strip():
        raise Invalid("The instruction has no text; send what was heard or read.", field="text")
    if len(raw.text.encode("utf-8", "replace")) > MAX_BYTES:
        raise Invalid(f"The text has {len(raw.text)} characters; an instruction has at most 64 KiB.", field="text")
    if not 0.0 <= raw.confidence <= 1.0:
        raise Invalid(f"`confidence` is {raw.confidence}; expected 0 to 1.", field="confidence")
    for name in ("at_s", "arrived_s"):
        if not abs(getattr(raw, name)) < 1e11:  # NaN compares false as well
            raise Invalid(f"`{name}` is {getattr(raw, name)}; expected seconds since 1970.", field=name)
