"""The process: the model is loaded in the background, and SIGTERM is a clean end."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from foveola.exchange import Refusal
from foveola.serve import log
from foveola.serve.app import create_app
from foveola.serve.keys import NO_KEYS, KeyRing
from foveola.serve.options import ServeOptions
from foveola.serve.protocol import PatientProtocol
from foveola.serve.service import Load, Service

if TYPE_CHECKING:
    from foveola.bridge.desk import Desk

KEEP_ALIVE_S = 75  # longer than a camera or a proxy pauses: closing under a request that is just being sent loses it
EXIT_OK, EXIT_FAILED, EXIT_REFUSED = 0, 1, 2


class _Server(uvicorn.Server):
    """uvicorn's server, which ends with exit code 0 after a signal and tells the service that it drains."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.draining = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield  # uvicorn's own version raises the signal again afterwards, which would end us with its number
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def serve(
    options: ServeOptions, load: Load, listening: socket.socket, ring: KeyRing = NO_KEYS, desk: Desk | None = None
) -> int:
    """Serve on ``listening`` until a signal comes; returns the exit code. Needs the main thread.

    0 after SIGTERM or SIGINT, when every running request was finished or ``drain_s`` was over; 2 when the model
    was refused while loading, 1 when loading failed in another way.
    """
    failures: list[BaseException] = []

    def give_up(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    service = Service(load, options, on_failure=give_up)
    config = uvicorn.Config(
        create_app(service, ring, desk),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        http=PatientProtocol,  # on h11, which unlike httptools bounds the size of the headers
        timeout_graceful_shutdown=math.ceil(options.drain_s),
    )
    server = _Server(config, service)
    asyncio.run(server.serve(sockets=[listening]))
    log.event(logging.INFO, "stopped")
    if failures:
        return EXIT_REFUSED if isinstance(failures[0], Refusal) else EXIT_FAILED
    return EXIT_OK
