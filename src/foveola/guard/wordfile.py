"""A compiled list of words that may be replaced while it is in use."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from foveola.exchange import Damaged
from foveola.guard.words import Words, load_words

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


class WordFile:
    """The list in ``path``. A new file in its place is loaded beside the old one, which serves until it is ready.

    A stream keeps the list it began with. A new file that is damaged changes nothing and is told in the log.
    """

    def __init__(self, path: Path, *, start: Callable[[threading.Thread], None] = threading.Thread.start) -> None:
        """Load the list; raises ``Damaged``. ``start`` is how a reload's thread is set going."""
        self._path = path
        self._start = start
        self._stamp = self._look()
        self._words = load_words(path)
        self._loading = threading.Lock()

    def current(self) -> Words:
        """The newest list that is loaded; a glance at the file (a few microseconds) sets a reload going."""
        stamp = self._look()
        if stamp != self._stamp and stamp is not None and self._loading.acquire(blocking=False):
            self._stamp = stamp
            self._start(threading.Thread(target=self._reload, name="foveola-words", daemon=True))
        return self._words

    def _look(self) -> _Stamp | None:
        try:
            found = os.stat(self._path)
        except OSError:  # between two versions, or gone: the loaded list stays in force
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _reload(self) -> None:
        try:
            self._words = load_words(self._path)
            log.warning("the list of words %s is now version %s", self._path.name, self._words.version)
        except Damaged as error:
            log.error("the list of words stays at version %s: %s", self._words.version, error.message)
        finally:
            self._loading.release()
