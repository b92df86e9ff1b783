from __future__ import annotations

from foveola.rollout.canary import Observed
from foveola.rollout.prometheus import observe, queries
from tests.rollout.making import Prometheus


async def test_figures_come_from_prometheus() -> None:
    prometheus = Prometheus()
    prometheus.healthy()
    del prometheus.told["foveola_refused_total"]
    try:
        assert await observe(prometheus.url, "plant", "ocr", "v2", 30.0) == Observed(100.0, 0.0, 0.3, 0.97, 0.9)
        prometheus.told.clear()
        assert await observe(prometheus.url, "plant", "ocr", "v2", 30.0) == Observed()
    finally:
        prometheus.close()


async def test_a_prometheus_that_is_away_says_nothing() -> None:
    assert await observe("http://127.0.0.1:1", "plant", "ocr", "v2", 30.0) == Observed()


def test_the_window_is_the_time_of_the_step() -> None:
    assert queries("plant", "ocr", "v2", 12.3)["requests"] == (
        'sum(increase(ocr_qps_total{namespace="plant",vlm="ocr",version="v2"}[13s]))'
    )
