"""A file in use that may be replaced: the new one is loaded beside the old one, which serves until it is ready."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from foveola.exchange import Damaged

log = logging.getLogger(__name__)


class Versioned(Protocol):
    """What can be reloaded: it says which version it is."""

    @property
    def version(self) -> str | int:
        """Told in the log when it changes."""


T = TypeVar("T", bound=Versioned)
_Stamp = tuple[int, int, int]


class ReloadedFile(Generic[T]):
    """What ``load`` makes of ``path``, always the newest. A new file that is damaged changes nothing but the log."""

    def __init__(
        self, path: Path, load: Callable[[Path], T], *, start: Callable[[threading.Thread], None] | None = None
    ) -> None:
        """Load it now; raises ``Damaged``. ``start`` is how a reload's thread is set going."""
        self._path = path
        self._load = load
        self._start = start or threading.Thread.start
        self._stamp = self._look()
        self._loaded = load(path)
        self._loading = threading.Lock()

    def current(self) -> T:
        """The newest that is loaded; a glance at the file (a few microseconds) sets a reload going."""
        stamp = self._look()
        if stamp != self._stamp and stamp is not None and self._loading.acquire(blocking=False):
            self._stamp = stamp
            self._start(threading.Thread(target=self._reload, name="foveola-reload", daemon=True))
        return self._loaded

    def _look(self) -> _Stamp | None:
        try:
            found = os.stat(self._path)
        except OSError:  # between two versions, or gone: what is loaded stays in force
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)

    def _reload(self) -> None:
        try:
            self._loaded = self._load(self._path)
            log.warning("%s is now version %s", self._path.name, self._loaded.version)
        except Damaged as error:
            log.error("%s stays at version %s: %s", self._path.name, self._loaded.version, error.message)
        finally:
            self._loading.release()
