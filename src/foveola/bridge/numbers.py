"""Numbers and units as people say and print them, Chinese and English."""

from __future__ import annotations

import re

from foveola.bridge.payload import Quantity

_ZH_DIGITS = {ch: i for i, ch in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "幺": 1}
_ZH_POWERS = {"十": 10, "百": 100, "千": 1000, "万": 10_000}
_EN_DIGITS = {"zero": 0, "oh": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
              "eight": 8, "nine": 9}  # fmt: skip
_ZH_NUMBER = "[零〇一二两三四五六七八九十百千万幺]+(?:点[零〇一二三四五六七八九]+)?"

# unit as written → (unit as kept, factor)
UNITS: dict[str, tuple[str, float]] = {
    "mm": ("mm", 1), "毫米": ("mm", 1), "millimetre": ("mm", 1), "millimetres": ("mm", 1), "millimeters": ("mm", 1),
    "cm": ("mm", 10), "厘米": ("mm", 10), "um": ("mm", 0.001), "μm": ("mm", 0.001), "微米": ("mm", 0.001),
    "m": ("m", 1), "米": ("m", 1), "m/s": ("m/s", 1), "米每秒": ("m/s", 1),
    "°c": ("°C", 1), "℃": ("°C", 1), "c": ("°C", 1), "度": ("°C", 1), "degrees": ("°C", 1),
    "mpa": ("MPa", 1), "兆帕": ("MPa", 1), "megapascal": ("MPa", 1), "bar": ("MPa", 0.1), "kpa": ("MPa", 0.001),
    "片": ("pcs", 1), "件": ("pcs", 1), "个": ("pcs", 1), "pieces": ("pcs", 1), "pcs": ("pcs", 1),
    "samples": ("pcs", 1),
    "箱": ("boxes", 1), "boxes": ("boxes", 1), "次": ("cycles", 1), "cycles": ("cycles", 1),
    "%": ("%", 1), "分钟": ("s", 60), "minutes": ("s", 60), "秒": ("s", 1), "seconds": ("s", 1), "小时": ("s", 3600),
}  # fmt: skip
_UNIT = "|".join(sorted((re.escape(unit) for unit in UNITS), key=len, reverse=True))
_WITH_UNIT = re.compile(rf"(?<![A-Za-z0-9_.])(-?\d+(?:\.\d+)?)\s*({_UNIT})(?![a-z])", re.IGNORECASE)


def chinese_number(text: str) -> float:
    """``十二点零五`` → 12.05, ``二四一七`` → 2417 (digits read one by one), ``两百`` → 200."""
    whole, _, fraction = text.partition("点")
    if not any(ch in _ZH_POWERS for ch in whole):
        value = float(int("".join(str(_ZH_DIGITS[ch]) for ch in whole)))
    else:
        total, section, digit = 0, 0, 0
        for ch in whole:
            if ch in _ZH_DIGITS:
                digit = _ZH_DIGITS[ch]
            elif ch == "万":
                total, section, digit = (total + section + digit) * 10_000, 0, 0
            else:
                section, digit = section + (digit or 1) * _ZH_POWERS[ch], 0
        value = float(total + section + digit)
    return value + (int("".join(str(_ZH_DIGITS[ch]) for ch in fraction)) / 10 ** len(fraction) if fraction else 0)


def with_digits(text: str) -> str:
    """Spoken numbers as digits: Chinese ones before a unit or after 批次, English digits read one after another."""
    units = "|".join(re.escape(unit) for unit in UNITS if not unit.isascii())
    text = re.sub(rf"({_ZH_NUMBER})(?={units})", lambda m: f"{chinese_number(m[1]):g}", text)
    text = re.sub(rf"(?<=批次)({_ZH_NUMBER})", lambda m: f"{chinese_number(m[1]):g}", text)
    words = "|".join(_EN_DIGITS)
    return re.sub(
        rf"\b(?:{words})(?:\s(?:{words}))+\b",
        lambda m: "".join(str(_EN_DIGITS[word.lower()]) for word in m[0].split()),
        text,
        flags=re.IGNORECASE,
    )


def quantities(text: str) -> tuple[Quantity, ...]:
    """Every number that has a unit, converted: 1.2 cm is 12 mm."""
    found = []
    for match in _WITH_UNIT.finditer(text):
        unit, factor = UNITS[match[2].lower()]
        found.append(Quantity(round(float(match[1]) * factor, 9), unit))
    return tuple(found)
