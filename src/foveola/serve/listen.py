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
    if not 0 <= port <= 65535:  # the system's resolver would take it modulo 65536
        raise CannotListen(f"Cannot listen on port {port}; choose one from 0 to 65535 with --port.")
    listening: socket.socket | None = None
    try:
        # The protocol is named: asyncio switches Nagle's algorithm off only where it is, and with it on, every reply
        # on a connection that is kept waits 40 ms for the client's acknowledgement.
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, ValueError) as error:  # a name that cannot be one at all is a ValueError
        if listening is not None:
            listening.close()
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "that is no name of a host"
        raise CannotListen(
            f"Cannot listen on {host} port {port}: {reason}. "
            "Stop what listens there, or choose another with --host and --port."
        ) from None
    event(logging.INFO, "listening", host=host, port=listening.getsockname()[1])
    return listening
