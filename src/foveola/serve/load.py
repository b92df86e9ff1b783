"""From a bundle on disk to something that is served: the one place of this room that knows the real engine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from foveola.serve.service import Served

if TYPE_CHECKING:
    from foveola.engine.engine import Engine


CLOSE_S = 1.0  # the server has drained before it closes the engine: nobody is waiting any more


def load(bundle_path: Path, *, region: str = "") -> Served:
    """Open the bundle, start an engine on it, put the observer around it. Blocks; raises ``Damaged``."""
    # Imported here, in the thread that loads, so that the port answers before the runtime is there.
    from foveola.artifact import Bundle
    from foveola.engine.engine import Engine
    from foveola.observe import Metrics, observed

    bundle = Bundle.open(bundle_path)
    engine = Engine.open(bundle)
    metrics = Metrics(model_hash=bundle.model_hash, region=region)
    metrics.watch_queue(lambda: engine.health().queued, lambda: engine.health().active)
    return Served(
        bundle.name,
        bundle.model_hash,
        int(datetime.fromisoformat(bundle.created).timestamp()),
        observed(engine, metrics),
        ailment=lambda: engine.health().ailment,
        close=lambda: _close(engine),
        metrics=metrics.render,
    )


def _close(engine: Engine) -> None:
    engine.close(CLOSE_S)
