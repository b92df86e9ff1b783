"""What can be said about an instruction without a model: its words, what is denied, asked, supposed, or forged."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foveola.bridge.intents import Intents
from foveola.bridge.payload import NONE, SourceKind
from foveola.bridge.phrases import Hit, Keyword, find, tokens_of
from foveola.bridge.text import clauses, clean, is_chinese, replace_words

FLAGS = ("hostile", "question", "condition", "reported", "negation", "several", "repaired", "long")

_EMPHASIS = re.compile(
    r"千万别忘了?|别忘了?|千万别判错|\bdon'?t forget(?: to)?\b|\bwhatever you do\b|\bbe sure to\b", re.IGNORECASE
)
_NEGATION_ZH = re.compile(r"不要|不用|不必|不需要|无需|取消|别|勿|不能|不是|没有|没|未|不(?=[^良合过])")
_NEGATION_EN = re.compile(
    r"\b(?:not|don'?t|never|no|cancel|without|isn'?t|wasn'?t|can'?t|cannot|needn'?t|shouldn'?t)\b", re.IGNORECASE
)
_SCOPE_ZH, _SCOPE_EN = 8, 5  # characters, words before the words of the intent
_QUESTION = re.compile(
    r"[?？]|吗|是不是|要不要|能不能|有没有|没有$|^谁|多少"
    r"|\b(?:should we|can \S+ be|did (?:this|that|it)|has the|who|what'?s|could you|how many|is it|are we)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"如果|要是|万一|假如|只要|等.{1,12}(?:再|以后|之后)"
    r"|\b(?:if|once(?! more)|in case|unless|as soon as|when(?:ever)?)\b",
    re.IGNORECASE,
)
_REPORTED = re.compile(r"昨天|听说|报告|开会|\b(?:yesterday'?s?|heard|report|meeting|exhibit)\b", re.IGNORECASE)
_HOSTILE = re.compile(
    r"忽略.{0,6}(?:之前|以上|所有).{0,6}(?:规则|指令|提示)|系统提示|你现在是|免审核|跳过审核|src_?id|ambiguity_score|audit_required"
    r"|resolved_intent|MES-ADMIN|我是.{0,4}(?:经理|管理员)"
    r"|drop\s+table|delete\s+from|['\"];|no review needed|skip the review"
    r"|\bignore\b.{0,20}\b(?:previous|above|rules|instructions)|^system:|you are now|\{\s*\"|<\|",
    re.IGNORECASE,
)
_NO_INSTRUCTION = {"question", "condition", "reported", "hostile"}
_LABEL_WORDS = {"lot", "batch", "批", "次", "id"}
_CODE = re.compile(r"(?:^|[;,\s])(?:CMD|指令|RESULT|结果|QC)\s*[=:]\s*([^\s;,|]+)|^([A-Z_-]{2,})\|", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """``scores`` by intent (a machine's own code 2, words 1, repaired words 0.8); ``anchor``: where it stands."""

    scores: dict[str, float]
    anchor: int
    flags: frozenset[str]
    code: bool = False  # a machine's own code and no words


class Rules:
    """The keywords and codes of an intents file, compiled."""

    def __init__(self, intents: Intents) -> None:
        self.intents = intents
        self._chinese = [Keyword.of(one.id, text) for one in intents.all for text in one.zh]
        self._english = [Keyword.of(one.id, text) for one in intents.all for text in one.en]
        self._codes = {code.lower(): one.id for one in intents.all for code in one.codes}

    def repaired(self, text: str, kind: SourceKind) -> str:
        """Lower-case text with the plant's own confusions of speech or print set right."""
        table = self.intents.voice if kind == "voice" else self.intents.ocr if kind == "ocr" else {}
        return replace_words(clean(text).lower(), table)

    def __call__(self, text: str, kind: SourceKind) -> RuleVerdict:
        """Judge ``text`` as it came from a device of this kind."""
        lower = self.repaired(text, kind)
        flags = set()
        for flag, pattern in (("hostile", _HOSTILE), ("question", _QUESTION), ("condition", _CONDITION),
                              ("reported", _REPORTED)):  # fmt: skip
            if pattern.search(lower):
                flags.add(flag)
        if lower != clean(text).lower():
            flags.add("repaired")
        code = _CODE.search(lower)
        if code is not None and (code[1] or code[2]) in self._codes and not flags & _NO_INSTRUCTION:
            return RuleVerdict({self._codes[code[1] or code[2]]: 2.0}, code.start(), frozenset(flags), True)
        if self._only_names(lower):
            return RuleVerdict({NONE: 1.0}, 0, frozenset(flags))
        # Emphasis is overwritten by spaces of the same length, so that positions stay.
        lower = _EMPHASIS.sub(lambda match: " " * len(match[0]), lower)
        hits = _longest([hit for start, clause in clauses(lower) for hit in self._hits(start, clause, kind)])
        if not hits and (_NEGATION_ZH.search(lower) or _NEGATION_EN.search(lower)):
            flags.add("negation")  # something is denied and we do not know what: the encoder does not hear a "not"
        return self._weigh(lower, hits, flags)

    def _only_names(self, lower: str) -> bool:
        """Whether nothing but identifiers and numbers stands there, as when a label is scanned."""
        tokens = tokens_of(lower, self.intents.ids)
        return all(token.name or token.text.isdigit() or token.text in _LABEL_WORDS for token in tokens)

    def _hits(self, start: int, clause: str, kind: SourceKind) -> list[Hit]:
        tokens = tokens_of(clause, self.intents.ids)
        keywords = [*self._english, *self._chinese] if is_chinese(clause) else self._english
        if not any(ch.isascii() and ch.isalpha() for ch in clause):
            keywords = self._chinese
        found = [hit for keyword in keywords for hit in find(keyword, tokens, kind)]
        return [Hit(hit.intent, hit.start + start, hit.end + start, hit.exact) for hit in found]

    def _weigh(self, text: str, hits: list[Hit], flags: set[str]) -> RuleVerdict:
        positive: dict[str, float] = {}
        anchors: dict[str, int] = {}
        denied = False
        for hit in hits:
            intent, weight = hit.intent, 1.0 if hit.exact else 0.8
            if not hit.exact:
                flags.add("repaired")
            if _negated(text, hit):
                flags.add("negation")
                denied = True
                intent, weight = self.intents[intent].negated, 0.9 * weight
                if intent == NONE:
                    continue
            if weight > positive.get(intent, 0.0):
                positive[intent] = weight
                anchors.setdefault(intent, hit.start)
        moved = [intent for intent in positive if intent != NONE]
        if flags & _NO_INSTRUCTION:
            positive[NONE] = 2.0
        elif denied and not moved:
            positive[NONE] = 1.0
        if len(moved) > 1:
            flags.add("several")
            # People name what they want first and explain or restrict it afterwards.
            first = min(moved, key=lambda intent: anchors[intent])
            positive[first] += 0.3
        best = max(positive, key=lambda intent: positive[intent], default=NONE)
        return RuleVerdict(positive, anchors.get(best, 0), frozenset(flags))


def _longest(hits: list[Hit]) -> list[Hit]:
    """Hits in the order of the text, without those that lie inside or across a longer one."""
    kept: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start - hit.end, not hit.exact, hit.start)):
        if not any(hit.start < other.end and other.start < hit.end and hit.intent != other.intent for other in kept):
            kept.append(hit)
    return sorted(kept, key=lambda hit: hit.start)


def _negated(text: str, hit: Hit) -> bool:
    begin = max((start for start, _ in clauses(text) if start <= hit.start), default=0)
    before = text[begin : hit.start]
    if is_chinese(text[hit.start : hit.end]):
        return bool(_NEGATION_ZH.search(before[-_SCOPE_ZH:]))
    words = before.split()[-_SCOPE_EN:]
    return bool(_NEGATION_EN.search(" ".join(words)) or _NEGATION_ZH.search(before[-_SCOPE_ZH:]))
