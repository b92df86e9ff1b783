"""Questions and checks that every hostile test needs."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from typing import Any

import httpx
from PIL import Image

ASK = "/v1/vlm/invoke"
UNSAFE = re.compile(r"0x[0-9a-f]{4,}|Traceback|/(?:home|usr|tmp|work|root|opt)/|\.py\b|\bPIL\b|onnx", re.IGNORECASE)


def picture(size: tuple[int, int] = (96, 64), format: str = "PNG", **more: Any) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, format, **more)
    return file.getvalue()


def ask(client: httpx.Client, image: bytes | None, text: str = "What is this?", **prompt: Any) -> httpx.Response:
    """POST the multipart form."""
    document = json.dumps({"text": text, "max_tokens": 2, **prompt})
    files: dict[str, Any] = {"prompt": (None, document, "application/json")}
    if image is not None:
        files["image"] = ("a.bin", image)
    return client.post(ASK, files=files)


def refused(response: httpx.Response, *statuses: int) -> str:
    """The message of a refusal with one of these statuses; it says something and gives nothing away."""
    assert response.status_code in statuses, (response.status_code, response.text[:300])
    message: str = response.json()["error"]["message"]
    assert len(message) > 20 and not UNSAFE.search(message), message
    return message


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG by hand: the header says ``width`` and ``height``, whatever the chunks hold."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), *chunks, (b"IEND", b""))
    )
    return b"\x89PNG\r\n\x1a\n" + body
