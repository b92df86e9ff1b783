"""The scripts of the top folder ``bench``, loaded as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load(stem: str) -> ModuleType:
    """``bench/<stem>.py`` as a module."""
    spec = importlib.util.spec_from_file_location(f"bench_{stem}", ROOT / "bench" / f"{stem}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the names in their annotations
    spec.loader.exec_module(module)
    return module
