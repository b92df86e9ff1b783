"""The three files that a plant edits: intents, sources, labelled instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveola.bridge.corpus import BUILT_IN, FITTED, UNSEEN, load_corpus, write_corpus
from foveola.bridge.intents import load_intents
from foveola.bridge.payload import NONE
from foveola.bridge.score import FEATURES, load_calibration, save_calibration
from foveola.bridge.sources import load_sources
from foveola.exchange import Damaged, Invalid
from tests.bridge.making import entry

GOOD = '[[intent]]\nid = "A"\nphrases = ["do a"]\n[[intent]]\nid = "NONE"\nphrases = ["hello"]\n[ids]\nlot = "(L1)"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "plant.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_built_in_intents_are_whole() -> None:
    intents = load_intents()
    assert {"INSP_PASS", "INSP_FAIL", "LOT_HOLD", "LOT_RELEASE", "TOOL_SWAP", "LINE_STOP", "REWORK", NONE} <= set(
        intents.names
    )
    assert intents["LINE_STOP"].urgent
    assert intents["LOT_HOLD"].needs == ("lot",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[[intent]]", "[[other]]"), "has no [[intent]]"),
        (('id = "A"', 'id = "NONE"'), "has NONE more than once"),
        (('phrases = ["do a"]', ""), "A in plant.toml has no `phrases`"),
        (('phrases = ["do a"]', 'phrases = ["do a"]\nurgent = "yes"'), "`urgent` of A in plant.toml is 'yes'"),
        (('phrases = ["do a"]', 'phrases = ["do a"]\nwords = ["x"]'), "A in plant.toml has words; an intent has:"),
        (('phrases = ["do a"]', 'phrases = ["do a"]\nnegated = "B"'), "negated to 'B', which is no intent"),
        (('"(L1)"', '"(L1"'), "`lot` in [ids] of plant.toml is no regular expression"),
        (('"(L1)"', '"L1"'), "has no group"),
        (("lot =", "tool ="), "lacks `lot`"),
        (('id = "NONE"', 'id = "B"'), "lacks the intent NONE"),
        (("[ids]", "[ids"), "is not TOML"),
        (("[ids]", "[[ids]]"), "`ids` of plant.toml must be a table [ids]"),
    ],
)
def test_a_wrong_intents_file_is_refused_by_name(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert load_intents(written(tmp_path, GOOD)).names == ("A", "NONE")
    with pytest.raises(Invalid) as refused:
        load_intents(written(tmp_path, GOOD.replace(*change)))
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no [[source]]"),
        (entry("v", "voice", "ST04", ["LOT_HOLD"]), "of type voice, which can never cause LOT_HOLD"),
        (entry("v", "voice", "ST04", ["LOT_RELEASE"]), "can never cause LOT_RELEASE"),
        (entry("v", "phone", "ST04", []), "`type` of source v in plant.toml is 'phone'; expected one of ocr, voice"),
        (entry("v", "ocr", "ST04", ["FLY"]), "may cause 'FLY', which is no intent"),
        (entry("v", "ocr", "", []), "`place` of source 'v'"),
        (entry("v", "ocr", "A", []) + entry("v", "ocr", "B", []), "has the source v more than once"),
        ('[[source]]\nid = "v"\n', "it must have exactly: allowed, channel, id, place, type"),
    ],
)  # fmt: skip
def test_a_wrong_sources_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_sources(written(tmp_path, text), load_intents())
    assert message in refused.value.message


def test_the_corpus_is_large_bilingual_and_without_repetitions() -> None:
    items = load_corpus(BUILT_IN)
    texts = [item.text for item in items]
    assert len(texts) >= 600
    assert len(set(texts)) == len(texts)
    unseen = {item.text for item in load_corpus(UNSEEN)}
    assert len(unseen) >= 80
    assert {item.intent for item in load_corpus(UNSEEN)} == set(load_intents().names)
    for path in FITTED:
        assert not unseen & {item.text for item in load_corpus(path)}
    tags = {tag for item in items for tag in item.tags}
    assert {"pron", "neg", "homo", "ocr", "over", "host", "num"} <= tags
    assert {item.intent for item in items} == set(load_intents().names)
    for language in ("zh", "en"):
        assert sum(item.language == language for item in items) >= 300


def test_a_corpus_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    items = tuple(sorted(load_corpus(), key=lambda item: item.intent))
    path = tmp_path / "again.txt"
    path.write_text(write_corpus(items), encoding="utf-8")
    assert load_corpus(path) == items


def test_a_line_without_its_head_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"Line 2 of plant.toml must be 'language kind tags | text' below an \[INTENT\]"):
        load_corpus(written(tmp_path, "[A]\nhold it\n"))


def test_a_calibration_for_other_features_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    save_calibration(load_calibration(), path)
    assert load_calibration(path) == load_calibration()
    path.write_text(path.read_text().replace(f'"{FEATURES[1]}"', '"else"'))
    with pytest.raises(Damaged, match="calibration.json is no calibration of this version"):
        load_calibration(path)
