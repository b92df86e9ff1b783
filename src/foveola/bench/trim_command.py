"""``foveola trim``: a smaller head for the tokens of one domain, proven on questions of it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from foveola.artifact import Bundle
from foveola.bench.local import request_of
from foveola.bench.sample import Item
from foveola.bench.work import folder_items, generated_items
from foveola.engine.features import Numbers, Selected, joined, place
from foveola.engine.options import EngineOptions
from foveola.engine.pictures import one_by_one
from foveola.engine.prepare import Preparation
from foveola.engine.runner import OrtRunner
from foveola.engine.trimmed import top_probability
from foveola.exchange import Invalid, Request, Sampling, Turn

if find_spec("onnx_ir") is None:
    raise ModuleNotFoundError("No module named 'onnx_ir'", name="onnx_ir")

from foveola.lower.trim import Answered, trim


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--bundle", metavar="DIR", type=Path, required=True, help="the bundle whose head is trimmed")
    add("--out", metavar="DIR", type=Path, required=True, help="where the trimmed bundle goes")
    add("--replace", action="store_true", help="replace a bundle that is there")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--questions", metavar="FILE", type=Path, help="questions of the domain, one per line")
    asked.add_argument("--pictures", metavar="DIR", type=Path, help="pictures of the domain, and questions about them")
    asked.add_argument("--generated", metavar="N", type=int, help="questions about generated parts")
    add("--max-tokens", metavar="N", type=int, default=64, help="tokens of an answer (default: 64)")
    add("--threads", metavar="N", type=int, help="default: all cores")
    add("--json", action="store_true", help="print JSON for programs instead of a line for people")


def run(arguments: argparse.Namespace) -> int:
    """Ask, trim, ask again, print. Raises a ``Refusal`` for whatever cannot be done, and where an answer changes."""
    bundle = Bundle.open(arguments.bundle)
    preparation = Preparation.open(bundle)
    requests = _requests(arguments)
    asking = Asking(requests, EngineOptions(slots=1) if arguments.threads is None else _threads(arguments.threads))
    words = {int(token) for request in requests for token in preparation(request).ids}
    ends = sorted(preparation.vocabulary.ends)
    _, told = trim(bundle, arguments.out, asking, sorted(words), ends, replace=arguments.replace)
    if arguments.json:
        json.dump(told, sys.stdout, indent=1)
        print()
    else:
        print(
            f"{told['kept']} of {told['vocabulary']} tokens kept; all {told['questions']} answers unchanged; the full "
            f"head is asked for {told['asked_full_head']:.1%} of the tokens"
        )
    return 0


class Asking:
    """Answers the same questions with one bundle after the other, greedily; see ``foveola.lower.trim.Ask``."""

    def __init__(self, requests: Sequence[Request], options: EngineOptions) -> None:
        """Nothing is opened yet."""
        self._requests = requests
        self._options = options

    def __call__(self, bundle: Bundle, kept: Numbers | None) -> list[Answered]:
        """One answer per question."""
        runner, preparation = OrtRunner(bundle, self._options), Preparation.open(bundle)
        return [_answer(runner, preparation, request, kept) for request in self._requests]


def _answer(runner: OrtRunner, preparation: Preparation, request: Request, kept: Numbers | None) -> Answered:
    prepared = preparation(request)
    seen: Selected | None = None
    if prepared.packed is not None:
        parts = prepared.parts or [image.tokens for image in prepared.images]
        seen = joined([runner.encode(picture.packed) for picture in one_by_one(prepared.packed)], parts)
    prompt = place(prepared.ids, prepared.positions, prepared.visual, seen)
    tokens: list[int] = []
    sure: list[float] = []
    logits = runner.prefill(0, prompt)[0][np.newaxis]
    room = min(request.sampling.max_tokens, runner.max_length - len(prompt.ids))
    while True:
        logits = runner.complete(logits, [False])
        if kept is not None:
            sure.append(float(top_probability(logits[:, kept])[0]))
        tokens.append(int(logits[0].argmax()))
        if tokens[-1] in preparation.vocabulary.ends or len(tokens) >= room:
            return Answered(tuple(tokens), np.array(sure, np.float32))
        at = len(tokens) - 1
        logits = runner.decode([tokens[-1]], [prepared.next_position + at], [len(prompt.ids) + at])


def _requests(arguments: argparse.Namespace) -> list[Request]:
    if arguments.questions is not None:
        lines = [line.strip() for line in arguments.questions.read_text(encoding="utf-8").splitlines()]
        sampling = Sampling(max_tokens=arguments.max_tokens)
        return [Request(f"{n}", (Turn("user", line, ()),), sampling) for n, line in enumerate(lines) if line]
    items: list[Item] = (
        folder_items(arguments.pictures) if arguments.pictures is not None else generated_items(arguments.generated)
    )
    return [request_of(item, arguments.max_tokens) for item in items]


def _threads(count: int) -> EngineOptions:
    try:
        return EngineOptions(threads=count, slots=1)
    except ValueError as error:
        raise Invalid(str(error), field="threads") from None
