from __future__ import annotations

import json
from typing import Any

import pytest

from foveola.artifact import Finding
from tests.artifact.making import FINDING


def test_json_and_back_gives_the_same_finding() -> None:
    assert Finding.from_json(json.loads(json.dumps(FINDING.to_json()))) == FINDING


def test_the_short_form_is_complete() -> None:
    short = Finding("fold", "nothing to do")
    assert Finding.from_json(short.to_json()) == short


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"step": 3}, "the field step of a finding is text, not a number"),
        ({"changed": None}, "the field changed of a finding is text, not null"),
        ({"measured": 1}, "the field measured of a finding is true or false, not a number"),
        ({"seconds": -1}, "the field seconds of a finding is a number of at least 0"),
        ({"seconds": True}, "the field seconds of a finding is a number of at least 0"),
        ({"options": []}, "the field options of a finding is an object, not a list"),
        ({"before": 4}, "the field before of a finding is an object, not a number"),
        ({"after": {"kl": None}}, "the figure kl in after of a finding is a number or text, not null"),
        ({"note": "x"}, "missing or unknown: note"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Finding.from_json({**FINDING.to_json(), **change})


def test_a_missing_field_is_named() -> None:
    data = FINDING.to_json()
    del data["measured"]
    with pytest.raises(ValueError, match="missing or unknown: measured"):
        Finding.from_json(data)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="a finding is a JSON object, not a list"):
        Finding.from_json([])
