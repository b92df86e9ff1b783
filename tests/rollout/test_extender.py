from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from foveola.rollout.extender import create_extender
from foveola.rollout.objects import objects_of, owner_of
from foveola.rollout.release import release_of
from tests.rollout.making import model

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


def pod(weight: str, concurrency: str) -> dict[str, Any]:
    notes = {"vlms.ai/weight": weight, "vlms.ai/max-concurrency": concurrency}
    return {**POD, "metadata": {**POD["metadata"], "annotations": notes}}


def busy(name: str, concurrency: int, weight: int, profiles: list[str]) -> dict[str, Any]:
    one = node(name, profiles)
    running = [*json.loads(one["metadata"]["annotations"]["vlms.ai/slices"]), {"name": "y", "concurrency": concurrency}]
    running[-1]["weight"] = weight
    one["metadata"]["annotations"]["vlms.ai/slices"] = json.dumps(running)
    one["metadata"]["labels"]["vlms.ai/max-concurrency"] = "16"
    return one


async def test_a_node_answers_no_more_at_once_than_its_label_says(client: httpx.AsyncClient) -> None:
    nodes = [busy("room", 4, 0, []), busy("taken", 5, 0, []), node("unlimited", [])]
    reply = (await client.post("/filter", json={"Pod": pod("80", "12"), "Nodes": {"items": nodes}})).json()
    assert [one["metadata"]["name"] for one in reply["Nodes"]["items"]] == ["room", "unlimited"]
    assert reply["FailedNodes"] == {"taken": "5 of its 16 requests at once are taken and the pod needs 12"}


async def test_heavy_versions_are_spread_and_light_ones_packed(client: httpx.AsyncClient) -> None:
    nodes = [busy("loaded", 0, 80, ["3g.40gb"]), busy("idle", 0, 0, [])]

    async def best(weight: str) -> str:
        asked = {"Pod": pod(weight, "1"), "Nodes": {"items": nodes}}
        scores = (await client.post("/prioritize", json=asked)).json()
        return str(max(scores, key=lambda one: one["Score"])["Host"])

    assert await best("90") == "idle"
    assert await best("5") == "loaded"


async def test_a_weight_that_is_no_number_is_refused(client: httpx.AsyncClient) -> None:
    reply = await client.post("/filter", json={"Pod": pod("5", "lots"), "Nodes": {"items": [node("free", [])]}})
    assert reply.status_code == 422
    expected = "The pod's annotation vlms.ai/max-concurrency is 'lots'; expected a whole number from 0."
    assert reply.json()["Error"] == expected
    assert (await client.post("/filter", json={})).status_code == 422


def test_the_operator_writes_what_the_extender_reads() -> None:
    release = release_of(model())
    found = objects_of(release, {"v1": 80, "v2": 20}, owner_of({**model(), "metadata": {"name": "ocr", "uid": "u"}}))
    notes = [one["spec"]["template"]["metadata"]["annotations"] for one in found if one["kind"] == "Deployment"]
    assert [(one["vlms.ai/weight"], one["vlms.ai/max-concurrency"]) for one in notes] == [("80", "12"), ("20", "3")]
