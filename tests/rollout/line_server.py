"""A real server whose model is played: ``python -m tests.rollout.line_server VERSION good|bad``.

The bad one fails every third question, and its attention wanders instead of resting on the object. Its metrics are the
server's own, with the similarity of neighbouring attention maps and the accuracy that a line's inspection would add.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import AsyncIterator

import numpy as np

from foveola.exchange import Evidence, Piece, Request, Unavailable, Usage
from foveola.observe import Metrics, observed
from foveola.serve.listen import listen
from foveola.serve.log import configure
from foveola.serve.options import ServeOptions
from foveola.serve.run import serve
from foveola.serve.service import Served

GRID = (8, 8)


def main() -> int:
    version, good = sys.argv[1], sys.argv[2] == "good"
    model_hash = (version * 64)[:64]
    draw = random.Random(7)
    metrics = Metrics(model_hash=model_hash)
    cosines: deque[float] = deque(maxlen=5)
    last: list[np.ndarray] = []
    asked = 0

    def attention() -> tuple[float, ...]:
        y, x = np.mgrid[0:8, 0:8]
        at_x, at_y = (3.5, 3.5) if good else (draw.uniform(0, 7), draw.uniform(0, 7))
        map_ = np.exp(-((x - at_x) ** 2 + (y - at_y) ** 2) / 4) + draw.uniform(0, 0.02)
        flat = (map_ / map_.sum()).ravel()
        if last:
            cosines.append(float(flat @ last[0] / np.linalg.norm(flat) / np.linalg.norm(last[0])))
        last[:] = [flat]
        return tuple(map(float, flat))

    async def answer(_: Request) -> AsyncIterator[Piece]:
        nonlocal asked
        asked += 1
        if not good and asked % 3 == 0:
            raise Unavailable("The vision tower gave no features; ask another server.")
        evidence = Evidence(GRID, attention(), 0.7)
        yield Piece("scratch" if good or draw.random() < 0.5 else "dog", 1)
        yield Piece("", 0, finish="stop", usage=Usage(20, 64, 1, evidence=(evidence,)))

    def text() -> bytes:
        similarity = sum(cosines) / len(cosines) if cosines else 1.0
        more = f"ocr_accuracy_rate {0.97 if good else 0.71}\nfoveola_drift_rule_mean {similarity:.4f}\n"
        own = ("ocr_accuracy_rate", "foveola_drift_rule_mean")  # not what the server says of them: nobody labelled here
        kept = [
            row for row in metrics.render().decode().splitlines() if not row.removeprefix("# TYPE ").startswith(own)
        ]
        return ("\n".join(kept) + "\n" + more).encode()

    configure()
    with listen("127.0.0.1", 0) as listening:
        served = Served(version, model_hash, 0, observed(answer, metrics), metrics=text)
        return serve(ServeOptions(), lambda: served, listening)


if __name__ == "__main__":
    raise SystemExit(main())
