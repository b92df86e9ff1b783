"""Parts of a long measurement that are kept on disk, so that an interrupted one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is at ``path`` (JSON), or else what is made and left there, whole or not at all."""
    if path.is_file():
        return dict(json.loads(path.read_text(encoding="utf-8")))
    found = make()
    staged = path.with_suffix(".partial")
    staged.write_text(json.dumps(found), encoding="utf-8")
    staged.replace(path)
    return found
