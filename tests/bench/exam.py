"""Questions of the examination that nobody has to draw."""

from __future__ import annotations

from typing import Any

from foveola.tiny.exam import Question


def question(kind: str, *, index: int = 0, **given: Any) -> Question:
    """A question of ``kind`` with plain defaults."""
    fields: dict[str, Any] = {
        "task": "defect",
        "label": "scratches",
        "lang": "en",
        "wording": "train",
        "image": b"",
        "text": f"What defect is this? ({index})",
        "expected": "scratches",
    }
    return Question(kind=kind, **{**fields, **given})
