from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foveola.serve.listen import CannotListen, listen
from tests.serve.fake import events
from tests.serve.process import Process

pytestmark = pytest.mark.process
ASK = "/v1/vlm/invoke"


def start(go: Path, *settings: str) -> Process:
    return Process("-m", "tests.serve.fake_server", str(go), *settings)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One server for all tests that leave it running."""
    with start(tmp_path_factory.mktemp("running") / "never") as server:
        yield server


@pytest.fixture(scope="module")
def client(running: Process) -> Iterator[httpx.Client]:
    with running.ready() as client:
        yield client


def test_a_request_under_way_is_finished_after_sigterm_and_the_exit_code_is_0(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with start(go) as server, server.ready() as client:
        with client.stream("POST", f"{ASK}?stream=1", json={"prompt": "wait"}) as response:
            assert response.status_code == 200
            chunks = response.iter_text()
            text = next(chunks)
            server.terminate()
            address = (client.base_url.host, client.base_url.port)
            while True:  # new connections are refused as soon as the signal is handled
                try:
                    socket.create_connection(address).close()
                except ConnectionRefusedError:
                    break
            go.touch()
            text += "".join(chunks)
        parsed = events(text)
        assert [name for name, _ in parsed] == ["delta", "delta", "delta", "done"]
        assert server.wait() == 0
        assert server.log[-1]["event"] == "stopped"
        assert server.noise == []


def test_what_does_not_end_in_time_is_cut_off(tmp_path: Path) -> None:
    with start(tmp_path / "never", "drain_s=0.1") as server, server.ready() as client:
        with client.stream("POST", f"{ASK}?stream=1", json={"prompt": "wait"}) as response:
            chunks = response.iter_text()
            next(chunks)
            server.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                "".join(chunks)
        assert server.wait() == 0


def test_sigint_ends_it_as_well(tmp_path: Path) -> None:
    with start(tmp_path / "go") as server, server.ready() as client:
        assert client.get("/health/ready").status_code == 200
        server.popen.send_signal(signal.SIGINT)
        assert server.wait() == 0


def test_the_log_has_one_line_per_request_and_no_text_of_a_user(tmp_path: Path) -> None:
    with start(tmp_path / "go") as server, server.ready() as client:
        client.post(ASK, json={"prompt": "my secret question"}, headers={"x-request-id": "job-1"})
        client.post(ASK, json={"prompt": {"text": "a", "top_k": "my secret"}}, headers={"x-request-id": "job-2"})
        client.get("/my/secret/path?question=secret", headers={"x-request-id": "job-3"})
        client.post(ASK, json={"prompt": "fail secret"}, headers={"x-request-id": "job-4"})
        client.post(ASK, json={"prompt": "a"}, headers={"x-request-id": "my secret\tid"})
        server.terminate()
        assert server.wait() == 0
        lines = [line for line in server.log if line["event"] == "request"]
    # The line of a request is written when its reply has been read, which may be after the next one began: by id, then
    # the one whose id was not taken.
    lines.sort(key=lambda line: (not line["id"].startswith("job-"), line["id"]))
    assert [line["status"] for line in lines] == [200, 422, 404, 500, 200]
    good, bad, missing, failed, other = lines
    assert (good["id"], good["method"], good["route"]) == ("job-1", "POST", ASK)
    assert good["stages"]["prefill_s"] == 0.25
    assert good["completion_tokens"] == 3
    assert good["ms"] > 0
    assert (bad["code"], bad["field"]) == ("invalid_field", "top_k")
    assert missing["route"] is None
    assert len(other["id"]) == 32
    [trace] = [line for line in server.log if line["event"] == "unhandled"]
    assert (trace["id"], trace["level"]) == (failed["id"], "error")
    assert "this is the trace" in trace["trace"]
    assert "secret" not in str(lines)
    assert server.noise == []


def test_a_client_that_leaves_is_logged_as_such(running: Process, client: httpx.Client) -> None:
    with client.stream("POST", f"{ASK}?stream=1", json={"prompt": "wait"}) as response:
        next(response.iter_text())
    assert running.until("request", status=499)["route"] == ASK
    assert client.post(ASK, json={"prompt": "a"}).status_code == 200


def test_a_large_upload_is_refused_with_a_reply_that_arrives(client: httpx.Client) -> None:
    for _ in range(2):
        response = client.post(ASK, content=b"x" * 60_000_000, headers={"content-type": "application/json"})
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "too_large"
    assert client.get("/health/ready").status_code == 200


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port))


def test_a_body_in_frames_of_one_byte(client: httpx.Client) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n"Which?"\r\n--x--\r\n'
    head = (
        f"POST {ASK} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    ).encode()
    frames = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n"
    with connect(client) as connection:
        connection.sendall(head + frames)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
    assert reply.startswith(b"HTTP/1.1 200")


def test_a_client_that_waits_to_be_told_to_go_on(client: httpx.Client) -> None:
    head = f"POST {ASK} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
    with connect(client) as connection:
        connection.sendall(f"{head}Content-Length: 15\r\n\r\n".encode())
        assert connection.recv(1024).startswith(b"HTTP/1.1 100")
        connection.sendall(b'{"prompt": "a"}')
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    with connect(client) as connection:  # what is too large is refused without being sent
        connection.sendall(f"{head}Content-Length: 99000000\r\n\r\n".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_the_headers_alone_can_be_asked_for(running: Process, client: httpx.Client) -> None:
    response = client.head("/health/ready", headers={"x-request-id": "head-1"})
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == "15"
    line = running.until("request", id="head-1")
    assert (line["method"], line["route"]) == ("HEAD", "/health/ready")
    assert client.head("/nothing").status_code == 404
    assert client.get("/health/live").json() == {"status": "ok"}  # on the same connection


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/vlm/invoke HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nabcde",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 50_000,
    ],
    ids=["TLS", "negative length", "two lengths", "long address", "many headers"],
)
def test_noise_on_the_port_is_refused_and_survived(client: httpx.Client, noise: bytes) -> None:
    with connect(client) as connection:
        try:
            connection.sendall(noise + b"\r\n\r\n")
            reply = connection.recv(65536)
        except ConnectionError:  # closed on us while we were still sending
            reply = b""
    assert reply == b"" or reply.startswith(b"HTTP/1.1 400")
    assert client.get("/health/ready").status_code == 200


def test_a_damaged_model_ends_the_process_with_its_message(tmp_path: Path) -> None:
    with start(tmp_path / "go", "damaged=yes") as server:
        assert server.wait() == 2
        [line] = [line for line in server.log if line["event"] == "load_failed"]
        assert line["message"] == "vision.onnx is truncated: copy the bundle again."
        assert "trace" not in line


def test_a_port_that_is_taken_is_told() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(CannotListen, match="Cannot listen on 127.0.0.1 port .*--port"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(CannotListen, match="Cannot listen on no.such.host.invalid port 1"):
        listen("no.such.host.invalid", 1)
    with pytest.raises(CannotListen, match="port 1: that is no name of a host. Stop what listens there, or choose"):
        listen("a" * 100, 1)
    with pytest.raises(CannotListen, match="Cannot listen on port 99999; choose one from 0 to 65535"):
        listen("127.0.0.1", 99999)


def test_replies_are_not_held_back_by_nagle() -> None:
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # what asyncio asks before it switches Nagle's algorithm off
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.proto == socket.IPPROTO_TCP
