from __future__ import annotations

import io
import math
from itertools import product

import pytest

pytest.importorskip("transformers", reason="the workshop is not installed")

from rich.console import Console

from foveola.bench.accuracy import (
    BARS,
    OTHER,
    STEEL,
    Marked,
    bars_of,
    chinese,
    confusion,
    examine,
    figures_of,
    losses,
    untrained,
)
from foveola.bench.accuracy_table import render_accuracy
from tests.bench.exam import question


def marked(kind: str, right: int, count: int, **given: str) -> list[Marked]:
    return [
        Marked(question(kind, index=n, **given), "scratches" if n < right else "pit", n < right) for n in range(count)
    ]


def bar(found: list[Marked], name: str) -> float:
    return next(bar.value for bar in bars_of(found) if bar.name.startswith(name))


def test_every_question_is_put_and_marked() -> None:
    done: list[int] = []
    paper = [
        question("a"),
        question("a", expected="crazing", label="crazing"),
        question("b", task="box", expected="(0,0),(500,500)"),
    ]
    answers = {"a": " scratches\n", "b": "(0,0),(500,400)"}
    found = examine(paper, lambda one: answers[one.kind], done.append)
    assert [one.right for one in found] == [True, False, True]
    assert done == [1, 2, 3]


def test_the_bars_are_held_in_english_and_trained_wordings() -> None:
    found = [
        *marked(STEEL, 97, 100),
        *marked(STEEL, 0, 50, wording="held_out"),
        *marked(STEEL, 0, 50, lang="zh"),
    ]
    assert bar(found, "steel") == pytest.approx(0.97)
    assert next(one for one in bars_of(found) if one.name.startswith("steel")).ok


def test_clean_pictures_pool_both_questions() -> None:
    found = [*marked("clean: defect", 10, 10), *marked("clean: verdict", 8, 10)]
    assert bar(found, "clean") == pytest.approx(0.9)


def test_a_bar_without_questions_is_missed() -> None:
    found = {one.name: one for one in bars_of([])}
    assert len(found) == len(BARS) + 2
    assert all(math.isnan(one.value) and not one.ok for one in found.values())
    assert found["lot code, every character"].to_json()["value"] is None


def test_losses_are_points_per_kind_and_their_mean_is_the_bar() -> None:
    found = [
        part
        for kind, lang, wording in product(("a", "b"), ("en", "zh"), ("train", "held_out"))
        for part in marked(kind, 10 if wording == "train" else 9 if kind == "a" else 10, 10, lang=lang, wording=wording)
    ]
    assert losses(found, untrained) == {"a": 10.0, "b": 0.0}
    assert losses(found, chinese) == {"a": 0.0, "b": 0.0}
    assert bar(found, "untrained wordings lose") == pytest.approx(5)
    assert bar(found, "Chinese loses") == 0
    assert losses(marked("a", 1, 2), untrained) == {}


def test_confusions_count_names_and_put_the_rest_together() -> None:
    said = ["crazing", "crazing", "patches", "what?"]
    found = [Marked(question(STEEL, label="crazing"), answer, answer == "crazing") for answer in said]
    assert confusion(found) == {"crazing": {"crazing": 2, "patches": 1, OTHER: 1}}


def test_figures_have_every_table_and_the_terminal_shows_them() -> None:
    found = [
        part
        for lang, wording in product(("en", "zh"), ("train", "held_out"))
        for part in marked(STEEL, 9, 10, lang=lang, wording=wording)
    ]
    figures = figures_of(found)
    assert figures["questions"] == 40
    assert figures["kinds"][STEEL]["share"] == 0.9
    assert figures["ways"][f"{STEEL}|zh|held_out"]["count"] == 10
    assert figures["classes"][STEEL]["scratches"]["right"] == 9
    assert figures["confusion"] == {"scratches": {"scratches": 9, "pit": 1}}
    out = io.StringIO()
    Console(file=out, width=100).print(render_accuracy(figures))
    assert "90.0 (60–98)" in out.getvalue()
    assert "scratches" in out.getvalue()
