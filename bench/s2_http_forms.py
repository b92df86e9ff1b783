"""What HTTP adds in every form: multipart, JSON, OpenAI's chat completions, with and without keys; and what it bears.

The overhead is a client's latency minus the engine's own total time, over one kept connection, forms in turn so that a
busy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.bench.sample import Item
from foveola.bench.server import HOST, ServerProcess, multipart
from foveola.bench.stats import median, percentile
from foveola.bench.work import generated_items
from foveola.engine.options import usable_cores
from foveola.serve.embedded import embedded_bundle
from foveola.serve.keys import new_key

ADDED_MS = 3.0
FORM = {"content-type": "multipart/form-data; boundary=foveola-bench-part"}
JSON = {"content-type": "application/json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, metavar="N", default=120, help="per form")


def data_url(item: Item) -> str:
    return "data:image/png;base64," + base64.b64encode(item.image).decode()


def as_json(item: Item) -> bytes:
    prompt = {"text": item.text, "max_tokens": 16}
    return json.dumps({"image": base64.b64encode(item.image).decode(), "prompt": prompt}).encode()


def as_chat(item: Item, model: str) -> bytes:
    content = [{"type": "image_url", "image_url": {"url": data_url(item)}}, {"type": "text", "text": item.text}]
    messages = [{"role": "user", "content": content}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": 16}).encode()


def added_ms(port: int, path: str, headers: dict[str, str], body: bytes, kept: dict[str, Any]) -> float:
    """One request over a connection that is kept: its latency minus the engine's time, in milliseconds."""

    connection = kept.setdefault("connection", http.client.HTTPConnection(HOST, port, timeout=120))
    started = time.perf_counter()
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    document = json.loads(reply.read())
    latency_s = time.perf_counter() - started
    if reply.status != http.client.OK:
        raise RuntimeError(f"{path}: {document}")
    return float(latency_s - document["usage"]["stages"]["total_s"]) * 1000


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    requests, warmup = (5, 2) if arguments.quick else (arguments.requests, 10)
    path = embedded_bundle()
    items = generated_items(min(requests, 64))
    key, digest = new_key()
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.toml"
        keys.write_text(f'[[key]]\nname = "bench"\nsha256 = "{digest}"\n')
        os.environ["FOVEOLA_SERVE_KEYS_FILE"] = str(keys)
        try:
            with ServerProcess(path, usable_cores()) as server:
                port = server.port()
                server.wait_ready()
                bearer = {"authorization": f"Bearer {key}"}
                name = Bundle.open(path).name
                forms: dict[str, Any] = {
                    "multipart": ("/v1/vlm/invoke", FORM, lambda item: multipart(item, 16)),
                    "json": ("/v1/vlm/invoke", JSON, as_json),
                    "chat": ("/v1/chat/completions", JSON, lambda item: as_chat(item, name)),
                }
                tell(f"asking {requests} questions in each of {len(forms)} forms, with a key")
                added: dict[str, list[float]] = {form: [] for form in forms}
                kept: dict[str, Any] = {}
                for index in range(warmup + requests):
                    item = items[index % len(items)]
                    for form, (route, headers, body) in forms.items():
                        spent = added_ms(port, route, headers | bearer, body(item), kept)
                        if index >= warmup:
                            added[form].append(spent)
        finally:
            del os.environ["FOVEOLA_SERVE_KEYS_FILE"]
    figures = {
        "model": describe_model(Bundle.open(path)),
        "requests": requests,
        "picture_bytes_p50": int(median([len(item.image) for item in items])),
        "added_ms": {
            form: {f"p{p}": round(percentile(values, p), 3) for p in (50, 95, 99)} for form, values in added.items()
        },
    }
    return figures, [
        Bar(f"HTTP adds in the form {form}, ms at p50", median(values), ADDED_MS, at_most=True)
        for form, values in added.items()
    ]


SCRIPT = Script("s2", "http_forms", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
