"""The examination's tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

WAYS = (("en", "train"), ("en", "held_out"), ("zh", "train"), ("zh", "held_out"))


def render_accuracy(figures: Mapping[str, Any]) -> RenderableType:
    """Per kind × language × wording, per class, and who is taken for whom."""
    parts: list[RenderableType] = [ways_table(figures)]
    parts += [class_table(kind, classes) for kind, classes in figures["classes"].items() if classes]
    if figures["confusion"]:
        parts.append(confusion_table(figures["confusion"]))
    return Group(*parts)


def percent(score: Mapping[str, Any]) -> str:
    """Share with its interval, in per cent."""
    low, high = score["interval"]
    return f"{100 * score['share']:.1f} ({100 * low:.0f}–{100 * high:.0f})"


def ways_table(figures: Mapping[str, Any]) -> Table:
    """Right answers in per cent with 95 % intervals."""
    table = Table(title="Held-out pictures", title_justify="left", box=None, pad_edge=False)
    table.add_column("right, %")
    for name in ("English", "new words", "Chinese", "new words"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("each", justify="right")
    for kind in dict.fromkeys(way.partition("|")[0] for way in figures["ways"]):
        found = [figures["ways"].get(f"{kind}|{lang}|{wording}") for lang, wording in WAYS]
        count = max(score["count"] for score in found if score)
        table.add_row(escape(kind), *(percent(score) if score else "–" for score in found), str(count))
    return table


def class_table(kind: str, classes: Mapping[str, Any]) -> Table:
    """One kind by class, asked in English and trained wordings."""
    table = Table("class", title=f"\n{kind}", title_justify="left", box=None, pad_edge=False)
    table.add_column("right, % (95 %)", justify="right", no_wrap=True)
    table.add_column("pictures", justify="right")
    for label, score in classes.items():
        table.add_row(escape(label), percent(score), str(score["count"]))
    return table


def confusion_table(confusion: Mapping[str, Mapping[str, int]]) -> Table:
    """Rows are what is there, columns what was answered."""
    answers = list(dict.fromkeys([*confusion, *(name for row in confusion.values() for name in row)]))
    table = Table("steel: is ↓ called →", title="\nConfusions", title_justify="left", box=None, pad_edge=False)
    for name in answers:
        table.add_column(name, justify="right")
    for label, row in confusion.items():
        counts = (row.get(name, 0) for name in answers)
        table.add_row(escape(label), *(str(count) if count else "·" for count in counts))
    return table
