"""uvicorn's HTTP protocol with two things it lacks: an end to waiting for headers, and refusals in our form.

uvicorn bounds how long a connection may stay open between two requests, and waits for ever for the first one and for
the rest of a half-sent head: a few hundred such clients would hold every connection that the system allows.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from foveola.exchange import BadRequest, Refusal
from foveola.serve.refusals import TooSlow, body_of
from foveola.serve.wire import encode


class PatientProtocol(H11Protocol):
    """Closes connections that say nothing, and refuses requests whose headers take longer than ``headers_s``."""

    headers_s = 30.0  # from the first byte of a request to the end of its headers
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A newcomer who says nothing is left as long as one who has asked before."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def data_received(self, data: bytes) -> None:
        """Take what came; while it is less than a whole head, time runs."""
        super().data_received(data)
        if self._asked:
            self._stop_waiting()
        elif self._waiting is None and not self.transport.is_closing():
            self._waiting = self.loop.call_later(self.headers_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget about it."""
        self._stop_waiting()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What cannot be read is refused as everything else is."""
        refusal = BadRequest(
            "What came is no HTTP/1.1 request that can be read, or its headers are longer than 64 KiB; "
            "let an HTTP library write it."
        )
        self._refuse(refusal)

    @property
    def _asked(self) -> bool:
        """Whether a request is under way, or none has begun."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        return under_way or self.timeout_keep_alive_task is not None

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._asked and not self.transport.is_closing():
            told = f"The headers did not arrive within {self.headers_s:g} s; send them at once."
            self._refuse(TooSlow(told))

    def _refuse(self, refusal: Refusal) -> None:
        """Send a refusal and close, or only close where a reply has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = encode(body_of(refusal))
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=refusal.status, headers=headers),
                h11.Data(body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
