"""The socket. It is opened before anything heavy is imported, so that early clients wait instead of being refused."""

from __future__ import annotations

import logging
import socket

from foveola.exchange import Refusal
from foveola.serve.log import event

BACKLOG = 512


class CannotListen(Refusal):
    """The address or the port is not to be had."""

    code = "cannot_listen"


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; the event ``listening`` tells its port. Raises ``CannotListen``."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(
            f"Cannot listen on {host} port {port}: {error.strerror or error}. "
            "Stop what listens there, or choose another with --host and --port."
        ) from None
    event(logging.INFO, "listening", host=host, port=listening.getsockname()[1])
    return listening
