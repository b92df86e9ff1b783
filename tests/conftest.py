"""Fixtures that every room's tests may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the project's data, next to the repository (``FOVEOLA_SHARED`` overrides); skips without it."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("FOVEOLA_SHARED", root.parent / "shared")).resolve()
    if not (folder / "data").is_dir():
        pytest.skip("the project's shared data folder is not next to the repository (set FOVEOLA_SHARED)")
    return folder


@pytest.fixture(scope="session")
def random_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled bundle of a small random Qwen2-VL, whose pictures are scaled to at most 112 x 112 pixels.

    Needs the workshop; made once per session.
    """
    pytest.importorskip("torch", reason="the workshop is not installed")
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions
    from tests.checkpoints import random_checkpoint

    folder = tmp_path_factory.mktemp("random")
    random_checkpoint(folder / "checkpoint")
    options = CompileOptions(image_px=(112, 112), max_length=1024)
    return compile_checkpoint(folder / "checkpoint", folder / "bundle", options, name="random").path


@pytest.fixture(scope="session")
def selecting_bundle(random_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of ``random_bundle`` with a place of selection behind the first block of its vision tower."""
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions

    options = CompileOptions(image_px=(112, 112), max_length=1024, select_after=1)
    out = tmp_path_factory.mktemp("selecting") / "bundle"
    return compile_checkpoint(random_bundle.parent / "checkpoint", out, options, name="selecting").path
