"""Starts the child that decodes under a limit on memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import foveola

ROOM_MB = 560
"""What ``Limits`` promises for one picture (500 MB) and a little for the allocator."""


def decode_apart(paths: Iterable[Path], room_mb: int = ROOM_MB) -> list[dict[str, Any]]:
    """Decode ``paths`` in one process of their own; fails the test when it crashes, hangs or loses a file."""
    names = [str(path) for path in paths]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("decoding_child.py")), str(room_mb)],
        input="\n".join(names) + "\n",
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(foveola.__file__).parents[1]),
            "OPENBLAS_NUM_THREADS": "1",  # each thread reserves address space
            "MALLOC_ARENA_MAX": "1",
        },
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    last = names[len(results)] if len(results) < len(names) else "none"
    assert done.returncode == 0, f"the process ended with {done.returncode} at {last}: {done.stderr[-500:]}"
    assert len(results) == len(names)
    return results
