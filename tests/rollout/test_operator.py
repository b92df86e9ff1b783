"""The operator as a process against the emulated API, kubectl beside it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rollout.making import Lab, canary, model, split

pytest.importorskip("kopf", reason="the extra `rollout` is not installed")

from foveola.exchange import Invalid
from foveola.observe.definitions import QUEUED
from foveola.rollout.crd import crds
from foveola.rollout.objects import objects_of, owner_of
from foveola.rollout.release import release_of


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path) as one:
        one.apply({"apiVersion": "v1", "kind": "List", "items": list(crds())})
        yield one


def weights(lab: Lab) -> list[tuple[str, int]]:
    found = lab.api.find("configmaps", "ocr-envoy")
    if found is None:
        return []
    table = json.loads(found["data"]["rds.json"])["resources"][0]["virtual_hosts"][0]["routes"]
    return [(one["name"], one["weight"]) for one in table[-1]["route"]["weighted_clusters"]["clusters"]]


def scaled(least: int, most: int) -> dict[str, object]:
    one = model()
    one["spec"]["versions"][0]["autoscale"] = {"minReplicas": least, "maxReplicas": most, "queuePerReplica": 2.5}
    return one


def test_an_autoscaler_chooses_the_number_and_the_operator_leaves_it_alone() -> None:
    body = {**scaled(2, 6), "metadata": {"name": "ocr", "namespace": "plant", "uid": "u"}}
    found = objects_of(release_of(body), {"v1": 80, "v2": 20}, owner_of(body))
    numbers = {one["metadata"]["name"]: one["spec"].get("replicas") for one in found if one["kind"] == "Deployment"}
    assert numbers == {"ocr-v1": None, "ocr-v2": 1}
    (one,) = [one for one in found if one["kind"] == "HorizontalPodAutoscaler"]
    spec = one["spec"]
    assert (spec["scaleTargetRef"]["name"], spec["minReplicas"], spec["maxReplicas"]) == ("ocr-v1", 2, 6)
    assert spec["metrics"][0]["pods"]["metric"]["name"] == QUEUED.series
    assert spec["metrics"][0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "2500m"}


def test_more_replicas_at_least_than_at_most_are_refused() -> None:
    with pytest.raises(Invalid, match="v1 may have 6 to 2 replicas; minReplicas must not exceed maxReplicas"):
        release_of(scaled(6, 2))


@pytest.mark.process
@pytest.mark.slow
def test_an_autoscaler_comes_and_goes_with_the_declaration(lab: Lab) -> None:
    lab.operate()
    lab.apply(scaled(2, 6))
    lab.until(lambda: lab.api.names("horizontalpodautoscalers") == ["ocr-v1"])
    lab.api.make_available()
    lab.until(lambda: lab.status().get("phase") == "Ready")
    lab.apply(model())
    lab.until(lambda: lab.api.names("horizontalpodautoscalers") == [])


@pytest.mark.process
@pytest.mark.slow
def test_from_declaration_to_removal(lab: Lab) -> None:
    lab.operate()
    lab.apply(model())
    lab.until(lambda: lab.status().get("weights") == {"v1": 80, "v2": 20})
    assert lab.api.names("deployments") == ["ocr-v1", "ocr-v2"]
    assert lab.api.names("services") == ["ocr-v1", "ocr-v2"]
    assert lab.api.names("poddisruptionbudgets") == ["ocr-v1", "ocr-v2"]
    assert weights(lab) == [("v1", 80), ("v2", 20)]
    limits = [
        lab.api.find("deployments", f"ocr-{name}")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for name in ("v1", "v2")
    ]  # fmt: skip
    assert limits[0]["nvidia.com/mig-1g.10gb"] == "1"
    assert limits[1]["nvidia.com/gpumem"] == "2048"
    assert lab.status()["phase"] == "Starting"
    lab.api.make_available()
    lab.until(lambda: lab.status()["phase"] == "Ready")
    shown = lab.kubectl("get", "vlm")
    assert "PHASE" in shown
    assert "v1:80 v2:20" in shown
    lab.kubectl("wait", "vlm/ocr", "--for=condition=Ready", "--timeout=240s")
    # Somebody deletes what is ours: it comes again. A version is taken out: its things go.
    lab.kubectl("delete", "deployment", "ocr-v1", "--wait=false")
    lab.until(lambda: lab.api.find("deployments", "ocr-v1") is not None)
    one = model()
    one["spec"]["versions"] = one["spec"]["versions"][:1]
    lab.apply(one)
    lab.until(lambda: lab.api.names("deployments") == ["ocr-v1"])
    assert weights(lab) == [("v1", 100)]
    lab.kubectl("delete", "vlm", "ocr", "--timeout=240s")
    assert lab.api.names("visionlanguagemodels") == []
    assert lab.api.names("deployments") == lab.api.names("configmaps") == lab.api.names("services") == []


@pytest.mark.process
@pytest.mark.slow
def test_a_canary_is_promoted_and_another_rolled_back_with_its_reason(lab: Lab) -> None:
    lab.operate()
    lab.apply(model(canary=canary()))
    lab.until(lambda: lab.status().get("canary", {}).get("phase") == "Promoted")
    assert weights(lab) == [("v2", 100)]
    # A new image is another canary. Drift rises.
    lab.prometheus.told["foveola_drift_rule_mean"] = 0.6
    one = model(canary=canary())
    one["spec"]["versions"][1]["image"] = "foveola:3"
    lab.apply(one)
    lab.until(lambda: lab.status().get("canary", {}).get("phase") == "RolledBack")
    assert lab.status()["canary"]["reason"] == "similarity of attention (drift) 0.6, allowed 0.82"
    assert lab.status()["weights"] == {"v1": 100, "v2": 0}
    assert weights(lab) == [("v1", 100)]
    found = {one["type"]: one for one in lab.status()["conditions"]}
    assert (found["CanaryHealthy"]["status"], found["CanaryHealthy"]["reason"]) == ("False", "RolledBack")
    assert "RolledBack" in lab.kubectl("get", "vlm", "ocr")
    assert any('vlm="ocr",version="v2"' in query for query in lab.prometheus.asked)


@pytest.mark.process
@pytest.mark.slow
def test_an_operator_that_is_killed_is_followed_by_the_next(lab: Lab) -> None:
    first = lab.operate()
    lab.apply(model(canary=canary(intervalSeconds=3600)))
    lab.until(lambda: lab.status().get("weights") == {"v1": 90, "v2": 10})
    second = lab.operate()
    lease = lambda: lab.api.find("leases", "foveola-operator")["spec"]  # noqa: E731
    assert lease()["holderIdentity"].endswith(f"-{first.pid}")
    since = lab.status()["canary"]["since"]
    first.send_signal(signal.SIGKILL)
    lab.apply(model(canary=canary(intervalSeconds=3600, paused=True)))
    lab.until(lambda: lab.status()["canary"]["phase"] == "Paused")
    assert lease()["holderIdentity"].endswith(f"-{second.pid}")
    assert lease()["leaseTransitions"] == 2
    # Where the canary stood is in the status: nothing began anew.
    assert lab.status()["canary"]["since"] == since
    assert lab.status()["weights"] == {"v1": 90, "v2": 10}


@pytest.mark.process
@pytest.mark.slow
def test_two_backends_as_two_services(lab: Lab) -> None:
    lab.operate()
    lab.apply(split(routes=[{"prefix": "/v1/features", "backend": "vision"}]))
    lab.until(lambda: lab.status("pair", "vlmservices").get("topology") == "split")
    assert lab.api.names("deployments") == ["pair-language", "pair-vision"]
    language = lab.api.find("deployments", "pair-language")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "FOVEOLA_SERVE_VISION_URL", "value": "http://pair-vision.plant.svc:8080"} in language
    assert lab.api.names("resourceclaimtemplates") == ["pair-vision"]
    routes = lab.api.find("configmaps", "pair-routes")["data"]["routes"]
    assert routes == "/ pair-language:8080\n/v1/features pair-vision:8080\n"
    one = split(topology="single")
    one["spec"]["language"]["image"] = "foveola:vision"
    lab.apply(one)
    lab.until(lambda: lab.api.names("deployments") == ["pair-serve"])


@pytest.mark.process
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"versions": []}, "spec.versions"),
        ({"canary": {"version": "v9"}}, "canary.version must name a version"),
        ({"wide": "v9"}, "wide must name a version"),
        ({"versions": [{"name": "a", "image": "i"}]}, "at least one version needs a weight above 0"),
        ({"versions": [{"name": "a", "image": "i", "weight": 1}] * 2}, "every version needs a name of its own"),
        ({"versions": [{"name": "a", "image": "i", "weight": 101}]}, "101 is greater than the maximum of 100"),
        ({"versions": [{"name": "a", "image": "i", "weight": 1, "gpu": {"mode": "mig", "model": "h100-80gb"}}]},
         "mig and dra need a fraction such as 1/7"),
    ],
)  # fmt: skip
def test_the_api_refuses_what_cannot_be(lab: Lab, change: dict[str, object], message: str) -> None:
    assert message in lab.apply(model(**change), fails=True)


@pytest.mark.process
@pytest.mark.slow
def test_what_only_the_operator_can_see_is_told_and_changes_nothing(lab: Lab) -> None:
    lab.operate()
    lab.apply(model())
    lab.until(lambda: lab.status().get("weights") == {"v1": 80, "v2": 20})
    one = model()
    one["spec"]["versions"][0]["gpu"]["fraction"] = "5/7"
    lab.apply(one)
    lab.until(lambda: lab.status().get("phase") == "Invalid")
    (valid,) = [one for one in lab.status()["conditions"] if one["type"] == "Valid"]
    assert "cannot be cut into '5/7'; it can into: 1/7 (1g.10gb), 2/7" in valid["message"]
    assert lab.api.names("deployments") == ["ocr-v1", "ocr-v2"]
