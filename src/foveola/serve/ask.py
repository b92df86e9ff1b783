"""``foveola ask IMAGE "question"``: one answer in the terminal, without a server."""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from pathlib import Path

from rich.console import Console

from foveola.exchange import BadImage, Piece, Request, Unavailable
from foveola.serve.embedded import embedded_bundle
from foveola.serve.wire import Question, reply_of, request_of


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
    bundle_path = arguments.bundle or embedded_bundle()
    _answer(request, bundle_path, as_json=arguments.json)
    return 0


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadImage(f"{name} cannot be read ({error.strerror}); name a picture's file.", field="image") from None


def _answer(request: Request, bundle_path: Path, *, as_json: bool) -> None:
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
                texts.append(last.text)
                if not as_json:
                    status.stop()
                    print(last.text, end="", flush=True)
        finally:
            engine.close(0.0)
    if last is None or last.usage is None:
        raise Unavailable("The engine stopped in the middle of the answer; ask again.")
    if not as_json:
        print()
        return
    model = {"model": bundle.name, "model_hash": bundle.model_hash}
    latency_s = time.perf_counter() - began
    reply = reply_of(request.id, "".join(texts), last, last.usage, latency_s=latency_s, model=model)
    print(json.dumps(reply, ensure_ascii=False, indent=2))
