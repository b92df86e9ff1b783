"""``foveola label``: tell a server which of its answers were right, so that its accuracy is one.

A file of samples has one JSON object or one CSV row per sample. Either ``id`` of a reply with ``right`` or
``expected``, or an ``image`` with ``expected`` and perhaps a ``question``: then the server is asked first.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from foveola.exchange import NO_CAMERA, Invalid
from foveola.serve.client import add_server_arguments, ask_server, key_in

QUESTION = "What defect is on this surface?"
LIKELY = 1.96  # standard deviations to each side: 95 %
WORDS = {"true": True, "1": True, "yes": True, "right": True, "false": False, "0": False, "no": False, "wrong": False}
JSON = {"content-type": "application/json"}
NOT_WATCHED = {"x-camera": NO_CAMERA}  # drift must not take labelled samples for what a camera sees


@dataclass(frozen=True, slots=True)
class Sample:
    """One label: of the answer ``id``, or of what the server says about ``image``."""

    id: str = ""
    image: Path | None = None
    question: str = QUESTION
    right: bool | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class Labelled:
    """What came of it: ``right`` of ``sent`` labels, between ``low`` and ``high`` in 95 of 100 such samples; and the
    server's ``accuracy`` with them, over ``samples``."""

    sent: int
    right: int
    low: float
    high: float
    accuracy: float
    samples: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("samples", metavar="FILE", type=Path, nargs="?", help="samples as .jsonl or .csv")
    parser.add_argument("--id", default="", help="label one answer: the `id` of its reply")
    verdict = parser.add_mutually_exclusive_group()
    verdict.add_argument("--right", dest="right", action="store_const", const=True, help="that answer was right")
    verdict.add_argument("--wrong", dest="right", action="store_const", const=False, help="that answer was wrong")
    verdict.add_argument("--expected", metavar="TEXT", help="what that answer should have been")
    add_server_arguments(parser, "an API")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Send the labels and print the accuracy; returns 0. Raises ``Invalid`` before anything is sent, or ``Refused``."""
    samples = _samples(arguments)
    key = key_in(arguments.key_file)
    right, told = 0, {"accuracy": float("nan"), "samples": 0}
    for sample in track(samples, "labelling", console=Console(stderr=True), transient=True, disable=len(samples) == 1):
        told = _label(arguments.url, key, sample)
        right += bool(told["right"])
    low, high = interval(right, len(samples))
    found = Labelled(len(samples), right, low, high, float(told["accuracy"]), int(told["samples"]))
    if arguments.json:
        print(json.dumps(asdict(found)))
    else:
        print(
            f"{found.right} of {found.sent} right ({found.low:.1%} to {found.high:.1%} in 95 of 100 such samples). "
            f"The server's accuracy is {found.accuracy:.1%} of {found.samples} labelled answers."
        )
    return 0


def interval(right: int, of: int) -> tuple[float, float]:
    """Wilson's interval (1927) of a share, 95 %: what ``right`` of ``of`` says about the answers to come."""
    share, spread = right / of, LIKELY**2 / of
    middle, half = share + spread / 2, LIKELY * (share * (1 - share) / of + spread / (4 * of)) ** 0.5
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def _label(url: str, key: str, sample: Sample) -> dict[str, Any]:
    id_ = sample.id
    if sample.image is not None:
        image = base64.b64encode(sample.image.read_bytes()).decode()
        question = json.dumps({"image": image, "prompt": {"text": sample.question}}).encode()
        id_ = str(ask_server(url, "POST", "/v1/vlm/invoke", key, question, JSON | NOT_WATCHED)["id"])
    verdict = {"right": sample.right} if sample.right is not None else {"expected": sample.expected}
    return ask_server(url, "POST", "/v1/feedback", key, json.dumps({"id": id_, **verdict}).encode(), JSON)


def _samples(arguments: argparse.Namespace) -> list[Sample]:
    one = bool(arguments.id)
    if one == (arguments.samples is not None):
        raise Invalid("Name either a file of samples, or one answer with --id and --right, --wrong or --expected.")
    if one:
        return [_sample({"id": arguments.id, "right": arguments.right, "expected": arguments.expected}, "--id")]
    file: Path = arguments.samples
    found = [_sample(row, f"{file.name}, sample {n}", file.parent) for n, row in enumerate(_rows(file), 1)]
    if not found:
        raise Invalid(f"{file.name} holds no samples; write one JSON object per line, or a CSV with a line of names.")
    return found


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise Invalid(f"{file.name} cannot be read as text in UTF-8; name a .jsonl or .csv file.") from None
    if file.suffix.lower() == ".csv":
        yield from csv.DictReader(text.splitlines())
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise Invalid(f"{file.name}, line {number}: expected a JSON object with `id` or `image`, and a label.")
            yield row


def _sample(row: Mapping[str, Any], where: str, folder: Path = Path()) -> Sample:
    """One row as a sample; pictures lie beside the file. Raises ``Invalid`` that says ``where``."""
    given = {name: value for name, value in row.items() if value not in (None, "")}
    unknown = sorted(set(given) - {"id", "image", "question", "right", "expected"})
    if unknown:
        raise Invalid(f"{where}: `{unknown[0]}` is not known; expected id, image, question, right, expected.")
    if ("id" in given) == ("image" in given):
        raise Invalid(f"{where}: expected either the `id` of a reply or an `image`.")
    if ("right" in given) == ("expected" in given):
        raise Invalid(f"{where}: expected either `right` (true or false) or `expected` (the right answer).")
    right = given.get("right")
    if right is not None and str(right).lower() not in WORDS:
        raise Invalid(f"{where}: `right` is {str(right)[:40]!r}; expected true or false.")
    image = folder / str(given["image"]) if "image" in given else None
    if image is not None and not image.is_file():
        raise Invalid(f"{where}: there is no picture {image.name}; name it as it lies beside the file of samples.")
    return Sample(
        str(given.get("id", "")),
        image,
        str(given.get("question", QUESTION)),
        None if right is None else WORDS[str(right).lower()],
        str(given["expected"]) if "expected" in given else None,
    )
