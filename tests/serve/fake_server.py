"""A real server process whose model is a fake: ``python -m tests.serve.fake_server GO_FILE [serve's settings]``.

A question that begins with "wait" gets its first piece at once and the rest when GO_FILE exists; "fail" fails.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from foveola.exchange import Damaged, Piece, Request
from foveola.observe import observed
from foveola.observe.accuracy import Accuracy
from foveola.serve.listen import listen
from foveola.serve.log import configure
from foveola.serve.options import ServeOptions
from foveola.serve.run import serve
from foveola.serve.service import Served
from tests.serve.fake import MODEL_HASH, PIECES


def main() -> int:
    go = Path(sys.argv[1])
    settings = dict(word.split("=") for word in sys.argv[2:])
    damaged = settings.pop("damaged", "") == "yes"
    options = ServeOptions(**{name: float(value) for name, value in settings.items()})

    async def answer(request: Request) -> AsyncIterator[Piece]:
        text = request.turns[-1].text
        if text.startswith("fail"):
            raise RuntimeError("this is the trace")
        yield PIECES[0]
        while text.startswith("wait") and not go.exists():  # noqa: ASYNC240 - a glance
            await asyncio.sleep(0.01)
        for piece in PIECES[1:]:
            yield piece

    def load() -> Served:
        if damaged:
            raise Damaged("vision.onnx is truncated: copy the bundle again.")
        accuracy = Accuracy()
        return Served("fake", MODEL_HASH, 0, observed(answer, accuracy), accuracy=accuracy)

    configure()
    with listen("127.0.0.1", 0) as listening:
        return serve(options, load, listening)


if __name__ == "__main__":
    raise SystemExit(main())
