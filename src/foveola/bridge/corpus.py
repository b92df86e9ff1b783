"""Labelled instructions: the file ``corpus.txt``, and in the same form what reviewers decided."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foveola.bridge.payload import SourceKind
from foveola.exchange import Invalid

_HERE = Path(__file__).parent
BUILT_IN = _HERE / "corpus.txt"
FITTED = (BUILT_IN, *(_HERE / f"corpus_{name}.txt" for name in ("fresh", "develop", "more")))
"""What the calibration that ships is fitted to, each file by another day; the first is the corpus proper."""
UNSEEN = _HERE / "corpus_unseen.txt"
"""Nothing is ever fitted to these: the figure to believe."""
KINDS: dict[str, SourceKind] = {"v": "voice", "o": "ocr", "s": "scanner", "a": "agv"}
CONTEXT_LOT = "CTX"


@dataclass(frozen=True, slots=True)
class Labelled:
    """One line: the text, what it means, from what kind of source; ``lot`` is None where none matters."""

    text: str
    intent: str
    language: str
    kind: SourceKind
    tags: tuple[str, ...]
    lot: str | None


def load_corpus(path: Path = BUILT_IN) -> tuple[Labelled, ...]:
    """Read a corpus. Raises ``Invalid`` that names the line."""
    found: list[Labelled] = []
    intent = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            intent = line[1:-1]
            continue
        head, bar, text = line.partition(" | ")
        words = head.split()
        if not bar or len(words) < 3 or words[1] not in KINDS or not intent:
            raise Invalid(f"Line {number} of {path.name} must be 'language kind tags | text' below an [INTENT].")
        text, _, lot = text.partition(" => ")
        found.append(Labelled(text, intent, words[0], KINDS[words[1]], tuple(words[2:]), lot or None))
    return tuple(found)


def write_corpus(items: tuple[Labelled, ...]) -> str:
    """The text of a corpus, grouped by intent, that ``load_corpus`` reads back."""
    letters = {kind: letter for letter, kind in KINDS.items()}
    lines: list[str] = []
    for intent in dict.fromkeys(item.intent for item in items):
        lines.append(f"[{intent}]")
        for item in items:
            if item.intent == intent:
                lot = f" => {item.lot}" if item.lot else ""
                text = " ".join(item.text.split()).replace(" => ", " = ")
                lines.append(f"{item.language} {letters[item.kind]} {' '.join(item.tags) or 'plain'} | {text}{lot}")
    return "\n".join(lines) + "\n"
