"""One random checkpoint and its bundles for the whole room: exporting is the slow part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foveola.artifact import Bundle
from foveola.lower.options import CompileOptions


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    from tests.checkpoints import random_checkpoint

    return random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "random")


@pytest.fixture(scope="session")
def compiled(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """Precision -> the bundle, compiled once."""
    from foveola.lower.compile import compile_checkpoint

    made: dict[str, Bundle] = {}

    def bundle(precision: str) -> Bundle:
        if precision not in made:
            out = tmp_path_factory.mktemp("bundle") / precision
            made[precision] = compile_checkpoint(checkpoint, out, CompileOptions.of_precision(precision))
        return made[precision]

    return bundle


@pytest.fixture
def model() -> Any:
    """A fresh random model that a test may change."""
    pytest.importorskip("torch")
    from tests.checkpoints import random_model

    return random_model()
