"""One model in two services, two engines in two processes: real servers with the embedded model."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from foveola.artifact import Bundle
from foveola.engine.dual_confidence import Confidence
from foveola.engine.travel import Look
from foveola.exchange import BadImage, Busy, Invalid, Request, Sampling, Turn, Unavailable
from foveola.serve.afar import RemoteAnswer, VisionClient, address, refusal_of
from foveola.serve.embedded import embedded_bundle
from tests.serve.process import ROOT, Process

pytestmark = pytest.mark.process
ASK = "/v1/vlm/invoke"
EXAMPLE = ROOT / "examples" / "surface.png"
PROMPT = json.dumps({"text": "What defect is on this surface?", "max_tokens": 16}).encode()


def serve(*flags: str, **env: str) -> Process:
    return Process("-m", "foveola", "serve", "--port", "0", *flags, env=env)


def url_of(client: httpx.Client) -> str:
    return f"http://127.0.0.1:{client.base_url.port}"


def ask(client: httpx.Client, image: bytes | None = None, **more: Any) -> httpx.Response:
    form: dict[str, Any] = {"prompt": (None, PROMPT)}
    if image is not None:
        form["image"] = ("a.png", image)
    return client.post(ASK, files=form, **more)


@pytest.fixture(scope="module")
def whole() -> Iterator[httpx.Client]:
    """A server that does everything, to compare with, and to be the second engine."""
    with serve() as process, process.ready() as client:
        yield client


@pytest.fixture(scope="module")
def seeing() -> Iterator[httpx.Client]:
    with serve("--role", "vision") as process, process.ready() as client:
        yield client


def test_two_services_give_the_answer_of_one(whole: httpx.Client, seeing: httpx.Client) -> None:
    with serve("--role", "language", "--vision-url", url_of(seeing)) as process, process.ready() as client:
        image = EXAMPLE.read_bytes()
        expected, got = ask(whole, image).json(), ask(client, image).json()
        assert got["text"] == expected["text"]
        assert got["model_hash"] == expected["model_hash"]
        assert got["usage"]["images"] == expected["usage"]["images"]
        assert got["usage"]["visual_tokens"] == expected["usage"]["visual_tokens"] > 0
        bad = ask(client, image[:500])
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "bad_image")
        assert bad.json() == ask(whole, image[:500]).json()
        assert ask(client).status_code == 200  # without a picture nobody is asked
        counted = client.post("/v1/vlm/count", files={"image": ("a", image), "prompt": (None, PROMPT)}).json()
        assert counted["visual_tokens"] == expected["usage"]["visual_tokens"]
        assert ask(seeing).status_code == 503
        assert "only sees" in ask(seeing).json()["error"]["message"]
        assert process.noise == []


def test_a_vision_service_that_is_away_or_of_other_weights(seeing: httpx.Client) -> None:
    with serve("--role", "language", "--vision-url", "http://127.0.0.1:9") as process, process.ready() as client:
        response = ask(client, EXAMPLE.read_bytes())
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "The vision service does not answer; ask again in a moment."
        assert client.get("/health/live").status_code == 200


def test_the_vision_service_checks_what_it_gets(whole: httpx.Client, seeing: httpx.Client) -> None:
    path, binary = "/v1/vision/features", {"content-type": "application/octet-stream"}
    garbled = seeing.post(path, content=b"FVP1 and so on", headers=binary)
    assert (garbled.status_code, garbled.json()["error"]["code"]) == (400, "bad_request")
    assert "use the same version on both sides" in garbled.json()["error"]["message"]
    assert seeing.post(path, json={}).status_code == 415
    assert seeing.post(path, content=b"x" * 33_000_000, headers=binary).status_code == 413
    assert whole.post(path, content=b"x", headers=binary).status_code == 404
    sights = VisionClient(url_of(seeing))(Look((EXAMPLE.read_bytes(),), None, None))
    assert len(sights.version) == 64
    assert len(sights.sights[0].seen.features) == sights.sights[0].tokens
    with pytest.raises(BadImage):
        VisionClient(url_of(seeing))(Look((b"no picture",)))


async def test_another_server_is_an_answerer(whole: httpx.Client) -> None:
    remote = RemoteAnswer(url_of(whole))
    assert remote.model_hash == Bundle.open(embedded_bundle()).model_hash
    image = EXAMPLE.read_bytes()
    turn = Turn("user", "What defect is on this surface?", (image,))
    pieces = [piece async for piece in remote(Request("r", (turn,), Sampling(max_tokens=16)))]
    expected = ask(whole, image).json()
    assert "".join(piece.text for piece in pieces) == expected["text"]
    last = pieces[-1]
    assert last.usage is not None
    assert (last.finish, last.usage.prompt_tokens) == (expected["finish_reason"], expected["usage"]["prompt_tokens"])
    assert sum(piece.tokens for piece in pieces) == expected["usage"]["completion_tokens"]
    assert sum(piece.logprob for piece in pieces) < 0
    with pytest.raises(BadImage):
        await anext(aiter(remote(Request("r", (Turn("user", "a", (b"no picture",)),)))))


async def test_a_server_that_is_away() -> None:
    with pytest.raises(Unavailable, match="No server of this kind answers at 127.0.0.1 port 9"):
        RemoteAnswer("http://127.0.0.1:9")
    for wrong in ("ftp://a", "127.0.0.1:80", "http://a:99999", "http://a/?b"):
        with pytest.raises(Invalid, match="is no address of a server"):
            address(wrong)


def test_refusals_of_others_stay_what_they_are() -> None:
    told = json.dumps({"error": {"code": "bad_image", "message": "It ends early.", "param": "image"}}).encode()
    refusal = refusal_of(400, told, "other server")
    assert isinstance(refusal, BadImage)
    assert (refusal.message, refusal.field) == ("It ends early.", "image")
    busy = refusal_of(429, b'{"error": {"code": "busy", "message": "Full."}}', "other server")
    assert isinstance(busy, Busy)
    for body in (b"<html>", b'{"error": 5}', b'{"error": {"code": "invalid_api_key", "message": "No."}}'):
        assert isinstance(refusal_of(401, body, "other server"), Unavailable)


@pytest.mark.parametrize(("threshold", "engine", "reason"), [(0.0, "small", "confident"), (1.0, "large", "unsure")])
def test_two_engines_in_two_processes(
    whole: httpx.Client, tmp_path: Path, threshold: float, engine: str, reason: str
) -> None:
    bundle = Bundle.open(embedded_bundle())
    file = tmp_path / "confidence.json"
    file.write_text(json.dumps(Confidence(bundle.model_hash, (-9.0,), (0.5,), threshold, 0.02, 0.1, 50).to_json()))
    env = {"FOVEOLA_DUAL_URL": url_of(whole), "FOVEOLA_DUAL_CONFIDENCE": str(file)}
    with serve(**env) as process, process.ready() as client:
        image = EXAMPLE.read_bytes()
        reply = ask(client, image).json()
        names = [model["id"] for model in client.get("/v1/models").json()["data"]]
        assert names == ["auto", bundle.name, f"{bundle.name}-large"]
        route = reply["usage"]["route"]
        assert (route["engine"], route["reason"]) == (names[1] if engine == "small" else names[2], reason)
        assert route["confidence"] == 0.5
        assert reply["text"] == ask(whole, image).json()["text"]
        data = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        content = [
            {"type": "image_url", "image_url": data},
            {"type": "text", "text": "What defect is on this surface?"},
        ]
        chat = {"model": names[2], "messages": [{"role": "user", "content": content}], "max_tokens": 16}
        asked = client.post("/v1/chat/completions", json=chat).json()
        assert asked["choices"][0]["message"]["content"] == reply["text"]
        assert "route" not in asked["usage"]


def test_roles_and_engines_that_do_not_fit_are_refused_at_start(tmp_path: Path) -> None:
    for flags, env, message in (
        (["--role", "language"], {}, "`vision_url` belongs to the role language"),
        (["--vision-url", "http://a"], {}, "`vision_url` belongs to the role language"),
        ([], {"FOVEOLA_DUAL_URL": "http://a"}, "`confidence` is missing"),
        ([], {"FOVEOLA_SERVE_KEYS_FILE": str(tmp_path / "none.toml")}, "none.toml cannot be read"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "foveola", "serve", "--port", "0", *flags],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert message in done.stderr


def test_a_photo_of_twelve_megapixels_fits_and_the_reply_says_how(whole: httpx.Client) -> None:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((4000, 3000)).convert("RGB").save(file, "JPEG", quality=80)
    counted = whole.post("/v1/vlm/count", files={"image": ("a", file.getvalue()), "prompt": (None, PROMPT)}).json()
    reply = ask(whole, file.getvalue()).json()
    [image] = reply["usage"]["images"]
    assert image["original"] == [4000, 3000]
    assert image["used"][0] * image["used"][1] < 1_000_000
    assert counted["images"] == reply["usage"]["images"]
    assert counted["prompt_tokens"] == reply["usage"]["prompt_tokens"]
    assert counted["budget_tokens"] <= 4096
    assert reply["usage"]["stages"]["decode_image_s"] > 0
