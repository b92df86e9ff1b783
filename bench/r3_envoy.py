"""Weights, switches and large bodies through the real Envoy in front of two real servers with the embedded model.

Which server answered is told by Envoy's header. Under load the weights are switched, then rolled back; a request
counts as failed when its status is not 200.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.server import Client, ServerProcess
from foveola.bench.stats import percentile
from foveola.bench.work import generated_items
from foveola.serve.embedded import embedded_bundle

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LARGE_BYTES = 20_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=1000, metavar="N")


def _large() -> bytes:
    """A PNG of noise a little above 20 MB: it cannot be compressed."""
    pixels = np.random.default_rng(1).integers(0, 256, (2595, 2595, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=0)
    return out.getvalue()


def _load(url: str, stop: threading.Event, codes: Counter[int], latencies: list[float]) -> None:
    items = generated_items(4)
    with httpx.Client(base_url=url, timeout=120.0) as client:
        index = 0
        while not stop.is_set():
            began = time.perf_counter()
            reply = client.post(
                "/v1/vlm/invoke", files={"image": ("a.png", items[index % 4].image, "image/png")},
                data={"prompt": '{"text": "what is wrong?", "max_tokens": 8}'},
            )  # fmt: skip
            codes[reply.status_code] += 1
            latencies.append((time.perf_counter() - began) * 1000)
            index += 1


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    from tests.rollout.envoy_process import Envoy, release

    count, settle = (100, 3) if arguments.quick else (arguments.requests, 40)
    bundle = embedded_bundle()
    with ServerProcess(bundle, 1) as first, ServerProcess(bundle, 1) as second, tempfile.TemporaryDirectory() as folder:
        endpoints = {"v1": ("127.0.0.1", first.port()), "v2": ("127.0.0.1", second.port())}
        first.wait_ready()
        second.wait_ready()
        with (
            Envoy(Path(folder), endpoints, release()) as envoy,
            httpx.Client(base_url=envoy.url, timeout=120.0) as client,
        ):
            tell(f"{count} requests at 80 : 20")
            got = Counter(client.get("/version").headers["x-foveola-version"] for _ in range(count))
            off = abs(got["v1"] / count - 0.8)
            tell("switch and roll back under load")
            stop, codes, through = threading.Event(), Counter[int](), list[float]()
            threads = [
                threading.Thread(target=_load, args=(envoy.url, stop, codes, through), daemon=True) for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for weights in ({"v1": 50, "v2": 50}, {"v1": 0, "v2": 100}, {"v1": 100, "v2": 0}):
                target = codes.total() + settle
                while codes.total() < target:
                    time.sleep(0.05)
                envoy.publish(weights)
            target = codes.total() + settle
            while codes.total() < target:
                time.sleep(0.05)
            stop.set()
            for thread in threads:
                thread.join()
            tell("a picture of more than 20 MB")
            picture = _large()
            large = client.post(
                "/v1/vlm/invoke", files={"image": ("a.png", picture, "image/png")},
                data={"prompt": '{"text": "what?", "max_tokens": 4}'},
            )  # fmt: skip
            added = _added(envoy.listen, endpoints["v1"][1])
    figures = {
        "requests": count, "v1": got["v1"], "v2": got["v2"], "under_load": dict(codes), "switches": 3,
        "through_envoy_ms": {f"p{p}": round(percentile(through, p), 2) for p in (50, 95)},
        "large_bytes": len(picture), "large_status": large.status_code, "envoy_adds_ms_p50": round(added, 3),
    }  # fmt: skip
    return figures, [
        Bar("weights off by, share", off, 0.02, at_most=True),
        Bar("failed while switched and rolled back", codes.total() - codes[200], 0, at_most=True),
        Bar("largest body answered, bytes", len(picture) if large.status_code == 200 else 0, LARGE_BYTES),
    ]


def _added(through: int, direct: int) -> float:
    """Milliseconds that Envoy adds at the median, of a small request."""
    medians = []
    for port in (through, direct):
        client = Client(port)
        item = generated_items(1)[0]
        taken = [client.invoke(item, 4)[1] * 1000 for _ in range(20)]
        client.close()
        medians.append(percentile(taken, 50))
    return medians[0] - medians[1]


SCRIPT = Script("r3", "envoy", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
