"""The whole way: a real server process on a real (random, small) bundle."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from foveola.artifact import Bundle
from tests.serve.fake import events
from tests.serve.process import PATIENCE_S, ROOT, Process

pytestmark = [pytest.mark.process, pytest.mark.torch]
ASK = "/v1/vlm/invoke"
PEAK_MIB = 1024  # of the process, whatever is sent


def serve(bundle: Path) -> Process:
    return Process("-m", "foveola", "serve", "--bundle", str(bundle), "--port", "0")


@pytest.fixture(scope="module")
def server(random_bundle: Path) -> Iterator[Process]:
    with serve(random_bundle) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: Process) -> Iterator[httpx.Client]:
    with server.ready() as client:
        yield client


def picture(size: tuple[int, int] = (90, 60), format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).save(file, format)
    return file.getvalue()


def form(image: bytes, **prompt: Any) -> dict[str, Any]:
    document = {"text": "What is this?", "max_tokens": 4, **prompt}
    return {"image": ("a.bin", image), "prompt": (None, json.dumps(document), "application/json")}


def test_an_answer_says_what_it_cost(client: httpx.Client, random_bundle: Path) -> None:
    reply = client.post(ASK, files=form(picture())).json()
    assert reply["model_hash"] == Bundle.open(random_bundle).model_hash
    assert reply["finish_reason"] in ("stop", "length")
    assert reply["usage"]["completion_tokens"] <= 4
    assert reply["usage"]["images"][0]["original"] == [90, 60]
    assert reply["usage"]["visual_tokens"] == reply["usage"]["images"][0]["tokens"] > 0
    stages = reply["usage"]["stages"]
    assert all(seconds >= 0 for seconds in stages.values())
    assert stages["total_s"] * 1000 <= reply["latency_ms"]


def test_every_form_gives_the_same_answer(client: httpx.Client) -> None:
    image = picture()
    prompt = {"text": "What is this?", "max_tokens": 12}
    packed = base64.b64encode(image).decode()
    replies = [
        client.post(ASK, files=form(image, max_tokens=12)).json(),
        client.post(ASK, json={"image": packed, "prompt": prompt}).json(),
        client.post(ASK, json={"image": f"data:image/png;base64,{packed}", "prompt": prompt}).json(),
        events(client.post(f"{ASK}?stream=1", files=form(image, max_tokens=12)).text)[-1][1],
    ]
    assert len({reply["text"] for reply in replies}) == 1
    assert len({reply["usage"]["completion_tokens"] for reply in replies}) == 1


def test_a_question_without_a_picture_is_answered(client: httpx.Client) -> None:
    reply = client.post(ASK, json={"prompt": "What is rust?"}).json()
    assert reply["usage"]["images"] == []
    assert reply["usage"]["visual_tokens"] == 0


@pytest.mark.parametrize("query", ["", "?stream=1"])
@pytest.mark.parametrize(
    ("image", "statuses"),
    [
        (b"this is no picture", {400, 415}),
        (picture()[:60], {400}),
        (picture((1, 1)), {200, 400, 413, 422}),
        (picture((4000, 2)), {200, 400, 413, 422}),
    ],
    ids=["text", "truncated", "one pixel", "a line"],
)
def test_a_bad_picture_is_refused_before_the_first_event(
    client: httpx.Client, image: bytes, statuses: set[int], query: str
) -> None:
    response = client.post(ASK + query, files=form(image))
    assert response.status_code in statuses
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["message"]


def test_a_prompt_longer_than_the_context_is_refused(client: httpx.Client) -> None:
    response = client.post(ASK, json={"prompt": "scratch " * 4000})
    assert response.status_code == 422
    assert response.json()["error"]["code"] == "over_budget"


@pytest.mark.parametrize(("field", "value"), [("max_tokens", 1025), ("temperature", -1), ("top_k", 1.5), ("seed", -1)])
def test_the_field_that_is_wrong_is_named(client: httpx.Client, field: str, value: float) -> None:
    response = client.post(ASK, files=form(picture(), **{field: value}))
    assert response.status_code == 422
    assert response.json()["error"]["field"] == field


def test_a_client_that_leaves_frees_the_only_slot(server: Process, client: httpx.Client) -> None:
    prompt = {"text": "What is this?", "max_tokens": 1000, "temperature": 5, "seed": 1}
    for number in range(3):
        headers = {"x-request-id": f"leaver-{number}"}
        with client.stream("POST", f"{ASK}?stream=1", json={"prompt": prompt}, headers=headers) as response:
            next(response.iter_text())
    assert client.post(ASK, json={"prompt": {"text": "a", "max_tokens": 1}}).status_code == 200
    assert client.get("/health/ready").status_code == 200
    for number in range(3):
        server.until("request", id=f"leaver-{number}")


def test_the_metrics_are_served(client: httpx.Client) -> None:
    client.post(ASK, files=form(picture()))
    client.post(ASK, files=form(b"this is no picture"))
    figures = client.get("/metrics").text
    [answered] = re.findall(r"^ocr_latency_seconds_count\{.*\} (\d+)", figures, re.MULTILINE)
    assert int(float(answered)) >= 1
    assert re.search(r'^foveola_refused_total\{code="\w+",.*\} \d', figures, re.MULTILINE)
    assert re.search(r"^foveola_queue_depth\{.*\} 0", figures, re.MULTILINE)


@pytest.mark.slow
def test_no_tricky_picture_breaks_the_server(server: Process, client: httpx.Client, shared: Path) -> None:
    files = sorted(path for path in (shared / "data" / "tricky").rglob("*") if path.is_file() and path.suffix != ".csv")
    assert len(files) > 900
    outcomes: Counter[int] = Counter()
    unsafe = re.compile(r"0x[0-9a-f]{4,}|Traceback|/(?:home|usr|tmp|work|root)/|\.py\b|PIL", re.IGNORECASE)

    def send(path: Path) -> tuple[Path, httpx.Response]:
        data = path.read_bytes()
        response = client.post(ASK, files=form(data, max_tokens=1))
        if response.status_code == 429:  # four at once never fill the queue
            raise AssertionError(f"{path.name}: {response.text}")
        return path, response

    with ThreadPoolExecutor(4) as pool:
        for path, response in pool.map(send, files):
            outcomes[response.status_code] += 1
            assert response.status_code in (200, 400, 413, 415, 422), (path.name, response.text)
            if response.status_code != 200:
                error = response.json()["error"]
                assert not unsafe.search(error["message"]), (path.name, error)
    assert outcomes[200] > 300
    assert client.get("/health/ready").status_code == 200
    status = Path(f"/proc/{server.popen.pid}/status")
    if status.is_file():
        [peak] = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
        assert int(peak) / 1024 < PEAK_MIB


def test_sigterm_lets_an_answer_finish(random_bundle: Path) -> None:
    prompt = {"text": "What is this?", "max_tokens": 200, "temperature": 5, "seed": 1}
    with serve(random_bundle) as server, server.ready() as client:
        with client.stream("POST", f"{ASK}?stream=1", json={"prompt": prompt}) as response:
            chunks = response.iter_text()
            text = next(chunks)
            server.terminate()
            text += "".join(chunks)
        assert events(text)[-1][0] == "done"
        assert server.wait() == 0
        assert server.noise == []


def test_the_command_line_gives_the_servers_answer(client: httpx.Client, random_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(picture())
    command = [sys.executable, "-m", "foveola", "ask", str(file), "What is this?", "--max-tokens", "4"]
    command += ["--bundle", str(random_bundle)]
    plain, as_json = (
        subprocess.run(
            command + more, cwd=ROOT, capture_output=True, encoding="utf-8", check=True, timeout=PATIENCE_S
        ).stdout
        for more in ([], ["--json"])
    )
    served = client.post(ASK, files=form(picture())).json()
    reply = json.loads(as_json)
    assert plain == reply["text"] + "\n" == served["text"] + "\n"
    assert reply["model_hash"] == served["model_hash"]
    assert set(reply) == set(served)


def test_a_damaged_bundle_is_refused_by_name(random_bundle: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in random_bundle.iterdir():
        data = file.read_bytes()
        (damaged / file.name).write_bytes(data[:-1] if file.name == "decoder.onnx" else data)
    with serve(damaged) as server:
        assert server.wait() == 2
    [line] = [line for line in server.log if line["event"] == "load_failed"]
    assert "decoder.onnx" in line["message"]
    file = tmp_path / "a.png"
    file.write_bytes(picture())
    command = [sys.executable, "-m", "foveola", "ask", str(file), "a", "--bundle", str(damaged)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("foveola: decoder.onnx")
