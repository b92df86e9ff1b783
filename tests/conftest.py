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
