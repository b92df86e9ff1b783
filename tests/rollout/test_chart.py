"""What is in deploy/: the chart with the real helm, container files with the real linter."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rollout.making import ROOT, Lab, canary, model, split
from tests.rollout.write_crds import CHART, texts

BIN = Path(sys.executable).parent


def helm(*words: str, fails: bool = False, env: dict[str, str] | None = None) -> str:
    binary = shutil.which("helm")
    if binary is None:
        pytest.skip("helm is not installed")
    done = subprocess.run([binary, *words], capture_output=True, text=True, env=env, cwd=ROOT)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def rendered(*words: str) -> list[dict[str, Any]]:
    text = helm("template", "x", str(CHART), "--namespace", "plant", "--set", "extender.enabled=true", *words)
    return [one for one in yaml.safe_load_all(text) if one]


def valid(path: Path) -> None:
    pytest.importorskip("kubernetes_validate", reason="the schemas of Kubernetes are not installed (extra: clusters)")
    done = subprocess.run([BIN / "kubernetes-validate", "--strict", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_carries_the_crds_of_the_code() -> None:
    for path, text in texts().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m tests.rollout.write_crds"


def test_helm_finds_nothing_wrong() -> None:
    helm("lint", str(CHART), "--strict")
    assert {one["kind"] for one in rendered()} == {
        "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Role", "RoleBinding", "Service", "ServiceAccount",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("replicas=0", "replicas"),
        ("image.tag=latest", "tag"),
        ("prometheusUrl=prometheus", "prometheusUrl"),
        ("replica=1", "replica"),
    ],
)
def test_senseless_values_are_refused(setting: str, message: str) -> None:
    assert message in helm("template", "x", str(CHART), "--set", setting, fails=True)


def test_pods_keep_the_restricted_standard() -> None:
    for one in rendered():
        if one["kind"] != "Deployment":
            continue
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not context["allowPrivilegeEscalation"]
            assert context["readOnlyRootFilesystem"]


def test_rights_are_few() -> None:
    (role,) = [one for one in rendered() if one["kind"] == "Role"]
    for rule in role["rules"]:
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert "secrets" not in rule["resources"]


@pytest.mark.slow
def test_everything_is_valid_kubernetes(tmp_path: Path) -> None:
    pytest.importorskip("kopf", reason="the extra `rollout` is not installed")
    from foveola.rollout.canary import weights_of
    from foveola.rollout.objects import objects_of, service_objects
    from foveola.rollout.release import release_of

    declared = model(canary=canary())
    declared["spec"]["versions"][0]["autoscale"] = {"minReplicas": 2, "maxReplicas": 6}
    release = release_of(declared)
    owner = {"apiVersion": "vlms.ai/v1alpha1", "kind": "VisionLanguageModel", "name": "ocr", "uid": "u"}
    body = split()
    body["metadata"]["uid"] = "u"
    made = [*objects_of(release, weights_of(release, None), owner), *service_objects(body)]
    path = tmp_path / "all.yaml"
    path.write_text("---\n".join(json.dumps(one) + "\n" for one in [*made, *rendered("--include-crds")]))
    valid(path)


@pytest.mark.process
@pytest.mark.slow
def test_helm_installs_upgrades_and_removes_it(tmp_path: Path) -> None:
    helm("version")
    with Lab(tmp_path) as lab:
        where = ("--namespace", "plant")
        helm("install", "fov", str(CHART), *where, "--disable-openapi-validation", env=lab.environ())
        assert lab.api.names("customresourcedefinitions") == ["visionlanguagemodels.vlms.ai", "vlmservices.vlms.ai"]
        assert lab.api.find("deployments", "fov-operator") is not None
        helm(
            "upgrade",
            "fov",
            str(CHART),
            *where,
            "--set",
            "replicas=3",
            "--disable-openapi-validation",
            env=lab.environ(),
        )
        assert lab.api.find("deployments", "fov-operator")["spec"]["replicas"] == 3  # type: ignore[index]
        assert "no matches" not in lab.kubectl("get", "vlm", "-o", "name")
        helm("uninstall", "fov", *where, env=lab.environ())
        assert lab.api.names("deployments") == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "deploy" / "containers").glob("*.Dockerfile")), ids=lambda path: path.stem
)
def test_container_files_are_clean_and_unprivileged(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "USER 10001" in text
    assert ":latest" not in text
    if not (BIN / "hadolint").exists():
        pytest.skip("hadolint is not installed (extra: clusters)")
    done = subprocess.run([BIN / "hadolint", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
