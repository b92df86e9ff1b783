"""Declarations, a Prometheus that says what a test wants, and clients of the emulated API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlparse

import pytest
import yaml

from tests.bridge.broker import PATIENCE_S
from tests.rollout.api_server import ApiServer

ROOT = Path(__file__).resolve().parents[2]


def model(**spec: Any) -> dict[str, Any]:
    versions = [
        {"name": "v1", "image": "foveola:1", "weight": 80, "maxConcurrency": 12,
         "gpu": {"mode": "mig", "model": "h100-80gb", "fraction": "1/7"}},
        {"name": "v2", "image": "foveola:2", "weight": 20, "maxConcurrency": 3,
         "gpu": {"mode": "vgpu", "model": "a100-40gb", "memoryMiB": 2048}},
    ]  # fmt: skip
    return {
        "apiVersion": "vlms.ai/v1alpha1", "kind": "VisionLanguageModel",
        "metadata": {"name": "ocr", "namespace": "plant"}, "spec": {"versions": versions, **spec},
    }  # fmt: skip


def canary(**more: Any) -> dict[str, Any]:
    analysis = {"minRequests": 10, "failures": 2}
    return {"version": "v2", "steps": [10, 50], "intervalSeconds": 0.2, "analysis": analysis, **more}


def split(**more: Any) -> dict[str, Any]:
    vision = {"model": "CLIP-ViT-L/14", "image": "foveola:vision",
              "gpu": {"mode": "dra", "model": "h200-141gb", "fraction": "1/7"}}  # fmt: skip
    language = {"model": "Phi-3", "image": "foveola:language"}
    return {
        "apiVersion": "vlms.ai/v1alpha1", "kind": "VLMService", "metadata": {"name": "pair", "namespace": "plant"},
        "spec": {"topology": "split", "vision": vision, "language": language, **more},
    }  # fmt: skip


class Prometheus:
    """Answers instant queries by the name of the metric that stands in them; ``told`` is what a test sets."""

    def __init__(self) -> None:
        self.told: dict[str, float] = {}
        self.asked: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlparse(self.path).query)["query"][0]
                owner.asked.append(query)
                name = re.findall(r"(ocr_accuracy_rate|ocr_latency_seconds_bucket|foveola_\w+|ocr_qps_total)\{", query)[
                    0
                ]
                value = owner.told.get(name)
                result = [] if value is None else [{"metric": {}, "value": [0, str(value)]}]
                text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def healthy(self) -> None:
        self.told = {
            "ocr_qps_total": 100, "foveola_refused_total": 0.0, "ocr_latency_seconds_bucket": 0.3,
            "ocr_accuracy_rate": 0.97, "foveola_drift_rule_mean": 0.9,
        }  # fmt: skip

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Lab:
    """The emulated API with our CRDs, kubectl, and operators as processes."""

    def __init__(self, folder: Path) -> None:
        self.api, self.prometheus = ApiServer(), Prometheus()
        self.prometheus.healthy()
        self.folder = folder
        self.config = folder / "kubeconfig"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "lab",
                    "clusters": [{"name": "lab", "cluster": {"server": self.api.url}}],
                    "users": [{"name": "lab", "user": {}}],
                    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": "plant"}}],
                }
            )
        )  # fmt: skip
        self._operators: list[subprocess.Popen[bytes]] = []

    def environ(self) -> dict[str, str]:
        paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "KUBECONFIG": str(self.config), "HOME": str(self.folder)}
        # The emulated API sends no initial events, for which kubectl would wait a minute before it lists.
        return {"PATH": os.environ["PATH"], "KUBE_FEATURE_WatchListClient": "false", **paths}

    def kubectl(self, *words: str, given: Any = None, fails: bool = False) -> str:
        binary = Path(sys.executable).parent / "kubectl"
        if not binary.exists():
            pytest.skip("kubectl is not installed (extra: clusters)")
        text = None if given is None else json.dumps(given)
        done = subprocess.run([binary, *words], input=text, capture_output=True, text=True, env=self.environ())
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    def apply(self, item: Any, *, fails: bool = False) -> str:
        return self.kubectl("apply", "--server-side", "--validate=false", "-f", "-", given=item, fails=fails)

    def operate(self, prometheus: str | None = None) -> subprocess.Popen[bytes]:
        url = prometheus or self.prometheus.url
        words = ["rollout", "operate", "--namespace", "plant", "--prometheus", url, "--look-s", "0.3", "--lease-s", "3"]
        one = subprocess.Popen(
            [sys.executable, "-m", "foveola", *words], env=self.environ(), cwd=ROOT,
            stderr=(self.folder / f"operator{len(self._operators)}.log").open("wb"),
        )  # fmt: skip
        self._operators.append(one)
        return one

    def status(self, name: str = "ocr", plural: str = "visionlanguagemodels") -> dict[str, Any]:
        return (self.api.find(plural, name) or {}).get("status", {})

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + 2 * PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, (self.status(), self.log())
            time.sleep(0.1)

    def log(self) -> str:
        return "".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("operator*.log")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._operators:
            one.kill()
            one.wait()
        self.api.close()
        self.prometheus.close()
