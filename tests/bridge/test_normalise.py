from __future__ import annotations

from pathlib import Path

import pytest

from foveola.bridge.context import Event
from foveola.bridge.corpus import load_corpus
from foveola.bridge.normalise import Normaliser
from foveola.bridge.score import REVIEW_AT
from foveola.bridge.sources import Spoofed, UnknownSource
from foveola.exchange import Invalid
from tests.bridge.making import normaliser, raw


@pytest.fixture
def normal(tmp_path: Path) -> Normaliser:
    return normaliser(tmp_path)


def test_a_clear_instruction_is_sent(normal: Normaliser) -> None:
    found = normal(raw("CMD=HOLD;LOT=L2417", "scan-01"))
    assert (found.resolved_intent, found.verdict, found.audit_required) == ("LOT_HOLD", "send", False)
    assert found.ambiguity_score < REVIEW_AT
    assert found.entities["lot"] == "L2417"
    assert found.order_key == "L2417"
    assert len(found.candidates) == 3
    assert found.candidates[0].share >= found.candidates[1].share >= found.candidates[2].share
    assert found.to_json()["schema"] == "foveola.bridge.command"


def test_this_lot_is_the_one_in_process(normal: Normaliser) -> None:
    normal.contexts.observe(Event("scan-01", "ST04", "lot", "L5000", 900.0, 900.0))
    found = normal(raw("HOLD TAG this lot"))
    assert found.entities["lot"] == "L5000"
    assert found.context.lot == "L5000"
    assert found.verdict == "send"


def test_without_a_lot_a_person_is_asked(normal: Normaliser) -> None:
    found = normal(raw("HOLD TAG this lot"))
    assert found.verdict == "review"
    assert found.audit_required
    assert found.ambiguity_score >= REVIEW_AT
    assert "missing_lot" in found.reasons


def test_a_lot_that_changed_just_then_is_asked_about(normal: Normaliser) -> None:
    normal.contexts.observe(Event("scan-01", "ST04", "lot", "L5000", 900.0, 900.0))
    normal.contexts.observe(Event("scan-01", "ST04", "lot", "L5001", 999.5, 999.5))
    found = normal(raw("HOLD TAG this lot"))
    assert found.verdict == "review"
    assert "lot_changed_just_then" in found.reasons


def test_a_voice_station_never_causes_a_hold(normal: Normaliser) -> None:
    found = normal(raw("扣留批次L2417", "voice-03"))
    assert found.candidates[0].intent == "LOT_HOLD"
    assert found.resolved_intent is None
    assert found.verdict == "denied"
    assert found.audit_required


@pytest.mark.parametrize("item", [item for item in load_corpus() if item.intent in ("LOT_HOLD", "LOT_RELEASE")][::5])
def test_no_wording_gets_a_hold_or_release_out_of_a_voice_station(normal: Normaliser, item: object) -> None:
    found = normal(raw(item.text, "voice-03"))  # type: ignore[attr-defined]
    assert found.resolved_intent not in ("LOT_HOLD", "LOT_RELEASE")


def test_hostile_text_goes_to_a_person_with_the_highest_score(normal: Normaliser) -> None:
    found = normal(raw("src_id=MES-ADMIN release L2417"))
    assert found.ambiguity_score == 1.0
    assert found.verdict == "review"
    assert found.resolved_intent == "NONE"
    assert "hostile" in found.reasons


def test_a_source_is_who_the_transport_says(normal: Normaliser) -> None:
    with pytest.raises(Spoofed, match="says that it comes from scan-01, but it arrived over the channel of another"):
        normal(raw("CMD=HOLD;LOT=L2417", "scan-01", channel="key-voice-03"))
    with pytest.raises(UnknownSource, match="There is no source 'MES-ADMIN'"):
        normal(raw("CMD=HOLD;LOT=L2417", "MES-ADMIN"))


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("  ", {}, "The instruction has no text"),
        ("x" * 70_000, {}, "an instruction has at most 64 KiB"),
        ("stop", {"confidence": float("nan")}, "`confidence` is nan; expected 0 to 1"),
        ("stop", {"at_s": float("inf")}, "`at_s` is inf; expected seconds since 1970"),
    ],
)
def test_senseless_input_is_refused(normal: Normaliser, text: str, fields: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        normal(raw(text, **fields))
    assert message in refused.value.message


def test_a_document_is_no_instruction(normal: Normaliser) -> None:
    assert normal(raw("stop the line " * 100)).verdict == "review"


def test_what_lies_at_the_place_is_not_meant_by_everything(normal: Normaliser) -> None:
    normal.contexts.observe(Event("scan-01", "ST04", "lot", "L5000", 900.0, 900.0))
    stop = normal(raw("EMERGENCY STOP LINE3"))
    assert "lot" not in stop.entities
    assert stop.order_key == "ST04"
    assert normal(raw("rework this lot")).order_key == "L5000"


def test_urgent_is_only_what_the_file_says(normal: Normaliser) -> None:
    assert normal(raw("EMERGENCY STOP LINE3", "agv-07")).urgent
    assert not normal(raw("CMD=HOLD;LOT=L2417", "scan-01")).urgent
