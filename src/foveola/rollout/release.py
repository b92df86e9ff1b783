"""A release: versions of a model with their weights, as it is declared in a VisionLanguageModel. Frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from foveola.exchange import Invalid

GROUP, API_VERSION = "vlms.ai", "v1alpha1"
ASPECT_LIMIT = 1.8
"""Pictures wider (or higher) than this go to the version that is named for them, if one is."""

GpuMode = Literal["mig", "dra", "vgpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A part of a GPU: ``fraction`` of the model named (``1/7``), or ``memory_mib`` for a vGPU."""

    mode: GpuMode
    model: str
    fraction: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Autoscale:
    """Between how many replicas Kubernetes may choose, so that each has ``queue`` requests waiting on average."""

    least: int
    most: int
    queue: float = 1.0


@dataclass(frozen=True, slots=True)
class Version:
    """One version: ``weight`` is its share among all weights, ``max_concurrency`` what one replica answers at once."""

    name: str
    image: str
    weight: int
    replicas: int = 1
    max_concurrency: int = 1
    bundle: str = ""
    gpu: Gpu | None = None
    cpu: str = "1"
    memory: str = "2Gi"
    autoscale: Autoscale | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """When a canary is healthy. Rates 0..1; ``latency_s`` is the 95th percentile."""

    max_error_rate: float = 0.02
    max_latency_s: float = 1.0
    min_accuracy: float = 0.92
    min_similarity: float = 0.82  # the described rule: people know it, and it misses drift that the charts see
    max_drift_share: float = 1.0  # of a drift chart's bound
    min_requests: int = 50
    failures: int = 3


@dataclass(frozen=True, slots=True)
class Canary:
    """How a new version takes over: through these weights (per cent), each for ``interval_s``."""

    version: str
    steps: tuple[int, ...] = (5, 20, 50, 100)
    interval_s: float = 60.0
    paused: bool = False
    analysis: Analysis = field(default_factory=Analysis)


@dataclass(frozen=True, slots=True)
class Release:
    """What one VisionLanguageModel declares. ``wide`` names the version that gets pictures beyond ``ASPECT_LIMIT``."""

    name: str
    namespace: str
    versions: tuple[Version, ...]
    canary: Canary | None = None
    wide: str | None = None
    port: int = 8080

    def __getitem__(self, name: str) -> Version:
        for version in self.versions:
            if version.name == name:
                return version
        known = ", ".join(version.name for version in self.versions)
        raise Invalid(f"There is no version {name!r} in {self.name}; there are: {known}.", field="version")

    @property
    def stable(self) -> Version:
        """The heaviest version that is not the canary."""
        others = [one for one in self.versions if self.canary is None or one.name != self.canary.version]
        return max(others, key=lambda one: one.weight)


def release_of(body: Mapping[str, Any]) -> Release:
    """A release from a VisionLanguageModel as the API server holds it (camelCase).

    The CRD has checked types; this checks what refers to something. Raises ``Invalid``.
    """
    spec, metadata = body["spec"], body["metadata"]
    versions = tuple(_version(one) for one in spec["versions"])
    names = [one.name for one in versions]
    if len(set(names)) != len(names):
        raise Invalid("Two versions have the same name; every version needs its own.", field="spec.versions")
    if sum(one.weight for one in versions) <= 0:
        raise Invalid("All weights are 0; at least one version must get requests.", field="spec.versions")
    canary = _canary(spec["canary"]) if spec.get("canary") else None
    release = Release(
        metadata["name"],
        metadata.get("namespace", "default"),
        versions,
        canary,
        spec.get("wide"),
        spec.get("port", 8080),
    )
    if canary is not None:
        release[canary.version]
        if len(versions) < 2:
            raise Invalid("A canary needs another version beside it that is stable.", field="spec.canary")
        if list(canary.steps) != sorted(set(canary.steps)):
            raise Invalid(f"The canary's steps {list(canary.steps)} must rise.", field="spec.canary.steps")
    if release.wide is not None:
        release[release.wide]
    return release


def _version(one: Mapping[str, Any]) -> Version:
    gpu = one.get("gpu")
    resources = one.get("resources", {})
    return Version(
        name=one["name"],
        image=one["image"],
        weight=one.get("weight", 0),
        replicas=one.get("replicas", 1),
        max_concurrency=one.get("maxConcurrency", 1),
        bundle=one.get("bundle", ""),
        gpu=Gpu(gpu["mode"], gpu["model"], gpu.get("fraction"), gpu.get("memoryMiB")) if gpu else None,
        cpu=resources.get("cpu", "1"),
        memory=resources.get("memory", "2Gi"),
        autoscale=_autoscale(one["name"], one["autoscale"]) if one.get("autoscale") else None,
    )


def _autoscale(version: str, one: Mapping[str, Any]) -> Autoscale:
    found = Autoscale(one["minReplicas"], one["maxReplicas"], float(one.get("queuePerReplica", 1.0)))
    if found.least > found.most:
        raise Invalid(
            f"{version} may have {found.least} to {found.most} replicas; minReplicas must not exceed maxReplicas.",
            field="spec.versions",
        )
    return found


def _canary(one: Mapping[str, Any]) -> Canary:
    analysis = one.get("analysis", {})
    names = {
        "maxErrorRate": "max_error_rate", "maxLatencySeconds": "max_latency_s", "minAccuracy": "min_accuracy",
        "minSimilarity": "min_similarity", "maxDriftShare": "max_drift_share", "minRequests": "min_requests",
        "failures": "failures",
    }  # fmt: skip
    given = {names[key]: value for key, value in analysis.items()}
    return Canary(
        one["version"],
        tuple(one.get("steps", (5, 20, 50, 100))),
        float(one.get("intervalSeconds", 60.0)),
        bool(one.get("paused", False)),
        Analysis(**given),
    )
