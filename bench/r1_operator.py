"""The operator against an emulated API, with kubectl: what it makes, how it rolls back, who follows when it dies.

The API is an emulation (no scheduler, no controllers, no authorisation) and Prometheus is a stand-in that says what the
case wants; operator and kubectl are real processes. Seconds are bounded by the look interval (0.3 s) and the machine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foveola.bench.evidence import Bar, Script, Tell
from foveola.rollout.crd import crds

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LOOKS = 5


def _seconds(until: Callable[[Callable[[], Any]], None], condition: Callable[[], Any]) -> float:
    began = time.monotonic()
    until(condition)
    return round(time.monotonic() - began, 2)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    from tests.rollout.making import Lab, canary, model

    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder)) as lab:
        lab.apply({"apiVersion": "v1", "kind": "List", "items": list(crds())})
        first = lab.operate()
        lab.apply(model(canary=canary(intervalSeconds=3600)))
        tell("a canary of 10 %")
        made_s = _seconds(lab.until, lambda: lab.status().get("weights") == {"v1": 90, "v2": 10})
        kinds = ("deployments", "services", "configmaps", "poddisruptionbudgets")
        before = lab.api.call(
            lambda: {key: item["metadata"]["resourceVersion"] for key, item in lab.api.objects.items()}
        )
        lab.api.requests.clear()
        lab.until(lambda: sum(path.endswith("ocr-envoy") for _, path in list(lab.api.requests)) >= LOOKS)
        after = lab.api.call(
            lambda: {key: item["metadata"]["resourceVersion"] for key, item in lab.api.objects.items()}
        )
        changed = [key[3] for key in after if before.get(key) != after[key] and key[1] in kinds]
        tell("drift rises")
        lab.prometheus.told["foveola_drift_rule_mean"] = 0.6
        back_s = _seconds(lab.until, lambda: lab.status()["canary"]["phase"] == "RolledBack")
        reason = lab.status()["canary"]["reason"]
        tell("the operator is killed")
        second = lab.operate()
        first.send_signal(signal.SIGKILL)
        lab.kubectl("delete", "deployment", "ocr-v1", "--wait=false")
        followed_s = _seconds(lab.until, lambda: lab.api.find("deployments", "ocr-v1") is not None)
        holder = lab.api.find("leases", "foveola-operator")["spec"]["holderIdentity"]  # type: ignore[index]
        kept = lab.status()["canary"]["phase"]
        lab.kubectl("delete", "vlm", "ocr", "--timeout=120s")
        left = sum(len(lab.api.names(kind)) for kind in kinds)
    figures = {
        "seconds_to_make": made_s, "looks_without_change": LOOKS, "seconds_to_roll_back": back_s, "reason": reason,
        "seconds_to_follow": followed_s, "lease_s": 3,
    }  # fmt: skip
    return figures, [
        Bar("objects that further looks changed", len(changed), 0, at_most=True),
        Bar("rolled back with its reason", float("drift" in reason), 1),
        Bar(
            "the next operator follows and keeps the state",
            float(str(second.pid) in holder and kept == "RolledBack"),
            1,
        ),
        Bar("objects left after removal", left, 0, at_most=True),
    ]


SCRIPT = Script("r1", "operator", __doc__, run)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
