"""A real server process and a client that keeps its connection, as a camera would."""

from __future__ import annotations

import http.client
import json
import math
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foveola.bench.contender import CannotTakePart, Setup, drive
from foveola.bench.environment import child_environment
from foveola.bench.machine import held_memory, peak_memory
from foveola.bench.sample import STAGES, Block, Item, Sample
from foveola.exchange import Unavailable

HOST = "127.0.0.1"
PATIENCE_S = 120.0
FRESH_S = 1.0
_BOUNDARY = "foveola-bench-part"
_HEADERS = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}


class ServerProcess:
    """``foveola serve`` on a port of its own; its log is read so that it never blocks."""

    def __init__(
        self,
        bundle: Path | None,
        threads: int,
        *,
        python: Path | str = sys.executable,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Start it (``bundle`` None: the embedded model); returns at once. ``started`` is the moment before that.
        ``settings`` are ``FOVEOLA_*`` variables."""
        self._lines: queue.Queue[str | None] = queue.Queue()
        command = [str(python), "-m", "foveola", "serve", "--host", HOST, "--port", "0"]
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            command if bundle is None else [*command, "--bundle", str(bundle)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=child_environment(threads) | dict(settings or {}),
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def port(self) -> int:
        """Wait until it listens. Raises ``Unavailable`` with its last words when it ends instead."""
        return int(self._until("listening")["port"])

    def wait_ready(self) -> None:
        """Wait until its model is loaded. Raises as ``port``."""
        self._until("ready")

    def peak_memory(self) -> int:
        """Bytes that it has ever held at once."""
        return peak_memory(self.pid)

    def held_memory(self) -> int:
        """Bytes that it holds now."""
        return held_memory(self.pid)

    def close(self) -> None:
        """Stop it, gently at first."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S / 4)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def _until(self, event: str) -> dict[str, Any]:
        last = "it said nothing"
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            entry = _entry(line)
            if entry.get("event") == event:
                return entry
            last = str(entry.get("message") or line.strip() or last)
        raise Unavailable(f"The server ended before it was {event}: {last[:300]}")


def _entry(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def multipart(item: Item, max_tokens: int) -> bytes:
    """The body of ``POST /v1/vlm/invoke`` as ``multipart/form-data``."""
    prompt = json.dumps({"text": item.text, "max_tokens": max_tokens, "temperature": 0}, ensure_ascii=False)
    parts = (
        ('name="image"; filename="picture"', "application/octet-stream", item.image),
        ('name="prompt"', "application/json", prompt.encode()),
    )
    body = b""
    for told, kind, data in parts:
        head = f"--{_BOUNDARY}\r\nContent-Disposition: form-data; {told}\r\nContent-Type: {kind}\r\n\r\n"
        body += head.encode() + data + b"\r\n"
    return body + f"--{_BOUNDARY}--\r\n".encode()


class Client:
    """One connection that stays open. Not for several threads at once."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)
        self._used = -math.inf

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ready(self) -> bool:
        """Whether ``/health/ready`` says so; False also while nobody listens yet."""
        try:
            self._connection.request("GET", "/health/ready")
            reply = self._connection.getresponse()
            reply.read()
        except OSError:
            self._connection.close()
            return False
        return reply.status == http.client.OK

    def invoke(self, item: Item, max_tokens: int) -> tuple[dict[str, Any], float]:
        """The whole reply, and the seconds from sending to having read it. Raises ``Unavailable`` for a refusal."""
        body = multipart(item, max_tokens)
        self._connect()
        started = time.perf_counter()
        self._connection.request("POST", "/v1/vlm/invoke", body, _HEADERS)
        reply = self._connection.getresponse()
        data = reply.read()
        self._used = time.perf_counter()
        return _document(reply.status, data), self._used - started

    def stream(self, item: Item, max_tokens: int) -> Sample:
        """One answer as server-sent events, timed where the client stands. Raises ``Unavailable`` for a refusal."""
        body = multipart(item, max_tokens)
        self._connect()
        started = time.perf_counter()
        self._connection.request("POST", "/v1/vlm/invoke?stream=1", body, _HEADERS)
        reply = self._connection.getresponse()
        if reply.status != http.client.OK:
            _document(reply.status, reply.read())
        first_s, event, done = 0.0, "", b""
        while line := reply.readline():
            if line.startswith(b"event: "):
                event = line[7:].strip().decode()
            elif line.startswith(b"data: "):
                first_s = first_s or time.perf_counter() - started
                if event in ("done", "error"):
                    done = line[6:]
        self._used = time.perf_counter()
        told = _document(http.client.OK if event == "done" else http.client.SERVICE_UNAVAILABLE, done)
        stages = told["usage"]["stages"]
        return Sample(
            told["text"],
            self._used - started,
            first_s,
            told["usage"]["completion_tokens"],
            {name: stages[f"{name}_s"] for name in STAGES},
        )

    def _connect(self) -> None:
        """A connection that is open before the clock runs: servers close those that were idle for some seconds."""
        if time.perf_counter() - self._used > FRESH_S:
            self._connection.close()
            self._connection.connect()


def _document(status: int, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if status != http.client.OK or not isinstance(document, dict):
        told = document.get("error", {}).get("message", "") if isinstance(document, dict) else ""
        raise Unavailable(f"The server refused with status {status}: {told or 'without a message'}")
    return document


class HttpServer:
    """The contender over HTTP: one connection per request at once, answers streamed."""

    def __init__(self, name: str, setup: Setup) -> None:
        """Start a server on the bundle ``setup.source``; blocks until it is ready. Raises ``CannotTakePart``."""
        self.name = name
        self._max_tokens = setup.max_tokens
        self._clients: queue.SimpleQueue[Client] = queue.SimpleQueue()
        self._opened = 0
        self._server = ServerProcess(setup.source, setup.threads)
        try:
            self._port = self._server.port()
            self._server.wait_ready()
        except Unavailable as refusal:
            self._server.close()
            raise CannotTakePart(refusal.message) from None

    def run(self, items: Sequence[Item], concurrency: int) -> Block:
        """See ``Contender.run``."""
        while self._opened < concurrency:
            self._clients.put(Client(self._port))
            self._opened += 1
        return drive(self._ask, items, concurrency)

    def peak_memory(self) -> int:
        """See ``Contender.peak_memory``; the client's is not counted."""
        return self._server.peak_memory()

    def close(self) -> None:
        """Close the connections and stop the server."""
        while self._opened:
            self._clients.get().close()
            self._opened -= 1
        self._server.close()

    def _ask(self, item: Item) -> Sample:
        client = self._clients.get()
        try:
            return client.stream(item, self._max_tokens)
        finally:
            self._clients.put(client)
