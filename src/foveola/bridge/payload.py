"""What goes in and what comes out of the bridge: frozen data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "foveola.bridge.command"
VERSION = 1
NONE = "NONE"
"""The intent of everything that is no instruction."""

SourceKind = Literal["ocr", "voice", "scanner", "agv"]
Verdict = Literal["send", "review", "denied", "ignore"]
"""``send`` to the MES, ``review`` by a person, ``denied`` by the source's policy, ``ignore``: no instruction."""


@dataclass(frozen=True, slots=True)
class RawInstruction:
    """What a device handed in.

    ``at_s`` is the device's own clock and ``arrived_s`` ours, both in Unix seconds; ``channel`` is who the transport
    says it is (the name of an API key, a client certificate), never something that the text or the device claims.
    ``confidence`` 0..1 is the recogniser's own, 1 where it has none.
    """

    id: str
    src_id: str
    channel: str
    text: str
    at_s: float
    arrived_s: float
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its unit, in the unit of ``UNITS`` that it was converted to."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Context:
    """What was going on at the place when the words were spoken; ``settled`` False when it changed just then."""

    place: str
    at_s: float
    lot: str | None = None
    last_object: str | None = None
    settled: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """An intent and its share (0..1)."""

    intent: str
    share: float


@dataclass(frozen=True, slots=True)
class BridgePayload:
    """A normalised instruction. ``resolved_intent`` is None when the source's policy denied what was understood.

    ``wrong`` is the calibrated probability that the first candidate is not what was meant; ``ambiguity_score`` is the
    same on the scale whose threshold for review is 0.65.
    """

    id: str
    src_id: str
    text: str
    resolved_intent: str | None
    ambiguity_score: float
    audit_required: bool
    verdict: Verdict
    wrong: float
    candidates: tuple[Candidate, ...]
    margin: float
    context: Context
    entities: dict[str, str] = field(default_factory=dict)
    quantities: tuple[Quantity, ...] = ()
    reasons: tuple[str, ...] = ()
    urgent: bool = False

    @property
    def order_key(self) -> str:
        """Commands of one key are carried out in the order in which they were given: the lot, else the place."""
        return self.entities.get("lot") or self.context.place

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the schema's name and version, as it goes over the wire and into the review queue."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "id": self.id,
            "src_id": self.src_id,
            "text": self.text,
            "resolved_intent": self.resolved_intent,
            "ambiguity_score": round(self.ambiguity_score, 4),
            "audit_required": self.audit_required,
            "verdict": self.verdict,
            "wrong": round(self.wrong, 4),
            "candidates": [{"intent": one.intent, "share": round(one.share, 4)} for one in self.candidates],
            "margin": round(self.margin, 4),
            "context": {
                "place": self.context.place,
                "at_s": round(self.context.at_s, 3),
                "lot": self.context.lot,
                "last_object": self.context.last_object,
                "settled": self.context.settled,
            },
            "entities": self.entities,
            "quantities": [{"value": one.value, "unit": one.unit} for one in self.quantities],
            "reasons": list(self.reasons),
            "urgent": self.urgent,
            "order_key": self.order_key,
        }
