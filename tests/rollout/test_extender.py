from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from foveola.rollout.extender import create_extender

POD = {
    "metadata": {"name": "v1-x", "labels": {"vlms.ai/version": "v1"}},
    "spec": {"containers": [{"resources": {"limits": {"nvidia.com/mig-3g.40gb": "1"}}}]},
}


def node(name: str, profiles: list[str], *, gpus: int = 1, model: str = "h100-80gb") -> dict[str, Any]:
    slices = [{"name": f"x{i}", "profile": profile} for i, profile in enumerate(profiles)]
    return {
        "metadata": {
            "name": name,
            "labels": {"vlms.ai/gpu-model": model, "vlms.ai/gpus": str(gpus)},
            "annotations": {"vlms.ai/slices": json.dumps(slices)},
        }
    }


@pytest.fixture
def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(create_extender()), base_url="http://extender")


async def test_full_nodes_are_left_out_with_a_reason(client: httpx.AsyncClient) -> None:
    nodes = [
        node("free", []),
        node("half", ["3g.40gb"]),
        node("full", ["3g.40gb", "3g.40gb"]),
        node("none", [], model="a100-40gb"),
        {"metadata": {"name": "odd", "labels": {"vlms.ai/gpus": "many"}}},
    ]
    reply = (await client.post("/filter", json={"Pod": POD, "Nodes": {"items": nodes}})).json()
    assert [one["metadata"]["name"] for one in reply["Nodes"]["items"]] == ["free", "half"]
    assert reply["FailedNodes"] == {
        "full": "no free 3g.40gb on its 1 GPUs",
        "none": "its GPUs (a100-40gb) have no profile 3g.40gb",
        "odd": "its labels or annotations of vlms.ai cannot be read",
    }
    scores = (await client.post("/prioritize", json={"Pod": POD, "Nodes": {"items": nodes[:2]}})).json()
    assert {one["Host"]: one["Score"] for one in scores} == {"free": 4, "half": 9}


async def test_a_pod_without_a_slice_fits_everywhere(client: httpx.AsyncClient) -> None:
    plain = {"metadata": {"name": "p"}, "spec": {"containers": [{}]}}
    reply = (await client.post("/filter", json={"Pod": plain, "Nodes": {"items": [node("full", ["7g.80gb"])]}})).json()
    assert reply["FailedNodes"] == {}
