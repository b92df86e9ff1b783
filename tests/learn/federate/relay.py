"""A relay that keeps every byte that passes through it: who listens on the wire sees what it sees."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class Relay:
    """Listens on a free port of loopback and passes on to ``target``; ``seen`` is all that went either way."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._seen = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()

    @property
    def seen(self) -> bytes:
        with self._lock:
            return bytes(self._seen)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                if self._listening.fileno() < 0:
                    return
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                with self._lock:
                    self._seen += data
                sink.sendall(data)
        for one in (source, sink):
            one.close()
