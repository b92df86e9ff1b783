"""What the operator wants to exist for a release: plain Kubernetes objects, made by pure functions."""

from __future__ import annotations

from typing import Any

from foveola.exchange import Invalid
from foveola.rollout.envoy import files_of
from foveola.rollout.gpu import Claim, claim_of
from foveola.rollout.release import API_VERSION, GROUP, Autoscale, Gpu, Release, Version

Json = dict[str, Any]
MANAGER = "foveola-operator"
WEIGHT, CONCURRENCY = "vlms.ai/weight", "vlms.ai/max-concurrency"
"""Annotations of a pod that the scheduler extender reads."""
QUEUE_METRIC = "foveola_queue_depth"
POD_SECURITY: Json = {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001,
                      "seccompProfile": {"type": "RuntimeDefault"}}  # fmt: skip
SECURITY: Json = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def owner_of(body: Json) -> Json:
    """The owner reference by which children go when their parent goes."""
    return {
        "apiVersion": body.get("apiVersion", f"{GROUP}/{API_VERSION}"), "kind": body["kind"],
        "name": body["metadata"]["name"], "uid": body["metadata"]["uid"], "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip


def _metadata(name: str, namespace: str, labels: Json, owner: Json) -> Json:
    common = {"app.kubernetes.io/managed-by": MANAGER}
    return {"name": name, "namespace": namespace, "labels": {**common, **labels}, "ownerReferences": [owner]}


def deployment(
    name: str, namespace: str, labels: Json, owner: Json, *, image: str, replicas: int | None, port: int, env: Json,
    cpu: str = "1", memory: str = "2Gi", claim: Claim | None = None, notes: Json | None = None,
) -> Json:  # fmt: skip
    """One Deployment under restricted pod security, with probes, scrape annotations and its GPU.

    ``replicas`` None: an autoscaler chooses, and the operator must not own the number.
    """
    limits: Json = {"cpu": cpu, "memory": memory, **(claim.limits if claim else {})}
    resources: Json = {"requests": {"cpu": cpu, "memory": memory}, "limits": limits}
    if claim and claim.claims:
        resources["claims"] = list(claim.claims)
    container: Json = {
        "name": "serve",
        "image": image,
        "ports": [{"name": "http", "containerPort": port}],
        "env": [{"name": key, "value": str(value)} for key, value in sorted(env.items())],
        "resources": resources,
        "readinessProbe": {"httpGet": {"path": "/health/ready", "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"httpGet": {"path": "/health/live", "port": "http"}, "periodSeconds": 10},
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod: Json = {
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": 45,  # the server drains for 30
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if claim and claim.pod_claims:
        pod["resourceClaims"] = list(claim.pod_claims)
    scrape = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}
    notes = {**scrape, **(notes or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(name, namespace, labels, owner),
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": pod},
        },
    }


def service(name: str, namespace: str, labels: Json, owner: Json, port: int) -> Json:
    """A Service in front of one Deployment."""
    ports = [{"name": "http", "port": port, "targetPort": "http"}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name, namespace, labels, owner),
            "spec": {"selector": labels, "ports": ports}}  # fmt: skip


def disruption_budget(name: str, namespace: str, labels: Json, owner: Json) -> Json:
    """One pod at a time may be evicted."""
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": _metadata(name, namespace, labels, owner),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}}  # fmt: skip


def autoscaler(name: str, namespace: str, labels: Json, owner: Json, scale: Autoscale) -> Json:
    """A HorizontalPodAutoscaler by requests that wait in each pod, which an adapter serves from Prometheus.

    It grows at once and shrinks slowly: a replica that loads a model is of no use for a minute.
    """
    metric = {"type": "Pods", "pods": {"metric": {"name": QUEUE_METRIC},
              "target": {"type": "AverageValue", "averageValue": f"{round(scale.queue * 1000)}m"}}}  # fmt: skip
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(name, namespace, labels, owner),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": scale.least,
            "maxReplicas": scale.most,
            "metrics": [metric],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        },
    }


def version_labels(release: Release, version: Version) -> Json:
    """Labels of a version's pods; Prometheus takes ``vlm`` and ``version`` from them."""
    return {"vlms.ai/model": release.name, "vlms.ai/version": version.name}


def _claim(gpu: Gpu | None, name: str, namespace: str) -> Claim | None:
    return claim_of(gpu, name, namespace) if gpu else None


def objects_of(release: Release, weights: dict[str, int], owner: Json) -> list[Json]:
    """Everything for a VisionLanguageModel. Raises ``Invalid`` for a GPU that cannot be had."""
    found: list[Json] = []
    for version in release.versions:
        name = f"{release.name}-{version.name}"
        labels = version_labels(release, version)
        claim = _claim(version.gpu, name, release.namespace)
        if claim and claim.template:
            template = dict(claim.template)
            template["metadata"] = _metadata(name, release.namespace, labels, owner)
            found.append(template)
        env: Json = {"FOVEOLA_SERVE_HOST": "0.0.0.0", "FOVEOLA_SERVE_PORT": release.port,
                     "FOVEOLA_SERVE_MAX_REQUESTS": max(version.max_concurrency, 1)}  # fmt: skip
        if version.bundle:
            env["FOVEOLA_SERVE_BUNDLE"] = version.bundle
        found.append(
            deployment(
                name, release.namespace, labels, owner, image=version.image,
                replicas=None if version.autoscale else version.replicas,
                port=release.port, env=env, cpu=version.cpu, memory=version.memory, claim=claim,
                # The declared weight: a canary's present one would start every pod anew at each step.
                notes={WEIGHT: str(version.weight), CONCURRENCY: str(version.max_concurrency)},
            )
        )  # fmt: skip
        found.append(service(name, release.namespace, labels, owner, release.port))
        found.append(disruption_budget(name, release.namespace, labels, owner))
        if version.autoscale:
            found.append(autoscaler(name, release.namespace, labels, owner, version.autoscale))
    files = files_of(
        release, weights, {one.name: (f"{release.name}-{one.name}", release.port) for one in release.versions}
    )
    found.append(
        {"apiVersion": "v1", "kind": "ConfigMap",
         "metadata": _metadata(f"{release.name}-envoy", release.namespace, {"vlms.ai/model": release.name}, owner),
         "data": files}
    )  # fmt: skip
    return found


def service_objects(body: Json) -> list[Json]:
    """Everything for a VLMService: one process, or a vision and a language service with features sent between them."""
    spec, namespace, name = body["spec"], body["metadata"].get("namespace", "default"), body["metadata"]["name"]
    owner, port = owner_of(body), spec.get("port", 8080)
    single = spec.get("topology", "single") == "single"
    if single and spec["vision"]["image"] != spec["language"]["image"]:
        raise Invalid("In one process both backends have one image; name the same, or topology: split.", field="spec")
    found: list[Json] = []
    for role in ("serve",) if single else ("vision", "language"):
        backend = spec["language" if single else role]
        gpu = backend.get("gpu") or (spec["vision"].get("gpu") if single else None)
        part = f"{name}-{role}"
        labels = {"vlms.ai/service": name, "vlms.ai/role": role}
        env: Json = {"FOVEOLA_SERVE_HOST": "0.0.0.0", "FOVEOLA_SERVE_PORT": port}
        if backend.get("bundle"):
            env["FOVEOLA_SERVE_BUNDLE"] = backend["bundle"]
        if not single:
            env["FOVEOLA_SERVE_ROLE"] = role
        if role == "language":
            env["FOVEOLA_SERVE_VISION_URL"] = f"http://{name}-vision.{namespace}.svc:{port}"
        claim = None
        if gpu:
            claim = claim_of(Gpu(gpu["mode"], gpu["model"], gpu.get("fraction"), gpu.get("memoryMiB")), part, namespace)
            if claim.template:
                found.append({**claim.template, "metadata": _metadata(part, namespace, labels, owner)})
        found.append(
            deployment(part, namespace, labels, owner, image=backend["image"], replicas=backend.get("replicas", 1),
                       port=port, env=env, claim=claim)
        )  # fmt: skip
        found.append(service(part, namespace, labels, owner, port))
        found.append(disruption_budget(part, namespace, labels, owner))
    routes = {one["prefix"]: f"{name}-{'serve' if single else one['backend']}" for one in spec.get("routes", [])}
    routes.setdefault("/", f"{name}-{'serve' if single else 'language'}")
    lines = "".join(f"{prefix} {target}:{port}\n" for prefix, target in sorted(routes.items()))
    found.append(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": _metadata(f"{name}-routes", namespace, {"vlms.ai/service": name}, owner),
            "data": {"routes": lines},
        }
    )
    return found
