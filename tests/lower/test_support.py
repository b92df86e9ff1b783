"""The table of what is supported says what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from foveola.family import supported

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date_and_names_every_family() -> None:
    checked = subprocess.run(
        [sys.executable, "bench/support.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    text = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert all(text.count(f"| `{name}` |") == 2 for name in supported())
