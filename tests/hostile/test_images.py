"""FIELD: what pictures do to servers."""

from __future__ import annotations

import io
import socket
import zlib

import httpx
import pytest
from PIL import Image

from tests.hostile.asking import ASK, ask, picture, png, refused
from tests.hostile.conftest import peak_mib

pytestmark = pytest.mark.process
PEAK_MIB = 1024


def test_every_orientation_is_turned_upright(client: httpx.Client) -> None:
    sizes = {}
    for orientation in range(1, 9):
        tags = Image.Exif()
        tags[0x0112] = orientation
        reply = ask(client, picture((96, 64), "JPEG", exif=tags)).json()
        sizes[orientation] = tuple(reply["usage"]["images"][0]["original"])
    assert sizes == {number: (96, 64) if number < 5 else (64, 96) for number in range(1, 9)}


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (26, 28), (3, 3000)])
def test_tiny_and_extreme_pictures_are_answered_or_told_why_not(client: httpx.Client, size: tuple[int, int]) -> None:
    response = ask(client, picture(size))
    if response.status_code != 200:
        refused(response, 400, 413, 422)


def bomb() -> bytes:
    """30 000 x 30 000 pixels of nothing in a few kilobytes."""
    return png(30_000, 30_000, (b"IDAT", zlib.compress(bytes(10**6))))


def text_bomb() -> bytes:
    packed = b"Comment\0\0" + zlib.compress(bytes(50 * 2**20))
    return png(8, 8, (b"zTXt", packed), (b"IDAT", zlib.compress(bytes(8 * 25))))


@pytest.mark.parametrize(
    "data",
    [
        bomb(), picture()[:70], b"\x89PNG\r\n\x1a\n", b"GIF89a\xff\xff\xff\xff", b"RIFF\xff\xff\xff\xffWEBPVP8 ",
        b"II*\0\xff\xff\xff\xff", b"<svg onload='x'/>", b"%!PS-Adobe", b"BM" + bytes(60),
        b"\xff\xd8\xff\xe0" + bytes(99),
        png(0, 5), png(5, 5), b"PK\x03\x04" + bytes(99), b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    ],
    ids=lambda data: repr(data[:8]),
)  # fmt: skip
def test_what_lies_or_is_no_picture_is_refused(client: httpx.Client, data: bytes) -> None:
    refused(ask(client, data), 400, 413, 415, 422)


def test_a_bomb_in_a_comment_inflates_nothing(client: httpx.Client, server_pid: int) -> None:
    before = peak_mib(server_pid)
    ask(client, text_bomb())
    assert peak_mib(server_pid) < max(before + 40, 300)


def test_pictures_of_the_same_bytes_and_other_shapes_are_not_mixed_up(client: httpx.Client) -> None:
    """GHSA-c65p-x677-fgj6: 30 x 100 and 100 x 30 with equal pixel bytes had one cache key."""
    pixels = bytes(range(250)) * 36
    replies = {}
    for size in ((30, 100), (100, 30), (30, 100), (100, 30)):
        file = io.BytesIO()
        Image.frombytes("RGB", size, pixels).save(file, "PNG")
        image = ask(client, file.getvalue()).json()["usage"]["images"][0]
        replies.setdefault(size, image)
        assert replies[size] == image
    assert replies[30, 100]["original"] == [30, 100] and replies[100, 30]["original"] == [100, 30]


@pytest.mark.parametrize("scheme", ["http", "https", "file", "ftp", "gopher"])
def test_no_address_is_ever_fetched(client: httpx.Client, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        address = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}/a.png"
        message = refused(client.post(ASK, json={"image": address, "prompt": "a"}), 400)
        assert "fetches nothing" in message
        content = [{"type": "image_url", "image_url": {"url": address}}, {"type": "text", "text": "a"}]
        document = {"model": "any", "messages": [{"role": "user", "content": content}]}
        assert 400 <= client.post("/v1/chat/completions", json=document).status_code < 500
        with pytest.raises(TimeoutError):
            listening.accept()


def test_memory_stayed_bounded(client: httpx.Client, server_pid: int) -> None:
    assert peak_mib(server_pid) < PEAK_MIB
