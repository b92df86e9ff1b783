"""FIELD: what clients do to servers."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.hostile.asking import ASK, ask, picture, refused
from tests.hostile.conftest import peak_mib

pytestmark = pytest.mark.process
FORM = "multipart/form-data; boundary=B"


def part(name: str, data: bytes, extra: bytes = b"") -> bytes:
    return b'--B\r\nContent-Disposition: form-data; name="%b"\r\n%b\r\n%b\r\n' % (name.encode(), extra, data)


PROMPT = part("prompt", b'{"text": "a", "max_tokens": 1}')


@pytest.mark.parametrize(
    "body",
    [
        b"", b"--B", b"--B--", b"--B\r\n\r\n", PROMPT, PROMPT * 3 + b"--B--\r\n", part("x" * 5000, b"") + b"--B--\r\n",
        part("prompt", b"{}", b"X: y\r\n" * 500) + b"--B--\r\n", part("prompt", b"{}", b"X: " + b"y" * 9000 + b"\r\n"),
        part("other", b"1") + PROMPT + b"--B--\r\n", b"".join(part(f"p{n}", b"") for n in range(5000)) + b"--B--\r\n",
        b"\r\n" * 100_000, b"--B\r\nContent-Disposition: form-data\r\n\r\nx\r\n--B--\r\n", b"--C--\r\n",
        part("prompt\0", b"{}") + b"--B--\r\n", PROMPT[:-2] + b"--B-", part("image", b"") + PROMPT + b"--B--\r\n",
    ],
    ids=lambda body: f"{len(body)}-{body[:12]!r}",
)  # fmt: skip
def test_broken_forms_are_refused(client: httpx.Client, body: bytes) -> None:
    refused(client.post(ASK, content=body, headers={"content-type": FORM}), 400, 413, 422)


@pytest.mark.parametrize(
    "kind",
    ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "b" * 5000,
     "text/html", "application/json; charset=utf-7", "\x7f", "multipart/mixed; boundary=B"],
    ids=lambda kind: kind[:40],
)  # fmt: skip
def test_strange_content_types_are_refused(client: httpx.Client, kind: str) -> None:
    refused(client.post(ASK, content=b"--B--", headers={"content-type": kind}), 400, 413, 415, 422)


def test_a_form_in_one_byte_chunks_is_read(client: httpx.Client) -> None:
    body = part("image", picture((16, 16))) + PROMPT + b"--B--\r\n"

    def drops() -> Iterator[bytes]:
        for at in range(len(body)):
            yield body[at : at + 1]

    assert client.post(ASK, content=drops(), headers={"content-type": FORM}).status_code == 200


def test_an_endless_body_is_cut_off(client: httpx.Client, server_pid: int) -> None:
    def flood() -> Iterator[bytes]:
        for _ in range(200):
            yield bytes(2**20)

    before = peak_mib(server_pid)
    try:
        response = client.post(ASK, content=flood(), headers={"content-type": "application/json"})
        assert response.status_code == 413
    except httpx.WriteError:
        pass  # the server closed the connection while we still wrote: as good
    assert peak_mib(server_pid) < max(before + 150, 400)


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\0\x01",
        b"POST /v1/vlm/invoke HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/vlm/invoke HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/vlm/invoke HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 200_000 + b"\r\n\r\n", b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["version", "tls", "negative", "smuggling", "chunk", "header", "path"],
)  # fmt: skip
def test_what_is_no_http_is_closed(client: httpx.Client, raw: bytes) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=60) as connection:
        reply = b""
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                reply += chunk
        except OSError as error:  # the server has closed the connection while we were still writing: as good
            assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
    assert not reply or b" 4" in reply[:16] or b" 501 " in reply[:16]


def test_more_clients_than_places_are_told_when_to_come_back(client: httpx.Client) -> None:
    with ThreadPoolExecutor(80) as pool:
        replies = list(pool.map(lambda _: ask(client, None, "What is this?", max_tokens=1), range(80)))
    assert {reply.status_code for reply in replies} <= {200, 429}
    assert any(reply.status_code == 200 for reply in replies)
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in replies if reply.status_code == 429)


def test_clients_that_leave_free_their_places(client: httpx.Client) -> None:
    for _ in range(6):
        with client.stream("POST", f"{ASK}?stream=1", json={"prompt": {"text": "a", "max_tokens": 64}}) as response:
            next(response.iter_raw())
    assert ask(client, None, "a", max_tokens=1).status_code == 200


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize(
    "path", [ASK, "/health/ready/../../etc/passwd", "/v1/guard/digests", "/admin", "/v1/admin/patch"]
)
def test_other_verbs_and_paths_change_nothing(client: httpx.Client, verb: str, path: str) -> None:
    assert 400 <= client.request(verb, path).status_code < 500


def test_registering_without_gateways_is_refused(client: httpx.Client) -> None:
    refused(client.post("/v1/guard/digests", json={"digests": [], "ttl_s": 1}), 401, 403, 404)
