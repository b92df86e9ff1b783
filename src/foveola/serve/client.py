"""What the command line asks of a server that runs: one request, one JSON reply, refusals in the server's words."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from foveola.exchange import Invalid, Refusal, Unavailable

KEY_VARIABLE = "FOVEOLA_KEY"
TIMEOUT_S = 600.0


class Refused(Refusal):
    """The server said no; the message is its own."""

    code = "refused_by_server"


def add_server_arguments(parser: argparse.ArgumentParser, whose: str) -> None:
    """Declare where the server is, and ``whose`` key opens it."""
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server (default: %(default)s)")
    parser.add_argument("--key-file", metavar="FILE", type=Path, help=f"{whose} key (default: ${KEY_VARIABLE})")


def key_in(file: Path | None) -> str:
    """The key in a file, or that of the environment. Raises ``Invalid``."""
    if file is None:
        return os.environ.get(KEY_VARIABLE, "").strip()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise Invalid(f"The key in {file.name} cannot be read; name a file with a key in it.", field="key") from None


def ask_server(
    url: str,
    method: str,
    path: str,
    key: str,
    body: Iterator[bytes] | bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The JSON object that the server at ``url`` replies with.

    Raises ``Invalid`` for an address that is none, ``Unavailable`` where nobody answers, ``Refused``.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(f"{url!r} is no address of a server; expected one such as http://127.0.0.1:8080.", field="url")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        given = {**(headers or {}), **({"authorization": f"Bearer {key}"} if key else {})}
        with contextlib.suppress(BrokenPipeError):  # refused before all was sent: the reply says why
            connection.request(method, parts.path.rstrip("/") + path, body, given)
        reply = connection.getresponse()
        document = json.loads(reply.read())
    except (OSError, ValueError, http.client.HTTPException):
        raise Unavailable(f"No server of this kind answers at {url}; start one, or name another with --url.") from None
    finally:
        connection.close()
    if reply.status != http.client.OK:
        raise Refused(str(document.get("error", {}).get("message", f"The server refused with status {reply.status}.")))
    return dict(document)
