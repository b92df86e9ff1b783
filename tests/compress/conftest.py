"""One random checkpoint for the whole room."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from tests.checkpoints import random_checkpoint

    return random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "random")
