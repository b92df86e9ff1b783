"""From a bundle on disk to something that is served: the one place of this room that knows the real engine."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from foveola.serve.service import Served


def load(bundle_path: Path, *, drain_s: float = 1.0) -> Served:
    """Open the bundle, start an engine on it, put the observer around it. Blocks; raises ``Damaged``."""
    # Imported here, in the thread that loads, so that the port answers before the runtime is there.
    from foveola.artifact import Bundle
    from foveola.engine.engine import Engine

    bundle = Bundle.open(bundle_path)
    engine = Engine.open(bundle)

    def close() -> None:
        engine.close(drain_s)

    created = int(datetime.fromisoformat(bundle.created).timestamp())
    return Served(bundle.name, bundle.model_hash, created, engine, lambda: engine.health().ailment, close)
