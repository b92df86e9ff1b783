"""What Prometheus knows about one version of a release."""

from __future__ import annotations

import math
from typing import Any

import aiohttp

from foveola.rollout.canary import Observed

TIMEOUT_S = 5.0


def queries(namespace: str, model: str, version: str, window_s: float) -> dict[str, str]:
    """PromQL by the field of ``Observed``; the labels are those that the operator's scrape annotations bring."""
    chosen = f'namespace="{namespace}",vlm="{model}",version="{version}"'
    window = f"[{max(1, math.ceil(window_s))}s]"
    total = f"sum(increase(ocr_qps_total{{{chosen}}}{window}))"
    return {
        "requests": total,
        "error_rate": f"sum(increase(foveola_refused_total{{{chosen}}}{window})) / ({total} > 0)",
        "latency_s": "histogram_quantile(0.95, sum by (le) (rate("
        f"ocr_latency_seconds_bucket{{{chosen}}}{window})))",
        "accuracy": f"avg(avg_over_time(ocr_accuracy_rate{{{chosen}}}{window}))",
        "drift_share": f"max(max_over_time(foveola_drift_share{{{chosen}}}{window}))",
        "similarity": f"avg(avg_over_time(foveola_drift_rule_mean{{{chosen}}}{window}))",
    }  # fmt: skip


async def observe(url: str, namespace: str, model: str, version: str, window_s: float) -> Observed:
    """Ask for all of it. A question that has no answer is None; an error rate without errors is 0.

    A Prometheus that cannot be reached answers nothing, so that a canary waits instead of going on blindly.
    """
    found: dict[str, float | None] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
        for name, query in queries(namespace, model, version, window_s).items():
            found[name] = await _one(session, url, query)
    if found["requests"] and found["error_rate"] is None:
        found["error_rate"] = 0.0
    return Observed(**found)


async def _one(session: aiohttp.ClientSession, url: str, query: str) -> float | None:
    try:
        async with session.get(f"{url.rstrip('/')}/api/v1/query", params={"query": query}) as reply:
            if reply.status != 200:
                return None
            body: Any = await reply.json(content_type=None)
        result = body["data"]["result"]
        value = float(result[0]["value"][1]) if result else None
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError, TypeError):
        return None
    return None if value is None or math.isnan(value) else value
