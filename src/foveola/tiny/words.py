"""What the embedded model is asked and what it answers, in English and Chinese.

A question is drawn from the templates of ``wordings.toml``, whose slots are filled with synonyms, so that a task has
thousands of wordings. The templates under ``held_out`` are never trained on; the examination asks with them.
"""

from __future__ import annotations

import random
import re
import tomllib
from pathlib import Path
from typing import Literal

Lang = Literal["en", "zh"]
Split = Literal["train", "held_out"]

CLEAN = "no defect"
DEFECTS_ZH = {
    "crazing": "龟裂", "inclusion": "夹杂", "patches": "斑块", "pitted surface": "麻点",
    "rolled-in scale": "压入氧化皮", "scratches": "划痕", "blowhole": "气孔", "break": "断裂", "crack": "裂纹",
    "fray": "磨损", "uneven": "不平整", "pitting": "点蚀", "open": "开路", "short": "短路", "mousebite": "鼠咬",
    "spur": "毛刺", "spurious copper": "余铜", "pin-hole": "针孔", "scratch": "刮痕", "pit": "凹坑",
    "stain": "污渍", CLEAN: "无缺陷",
}  # fmt: skip
MATERIALS_ZH = {
    "hot-rolled steel strip": "热轧钢带", "magnetic tile": "磁瓦", "printed circuit board": "印刷电路板",
    "ball screw": "滚珠丝杠", "road surface": "路面", "machined part": "加工件", "printed label": "印刷标签",
    "meter": "仪表",
}  # fmt: skip
CELLS = (
    "top left", "top center", "top right", "middle left", "center", "middle right",
    "bottom left", "bottom center", "bottom right",
)  # fmt: skip
CELLS_ZH = ("左上", "上中", "右上", "左中", "中央", "右中", "左下", "下中", "右下")
VERDICTS_ZH = {"pass": "合格", "fail": "不合格"}
YES_NO_ZH = {"yes": "是", "no": "否"}

_DATA = tomllib.loads((Path(__file__).parent / "wordings.toml").read_text(encoding="utf-8"))
_SLOTS: dict[str, list[str]] = _DATA.pop("slots")
_SLOT = re.compile(r"\{(\w+)\}")
TASKS = tuple(_DATA)

_BEFORE = {"en": ("Please: ", "Question: ", "Hello. ", "Hi! ", "Look carefully. ", "Inspector: ", "Please answer: "),
           "zh": ("请问,", "你好,", "请看图。", "问题:", "请回答:", "麻烦看一下,")}  # fmt: skip
_AFTER = {
    "en": (" Answer briefly.", " Be precise.", " Thanks.", " Answer in a few words.", " Please."),
    "zh": ("请简短回答。", "谢谢。", "请直接回答。", "简要回答。"),
}


def templates(task: str, lang: Lang, split: Split) -> list[str]:
    """The templates of one task, unfilled."""
    return [line for line in _DATA[task][lang][split].splitlines() if line]


def question(task: str, lang: Lang, rng: random.Random, *, split: Split = "train", **given: str) -> str:
    """One wording of ``task``; ``given`` fills ``{x}`` and ``{n}``. Training wordings are also varied in
    case, final punctuation and politeness."""

    def fill(match: re.Match[str]) -> str:
        key = match[1]
        return given[key] if key in given else rng.choice(_SLOTS[key])

    text = rng.choice(templates(task, lang, split))
    while _SLOT.search(text):
        text = _SLOT.sub(fill, text)
    text = text[0].upper() + text[1:]
    return _vary(text, lang, rng) if split == "train" else text


def _vary(text: str, lang: Lang, rng: random.Random) -> str:
    if rng.random() < 0.12:
        text = text.lower()
    if rng.random() < 0.12:
        text = text.rstrip("?.。")
    if lang == "zh" and rng.random() < 0.5:
        text = text.replace("?", "\uff1f").replace(",", "\uff0c")
    if rng.random() < 0.08:
        text = rng.choice(_BEFORE[lang]) + text
    if rng.random() < 0.08:
        text = text + rng.choice(_AFTER[lang])
    return text


_NAMED = frozenset(
    word
    for phrase in (*_SLOTS["D"], *_SLOTS["Ds"], *_SLOTS["CODE"], *DEFECTS_ZH, *MATERIALS_ZH, *VERDICTS_ZH)
    for word in phrase.split()
)


def thinned(text: str, rng: random.Random) -> str:
    """An English question without one or two of its words; those that name a thing, and numbers, stay. What is asked
    for must not hang on a turn of phrase; others will ask in words that training has not seen."""
    found = text.split(" ")
    loose = [i for i, word in enumerate(found) if word.strip("?.,").lower() not in _NAMED and word.isascii()]
    loose = [i for i in loose if not any(c.isdigit() for c in found[i])]
    if len(found) < 5 or len(loose) < 3:
        return text
    gone = set(rng.sample(loose, rng.choice((1, 1, 2))))
    return " ".join(word for i, word in enumerate(found) if i not in gone)


def say_defects(names: list[str], lang: Lang) -> str:
    """'scratch, pit' in the given order without repeats; 'no defect' for none."""
    unique = list(dict.fromkeys(names)) or [CLEAN]
    return ", ".join(unique) if lang == "en" else "、".join(DEFECTS_ZH[n] for n in unique)


def say_cells(cells: list[int], lang: Lang) -> str:
    """Nine-cell positions in reading order, without repeats."""
    table = CELLS if lang == "en" else CELLS_ZH
    return (", " if lang == "en" else "、").join(table[c] for c in sorted(set(cells)))


def say_box(box: tuple[float, float, float, float]) -> str:
    """``box`` = x1, y1, x2, y2 as shares of width and height → '(120,340),(260,480)': thousandths, in tens."""
    x1, y1, x2, y2 = (min(990, max(0, round(v * 100) * 10)) for v in box)
    return f"({x1},{y1}),({x2},{y2})"


def parse_box(text: str) -> tuple[float, float, float, float] | None:
    """The inverse of ``say_box``; None where the text holds no box."""
    found = re.search(r"\((\d+),\s*(\d+)\),\s*\((\d+),\s*(\d+)\)", text)
    return tuple(int(g) / 1000 for g in found.groups()) if found else None  # type: ignore[return-value]


def say_verdict(clean: bool, lang: Lang) -> str:
    """pass / fail."""
    word = "pass" if clean else "fail"
    return word if lang == "en" else VERDICTS_ZH[word]


def say_yes(yes: bool, lang: Lang) -> str:
    """yes / no."""
    word = "yes" if yes else "no"
    return word if lang == "en" else YES_NO_ZH[word]


def say_material(material: str, lang: Lang) -> str:
    """The material's name."""
    return material if lang == "en" else MATERIALS_ZH[material]


def describe(material: str, names: list[str], cells: list[int], lang: Lang) -> str:
    """One sentence: what, which defects, where (where it is known)."""
    if lang == "en":
        place = f" at the {say_cells(cells, lang)}" if cells and names else ""
        return f"A {material} with {say_defects(names, lang)}{place}."
    place = f",位于{say_cells(cells, lang)}" if cells and names else ""
    return f"{say_material(material, lang)},{say_defects(names, lang)}{place}。"
