"""The real server on the embedded model, with a camera that drifted: ``python -m tests.serve.console_server FOLDER``.

The frames that drift are made, since only a calibrated line has real ones; all else is what ``foveola serve`` has.
FOLDER takes the reference. A second argument, a file of keys, switches keys on.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from foveola.drift.observation import observe
from foveola.drift.options import DriftOptions
from foveola.drift.reference import calibrate
from foveola.drift.watch import DriftWatch
from foveola.exchange import Evidence
from foveola.guard.verdict import Verdict
from foveola.observe import Metrics, observed
from foveola.serve.drift import watching
from foveola.serve.embedded import embedded_bundle
from foveola.serve.keys import NO_KEYS, read_keys
from foveola.serve.listen import listen
from foveola.serve.load import load
from foveola.serve.log import configure
from foveola.serve.options import ServeOptions
from foveola.serve.run import serve
from foveola.serve.service import Served
from foveola.serve.watchers import VerdictLog

SURFACE = Path(__file__).parents[2] / "examples" / "surface.png"
Y, X = np.mgrid[0:6, 0:6]
LOOKED, LOOKS = 1.5, 4.0  # the row and column of most attention, before and after somebody touched the lens


def evidence(rng: np.random.Generator, at: float) -> Evidence:
    """A map of attention around one place, with features that say nothing."""
    y, x = rng.normal(at, 0.5, 2)
    weights = np.exp(-((Y - y) ** 2 + (X - x) ** 2) / 3) + 0.01
    weights /= weights.sum()
    texture = tuple((np.array([0.1, 0.4, 2.4]) + rng.normal(0, 0.05, 3)).tolist())
    return Evidence((6, 6), tuple(weights.ravel().tolist()), 1.0, tuple(rng.standard_normal(6).tolist()), texture)


def planted(folder: Path) -> DriftWatch:
    """A watch with one camera that drifted and one that did not."""
    rng = np.random.default_rng(0)
    reference = folder / "line.npz"
    calibrate([observe("line", "scratch", evidence(rng, LOOKED)) for _ in range(200)]).save(reference)
    watch = DriftWatch(DriftOptions(reference))
    for n in range(60):
        watch.frame(f"left-{n}", "camera-left", "scratch", evidence(rng, LOOKS), SURFACE.read_bytes())
        watch.frame(f"right-{n}", "camera-right", "scratch", evidence(rng, LOOKED))
    return watch


def main() -> int:
    """Serve until a signal comes."""
    folder = Path(sys.argv[1])
    ring = read_keys(Path(sys.argv[2])) if len(sys.argv) > 2 else NO_KEYS

    def load_planted() -> Served:
        log = VerdictLog()
        log(Verdict("words", "masked", "left-3", "/v1/vlm/invoke", {"hits": 2}))
        served, watch = load(embedded_bundle()), planted(folder)
        answer = observed(served.answer, watching(watch, Metrics(model_hash=served.model_hash)))
        return replace(served, answer=answer, drift=watch, verdicts=log)

    configure()
    with listen("127.0.0.1", 0) as listening:
        return serve(ServeOptions(), load_planted, listening, ring)


if __name__ == "__main__":
    raise SystemExit(main())
