"""Names in an instruction: which lot, tool, station and line are meant, and which are only mentioned."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foveola.bridge.intents import Intents
from foveola.bridge.text import digits_of

_NOT_MEANT = re.compile(
    r"(?:\b(?:not|parent|before|after|leave|keep|like|from|and let|behind)\s+(?:lot\s+)?|不是|原批\s*|别送|从)$",
    re.IGNORECASE,
)
_MENTIONED = re.compile(r"^\s*(?:后面|前面|之前|之后|不动|不用|照常|继续)", re.IGNORECASE)
_PRONOUN = re.compile(
    r"它|这批|那批|这匹|那匹|这个|那个|这片|那片|这个件|当前批次|刚才"
    r"|\b(?:it|this|that|its|current lot|the lot|whole lot)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Names:
    """What was named. ``lots`` in the order of how likely each is meant; ``pronoun``: something was pointed at."""

    lots: tuple[str, ...]
    others: dict[str, str]
    pronoun: bool


def repaired_ids(text: str, intents: Intents) -> str:
    """Identifiers of lots as they were printed: OCR reads ``L24I7`` or ``lot 2417``, speech says ``批次2417``."""

    # Whatever could be four digits behind an L, and then is one of the plant's lots once letters are digits again.
    def fixed(match: re.Match[str]) -> str:
        lot = "L" + digits_of(match[1])
        return lot if intents.ids["lot"].fullmatch(lot) else match[0]

    text = re.sub(r"(?<![A-Za-z0-9])[Ll]([0-9OoIl|SsB]{4})(?![A-Za-z0-9])", fixed, text)
    return re.sub(r"(?:批次|\b(?:lot|batch))\s*[:=]?\s*(\d{4})(?!\d)", lambda m: m[0][: -len(m[1])] + "L" + m[1], text)


def names_in(text: str, intents: Intents, anchor: int) -> Names:
    """What ``text`` names; ``anchor`` is the position of the word that decided the intent.

    A lot that is negated, a parent or only locates another (“the lot after L2418”) comes last; among the others the
    one right behind the word that decides comes first.
    """
    ranked: list[tuple[int, int, str]] = []
    for match in intents.ids["lot"].finditer(text):
        before, after = text[max(0, match.start() - 18) : match.start()], text[match.end() : match.end() + 8]
        mentioned = bool(_NOT_MEANT.search(before) or _MENTIONED.match(after))
        distance = match.start() - anchor
        ranked.append((int(mentioned), distance if distance >= 0 else -2 * distance, match[1].upper()))
    ranked.sort()
    others = {}
    for name, pattern in intents.ids.items():
        if name == "lot":
            continue
        found = [match[1].upper() for match in re.finditer(rf"(?<![A-Za-z]){pattern.pattern}", text, re.IGNORECASE)]
        if found:
            others[name] = found[-1] if name == "station" else found[0]  # from ST04 to ST05: the goal is meant
    lots = tuple(dict.fromkeys(lot for _, _, lot in ranked))
    return Names(lots, others, bool(_PRONOUN.search(text)))
