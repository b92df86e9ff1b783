"""``foveola confidence``: learn what a model's log-probabilities mean, from questions whose answers are known.

The file has one JSON object per line: ``{"image": "part.png", "text": "Which defect?", "answer": "scratch"}``; pictures
lie beside it. Use pictures that the model was not trained on, of the kind that it will see.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import track

from foveola.exchange import Invalid, Request, Sampling, Turn
from foveola.serve.embedded import embedded_bundle

if TYPE_CHECKING:
    from foveola.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class Known:
    """A question whose answer is known."""

    image: bytes | None
    text: str
    answer: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("questions", metavar="FILE", type=Path, help="JSON lines with image, text and answer")
    parser.add_argument("--bundle", metavar="DIR", type=Path, help="the small model (default: the embedded one)")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="write the confidence there")
    parser.add_argument("--risk", metavar="P", type=float, default=0.02, help="share of wrong answers that is taken")
    parser.add_argument("--delta", metavar="P", type=float, default=0.1, help="probability that it is more after all")
    parser.add_argument("--max-tokens", metavar="N", type=int, default=32, help="of an answer (default: 32)")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Ask, learn, write, and return 0. Raises ``Invalid`` for a file that is none, ``Damaged`` for a bundle."""
    from foveola.artifact import Bundle
    from foveola.engine.dual_confidence import area_under_risk, fit, risk_curve
    from foveola.engine.engine import Engine

    known = read_questions(arguments.questions)
    bundle = Bundle.open(arguments.bundle or embedded_bundle())
    engine = Engine.open(bundle)
    try:
        console = Console(stderr=True)
        asked = track(known, "asking", console=console, transient=True, disable=not console.is_terminal)
        judged = [score_of(engine, one, arguments.max_tokens) for one in asked]
    finally:
        engine.close(0.0)
    scores, right = [score for score, _ in judged], [ok for _, ok in judged]
    try:
        confidence = fit(scores, right, model_hash=bundle.model_hash, target_risk=arguments.risk, delta=arguments.delta)
    except ValueError as error:
        raise Invalid(f"{arguments.questions.name} cannot be learnt from: {error}.") from None
    arguments.out.write_text(json.dumps(confidence.to_json(), indent=1) + "\n", encoding="utf-8")
    told = [confidence(score) for score in scores]
    taken = sum(one >= confidence.threshold for one in told) / len(told)
    figures: dict[str, Any] = {
        "questions": len(known),
        "accuracy": round(sum(right) / len(right), 4),
        "threshold": round(confidence.threshold, 4),
        "taken": round(taken, 4),
        "area_under_risk": round(area_under_risk(risk_curve(told, right)), 5),
    }
    print(json.dumps(figures) if arguments.json else words_of(figures, arguments.risk))
    return 0


def words_of(figures: dict[str, Any], risk: float) -> str:
    """The figures for a person."""
    head = f"{figures['questions']} questions, {figures['accuracy']:.1%} answered rightly"
    if figures["threshold"] > 1:
        return f"{head}; no threshold keeps the risk at {risk:.1%}: the large engine will be asked every time."
    return (
        f"{head}; at {figures['threshold']:.3f} and above, {figures['taken']:.1%} of them, the risk stays "
        f"below {risk:.1%}."
    )


def score_of(engine: Engine, known: Known, max_tokens: int) -> tuple[float, bool]:
    """The log-probability of the whole answer, and whether it is the right one (case and blanks aside)."""
    turn = Turn("user", known.text, () if known.image is None else (known.image,))
    pieces = list(engine.pieces(Request("confidence", (turn,), Sampling(max_tokens=max_tokens))))
    text = "".join(piece.text for piece in pieces)
    right = " ".join(text.split()).lower() == " ".join(known.answer.split()).lower()
    return sum(piece.logprob for piece in pieces), right


def read_questions(path: Path) -> list[Known]:
    """The questions of a file. Raises ``Invalid`` naming the line that is wrong."""
    return list(_read(path))


def _read(path: Path) -> Iterator[Known]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise Invalid(f"{path.name} cannot be read; name a file of JSON lines.", field="questions") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
            image = one.get("image")
            data = None if image is None else (path.parent / str(image)).read_bytes()
            yield Known(data, str(one["text"]), str(one["answer"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise Invalid(
                f'Line {number} of {path.name} is no question; expected {{"image": "part.png", "text": "...", '
                '"answer": "..."} and the picture beside the file.',
                field="questions",
            ) from None
