from __future__ import annotations

import pytest

from foveola.bridge.corpus import load_corpus
from foveola.bridge.entities import names_in, repaired_ids
from foveola.bridge.intents import load_intents
from foveola.bridge.rules import Rules

INTENTS = load_intents()
RULES = Rules(INTENTS)


def best(text: str, kind: str = "ocr") -> str:
    scores = RULES(text, kind).scores  # type: ignore[arg-type]
    return max(scores, key=lambda name: scores[name], default="-")


@pytest.mark.parametrize(
    ("text", "kind", "intent"),
    [
        ("CMD=HOLD;LOT=L2417", "scanner", "LOT_HOLD"),
        ("指令=放行;批次=L2417", "scanner", "LOT_RELEASE"),
        ("H0LD L0T L24I7", "ocr", "LOT_HOLD"),
        ("听线", "voice", "LINE_STOP"),
        ("不要停线", "voice", "NONE"),
        ("do not stop the line", "voice", "NONE"),
        ("do not release L2417", "voice", "LOT_HOLD"),
        ("不用返工了，直接报废", "voice", "SCRAP"),
        ("don't forget to release L2417", "voice", "LOT_RELEASE"),
        ("L2417能放行吗", "voice", "NONE"),
        ("如果温度超过95度就停线", "voice", "NONE"),
        ("没有通过检验", "voice", "INSP_FAIL"),
        ("L2417", "scanner", "NONE"),
    ],
)
def test_what_words_mean(text: str, kind: str, intent: str) -> None:
    assert best(text, kind) == intent


def test_a_printed_text_is_not_compared_by_sound() -> None:
    assert best("听线", "ocr") == "-"


@pytest.mark.parametrize(
    "text",
    [item.text for item in load_corpus() if "host" in item.tags],
)
def test_every_hostile_line_of_the_corpus_is_seen(text: str) -> None:
    verdict = RULES(text, "ocr")
    assert "hostile" in verdict.flags
    assert max(verdict.scores, key=lambda name: verdict.scores[name]) == "NONE"


@pytest.mark.parametrize(
    ("text", "lot"),
    [
        ("hold L2417 and let L2418 run", "L2417"),
        ("hold the lot after L2418, that is L2419", "L2419"),
        ("HOLD L2417 PARENT L2300", "L2417"),
        ("扣L2417，L2418照常走", "L2417"),
        ("把L2418后面那批L2419扣住", "L2419"),
        ("RE1EASE L0T L24I7", "L2417"),
    ],
)
def test_which_lot_is_meant(text: str, lot: str) -> None:
    text = repaired_ids(text, INTENTS)
    assert names_in(text, INTENTS, RULES(text, "ocr").anchor).lots[0] == lot


def test_of_two_stations_the_goal_is_meant() -> None:
    names = names_in("move L2417 from ST04 to ST05", INTENTS, 0)
    assert names.others["station"] == "ST05"
    assert not names.pronoun
    assert names_in("move it", INTENTS, 0).pronoun
