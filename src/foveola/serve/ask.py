"""``foveola ask IMAGE "question"``: one answer in the terminal, without a server.

Of the guards only the word filter holds here: who has the terminal has the picture and the model anyway.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from foveola.exchange import BadImage, Piece, Request, Unavailable
from foveola.guard.options import GuardOptions
from foveola.options import resolve
from foveola.serve.embedded import embedded_bundle
from foveola.serve.wire import Question, reply_of, request_of

if TYPE_CHECKING:
    from foveola.guard.wordfilter import WordStream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("image", metavar="IMAGE", help="the picture's file, or - to read it from standard input")
    parser.add_argument("question", help="what to ask about it")
    parser.add_argument("--bundle", metavar="DIR", type=Path, help="the bundle to ask (default: the embedded model)")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="at most so many tokens of answer")
    parser.add_argument("--visual-tokens", metavar="K", type=int, help="how many visual tokens the decoder reads")
    parser.add_argument("--json", action="store_true", help="print the whole reply, as the server would send it")


def run(arguments: argparse.Namespace) -> int:
    """Answer and return 0. Raises refusals: a picture that is none, a bundle that is damaged, a field out of range."""
    prompt = {
        "text": arguments.question,
        "max_tokens": arguments.max_tokens,
        "visual_tokens": arguments.visual_tokens,
    }
    request = request_of(Question(prompt, _read(arguments.image)), uuid.uuid4().hex)
    words = _word_filter()
    _answer(request, arguments.bundle or embedded_bundle(), words, as_json=arguments.json)
    return 0


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadImage(f"{name} cannot be read ({error.strerror}); name a picture's file.", field="image") from None


def _word_filter() -> WordStream | None:
    """What ``[guard]`` says about words, as for the server; None where nothing is filtered. Raises ``Damaged``."""
    options = resolve(GuardOptions, "guard", environ=os.environ)
    if options.words is None:
        return None
    from foveola.guard.guards import Guards  # not imported by those who have no list

    return Guards.open(GuardOptions(words=options.words, words_action=options.words_action)).stream()


def _answer(request: Request, bundle_path: Path, words: WordStream | None, *, as_json: bool) -> None:
    console = Console(stderr=True)  # shows nothing where it is no terminal
    texts: list[str] = []
    last: Piece | None = None
    with console.status("Loading the model…") as status:
        from foveola.artifact import Bundle
        from foveola.engine.engine import Engine

        bundle = Bundle.open(bundle_path)
        engine = Engine.open(bundle)
        began = time.perf_counter()
        status.update("Looking at the picture…")
        try:
            for last in engine.pieces(request):
                texts.append(_passed(words, last))
                if not as_json:
                    status.stop()
                    print(texts[-1], end="", flush=True)
        finally:
            engine.close(0.0)
    if last is None or last.usage is None:
        raise Unavailable("The engine stopped in the middle of the answer; ask again.")
    if not as_json:
        print()
        return
    model = {"model": bundle.name, "model_hash": bundle.model_hash}
    latency_s = time.perf_counter() - began
    usage, stopped = last.usage, words is not None and words.stopped
    last = replace(last, finish="content_filter") if stopped else last
    reply = reply_of(request.id, "".join(texts), last, usage, latency_s=latency_s, model=model)
    print(json.dumps(reply, ensure_ascii=False, indent=2))


def _passed(words: WordStream | None, piece: Piece) -> str:
    """What may be shown of ``piece`` and of what was held back before it."""
    if words is None:
        return piece.text
    return words.feed(piece.text) + (words.end() if piece.finish is not None else "")
