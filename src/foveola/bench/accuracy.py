"""The examination through the real engine: bytes in, greedy answer out, marked, tallied, held to the bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foveola.bench.evidence import Bar
from foveola.tiny import words
from foveola.tiny.exam import Question, Score, is_right, tally

OTHER = "another answer"
STEEL, MAGNETIC = "steel: defect", "magnetic: defect"
# What the issue asks for: name of the bar, the kinds that are pooled, the share to reach. English, trained wordings.
BARS = (
    ("steel (NEU-DET), defect name", (STEEL,), 0.97),
    ("magnetic tile, defect name", (MAGNETIC,), 0.80),
    ("lot code, every character", ("lot code",), 0.90),
    ("generated defect, cell of nine", ("generated: cell",), 0.85),
    ("generated defect, box IoU >= 0.5", ("generated: box",), 0.60),
    ("clean picture called clean", ("clean: defect", "clean: verdict"), 0.95),
)
LOSS_POINTS = 2.0


@dataclass(frozen=True, slots=True)
class Marked:
    """A question, what was answered, and whether that is right."""

    question: Question
    answer: str
    right: bool


def examine(
    paper: Iterable[Question], ask: Callable[[Question], str], progress: Callable[[int], None] = lambda done: None
) -> list[Marked]:
    """Put every question to ``ask``; ``progress`` is told how many are done."""
    marked = []
    for done, question in enumerate(paper, 1):
        answer = ask(question)
        marked.append(Marked(question, answer, is_right(question, answer)))
        progress(done)
    return marked


def scores(marked: Sequence[Marked], key: Callable[[Question], str]) -> dict[str, Score]:
    """Scores per ``key``, in order of appearance."""
    return tally([(one.question, one.right) for one in marked], key)


def plain(marked: Sequence[Marked], kind: str | None = None) -> list[Marked]:
    """The questions in English and trained wordings, of one kind or of all."""
    return [
        one
        for one in marked
        if one.question.lang == "en" and one.question.wording == "train" and kind in (None, one.question.kind)
    ]


def losses(marked: Sequence[Marked], way: Callable[[Question], bool]) -> dict[str, float]:
    """Per kind, how many points the questions for which ``way`` is true lose against the others.

    A kind that lacks either is left out.
    """
    found = {}
    for kind, _ in scores(marked, lambda question: question.kind).items():
        halves = scores([one for one in marked if one.question.kind == kind], lambda question: str(way(question)))
        if len(halves) == 2:
            found[kind] = round(100 * (halves["False"].share - halves["True"].share), 2)
    return found


def untrained(question: Question) -> bool:
    """Asked in a wording that was never trained on."""
    return question.wording == "held_out"


def chinese(question: Question) -> bool:
    """Asked in Chinese."""
    return question.lang == "zh"


def bars_of(marked: Sequence[Marked]) -> list[Bar]:
    """The bars; one whose questions are missing has no value and is missed."""
    bars = []
    for name, kinds, wanted in BARS:
        asked = [one for one in plain(marked) if one.question.kind in kinds]
        share = sum(one.right for one in asked) / len(asked) if asked else float("nan")
        bars.append(Bar(name, share, wanted))
    for name, way in (("untrained wordings lose, points", untrained), ("Chinese loses, points", chinese)):
        found = losses(marked, way)
        mean = sum(found.values()) / len(found) if found else float("nan")
        bars.append(Bar(f"{name} (mean over kinds)", mean, LOSS_POINTS, at_most=True))
    return bars


def figures_of(marked: Sequence[Marked]) -> dict[str, Any]:
    """Everything that the tables need, as plain data."""
    by_kind = scores(plain(marked), lambda question: question.kind)
    by_way = scores(marked, lambda question: "|".join((question.kind, question.lang, question.wording)))
    return {
        "questions": len(marked),
        "kinds": {kind: score.to_json() for kind, score in by_kind.items()},
        "ways": {way: score.to_json() for way, score in by_way.items()},
        "classes": {kind: _classes(marked, kind) for kind in (STEEL, MAGNETIC)},
        "confusion": confusion(plain(marked, STEEL)),
        "untrained_lose_points": losses(marked, untrained),
        "chinese_loses_points": losses(marked, chinese),
    }


def _classes(marked: Sequence[Marked], kind: str) -> dict[str, Any]:
    found = scores(plain(marked, kind), lambda question: question.label)
    return {label: found[label].to_json() for label in sorted(found)}


def confusion(marked: Sequence[Marked]) -> dict[str, dict[str, int]]:
    """Per right name, how often which name was answered; whatever is no name of a defect counts as ``OTHER``."""
    names = set(words.DEFECTS_ZH)
    table: dict[str, Counter[str]] = {}
    for one in marked:
        said = one.answer.strip()
        table.setdefault(one.question.label, Counter())[said if said in names else OTHER] += 1
    return {label: dict(table[label].most_common()) for label in sorted(table)}
