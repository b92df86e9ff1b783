"""Structured logs: one JSON object per line on stderr, one line per request, never a user's text."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_LOGGER = logging.getLogger("foveola.serve")
_PLAIN = ("ts", "level", "event")


Scrub = Callable[[str], str]


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: ``ts``, ``level``, ``event`` and the event's fields.

    ``scrub`` is applied to every text of a line but its time, level and event's name.
    """

    def __init__(self, scrub: Scrub | None = None) -> None:
        super().__init__()
        self.scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        """One line, without the line break."""
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        line |= (
            fields if fields is not None else {"event": "log", "logger": record.name, "message": record.getMessage()}
        )
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        if self.scrub is not None:
            line |= {name: _scrubbed(value, self.scrub) for name, value in line.items() if name not in _PLAIN}
        return json.dumps(line, ensure_ascii=False, default=str)


def _scrubbed(value: Any, scrub: Scrub) -> Any:
    if isinstance(value, dict):
        return {name: _scrubbed(one, scrub) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(one, scrub) for one in value]
    return value if value is None or isinstance(value, bool | int | float) else scrub(str(value))


class _Repeats(logging.Filter):
    """Lets the same line through once in ``every_s``: asyncio tells of every connection that it cannot accept."""

    def __init__(self, every_s: float = 10.0) -> None:
        super().__init__()
        self._every_s = every_s
        self._last = ("", -every_s)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is told."""
        message = record.getMessage()
        if message == self._last[0] and record.created - self._last[1] < self._every_s:
            return False
        self._last = (message, record.created)
        return True


def configure(level: int = logging.INFO) -> None:
    """Send every log of the process to stderr as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("asyncio").filters[:] = [_Repeats()]
    _LOGGER.setLevel(level)


def scrub_with(scrub: Scrub) -> None:
    """From now on, no line leaves without having passed ``scrub``."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            handler.formatter.scrub = scrub


def event(level: int, name: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields; ``error`` adds its traceback."""
    _LOGGER.log(level, name, exc_info=error, extra={"fields": {"event": name, **fields}})
