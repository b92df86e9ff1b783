"""``foveola patch`` against a real server under load: nobody fails, nobody gets an answer of mixed weights."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from foveola.serve.keys import new_key
from tests.serve.process import PATIENCE_S, ROOT, Process

pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.slow]
ASK = "/v1/vlm/invoke"
CLIENTS = 4


def picture(seed: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def command(*words: str, port: int, key_file: Path) -> dict[str, Any]:
    told = ["--url", f"http://127.0.0.1:{port}", "--key-file", str(key_file), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "foveola", "patch", *words, *told],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    reply: dict[str, Any] = json.loads(done.stdout)
    return reply


def test_weights_change_under_load_and_back(random_bundle: Path, tmp_path: Path) -> None:
    numpy_safetensors = pytest.importorskip("safetensors.numpy", reason="the workshop is not installed")
    tensors = numpy_safetensors.load_file(next((random_bundle.parent / "checkpoint").glob("*.safetensors")))
    visual = {name: value * np.float32(1.5) for name, value in tensors.items() if "visual." in name}
    assert visual
    new = tmp_path / "new.safetensors"
    numpy_safetensors.save_file(visual, new)
    ask, admin = new_key(), new_key()
    keys, key_file = tmp_path / "keys.toml", tmp_path / "key"
    keys.write_text(
        f'[[key]]\nname = "line"\nsha256 = "{ask[1]}"\n'
        f'[[key]]\nname = "boss"\nsha256 = "{admin[1]}"\nroles = ["admin"]\n'
    )
    key_file.write_text(admin[0])
    serve = ["-m", "foveola", "serve", "--bundle", str(random_bundle), "--port", "0"]
    with Process(*serve, env={"FOVEOLA_SERVE_KEYS_FILE": str(keys)}) as server, server.ready() as client:
        port = int(client.base_url.port or 0)
        stop = threading.Event()
        replies: list[tuple[int, dict[str, Any]]] = []

        def asking(number: int) -> None:
            while not stop.is_set():
                form = {"image": ("a.png", picture(number)), "prompt": (None, b'{"text": "What?", "max_tokens": 6}')}
                response = client.post(ASK, files=form, headers={"authorization": f"Bearer {ask[0]}"})
                assert response.status_code == 200, response.text
                replies.append((number, response.json()))

        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(asking, number) for number in range(CLIENTS)]
            try:
                patched = command(str(new), "--module-path", "visual", port=port, key_file=key_file)
                count = len(replies)
                while len(replies) < count + 3 * CLIENTS and not any(one.done() for one in running):
                    stop.wait(0.01)
                back = command("--rollback", port=port, key_file=key_file)
            finally:
                stop.set()
            for one in running:
                one.result()
        versions = command("--versions", port=port, key_file=key_file)
        assert server.noise == []
    assert patched["tensors"] > 0
    assert back["model_hash"] == patched["before"] != patched["model_hash"]
    assert [change["kind"] for change in versions["changes"]] == ["rollback", "patch"]
    texts: dict[tuple[int, str], set[str]] = {}
    for number, reply in replies:
        texts.setdefault((number, reply["model_hash"]), set()).add(reply["text"])
    assert {model_hash for _, model_hash in texts} == {patched["before"], patched["model_hash"]}
    assert all(len(one) == 1 for one in texts.values()), texts
