"""Patterns over the names of modules. One that matches nothing is a mistake of whoever wrote it, and is told."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from foveola.exchange import Invalid


def matched(pattern: str, paths: Sequence[str], *, field: str = "patterns") -> list[str]:
    """The ``paths`` that the shell wildcard ``pattern`` matches, in their order. Raises ``Invalid`` for none."""
    found = [path for path in paths if fnmatchcase(path, pattern)]
    if not found:
        raise Invalid(
            f"the pattern {pattern!r} matches no module; modules have names like "
            f"{', '.join(paths[:: max(1, len(paths) // 4)][:4])}. Correct the pattern or leave it out.",
            field=field,
        )
    return found


def matched_any(patterns: Sequence[str], paths: Sequence[str], *, field: str = "patterns") -> list[str]:
    """The ``paths`` that at least one of ``patterns`` matches, in their order. Raises as ``matched``, per pattern."""
    found = {path for pattern in patterns for path in matched(pattern, paths, field=field)}
    return [path for path in paths if path in found]
