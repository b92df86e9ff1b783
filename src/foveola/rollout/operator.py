"""The operator: kopf's events and timers around ``reconcile``, one leader at a time, figures for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

import kopf
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from foveola.rollout.canary import Observed, Progress
from foveola.rollout.cluster import Cluster, login
from foveola.rollout.lease import Leader
from foveola.rollout.prometheus import observe
from foveola.rollout.reconcile import clean_up, reconcile, reconcile_service
from foveola.rollout.release import API_VERSION, GROUP, Release

log = logging.getLogger(__name__)
MODELS = (GROUP, API_VERSION, "visionlanguagemodels")
SERVICES = (GROUP, API_VERSION, "vlmservices")
LOST_LEADERSHIP = 3


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """Settings of ``foveola rollout operate``: table ``[operator]`` of foveola.toml, ``FOVEOLA_OPERATOR_*``, flags.

    Raises ``ValueError`` that names the field when a value is out of range.
    """

    namespace: str = "default"  # the one that is watched; the lease lies there too
    prometheus: str = "http://prometheus:9090"
    look_s: float = 15.0  # between two looks at each object
    lease_s: int = 15
    metrics_port: int = 0  # 0: none
    health_port: int = 0  # 0: none

    def __post_init__(self) -> None:
        """Check every range."""
        if not self.look_s > 0:
            raise ValueError(f"`look_s` is {self.look_s}; expected a number of seconds above 0.")
        if self.lease_s < 1:
            raise ValueError(f"`lease_s` is {self.lease_s}; expected at least 1.")


class Figures:
    """What the operator tells Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.weight = Gauge("foveola_rollout_weight", "Share of traffic, per cent.", ("model", "version"),
                            registry=registry)  # fmt: skip
        self.rollbacks = Counter("foveola_rollbacks", "Canaries that were rolled back.", ("model", "version"),
                                 registry=registry)  # fmt: skip
        self.promotions = Counter("foveola_promotions", "Canaries that were promoted.", ("model", "version"),
                                  registry=registry)  # fmt: skip

    def note(self, model: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Count a change of phase; show the weights."""
        for version, weight in (after.get("weights") or {}).items():
            self.weight.labels(model, version).set(weight)
        canary = after.get("canary") or {}
        phase, was = canary.get("phase"), (before.get("canary") or {}).get("phase")
        if phase != was and phase in ("RolledBack", "Promoted"):
            counter = self.rollbacks if phase == "RolledBack" else self.promotions
            counter.labels(model, canary["version"]).inc()
            log.warning("canary %s of %s: %s (%s)", canary["version"], model, phase, canary["reason"])


def registry_of(options: OperatorOptions, cluster: Cluster, figures: Figures) -> kopf.OperatorRegistry:
    """The handlers. Every one does a whole round, so that it does not matter which of them runs or is missed."""
    registry = kopf.OperatorRegistry()
    locks: dict[str, asyncio.Lock] = {}

    async def seen(release: Release, progress: Progress) -> Observed:
        window = time.time() - progress.since_s
        return await observe(options.prometheus, release.namespace, release.name, progress.version, window)

    async def model(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        # A timer and an event may come together; the status that counts is the one in the API server.
        metadata = body["metadata"]
        async with locks.setdefault(metadata["uid"], asyncio.Lock()):
            fresh = await cluster.get("VisionLanguageModel", metadata["namespace"], metadata["name"])
            if fresh is None or "deletionTimestamp" in fresh["metadata"]:
                return
            fresh["kind"] = "VisionLanguageModel"
            status = await reconcile(cluster, fresh, observe=seen)
            figures.note(metadata["name"], fresh.get("status", {}), status)
            if status != fresh.get("status"):
                patch.status.update(status)

    async def service(body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:
        plain = {**dict(body), "kind": "VLMService"}
        status = await reconcile_service(cluster, plain)
        if status != plain.get("status"):
            patch.status.update(status)

    async def gone(name: str | None, namespace: str | None, resource: kopf.Resource, **_: Any) -> None:
        label = "model" if resource.plural == MODELS[2] else "service"
        await clean_up(cluster, namespace or "default", f"vlms.ai/{label}={name}")

    for where, work in ((MODELS, model), (SERVICES, service)):
        for event in (kopf.on.create, kopf.on.update, kopf.on.resume):
            event(*where, registry=registry, id="reconcile")(work)
        kopf.on.timer(*where, registry=registry, id="look", interval=options.look_s, initial_delay=options.look_s)(work)
        kopf.on.delete(*where, registry=registry, id="gone")(gone)

    @kopf.on.login(registry=registry)
    def enter(**_: Any) -> kopf.ConnectionInfo:
        return login()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True  # the rights of one namespace are enough
        settings.persistence.finalizer = "vlms.ai/operator"
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="vlms.ai")
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="vlms.ai")

    return registry


async def operate(options: OperatorOptions) -> int:
    """Run until stopped, or until the lease is lost (exit code 3: Kubernetes starts us again, as a candidate)."""
    figures = Figures()
    if options.metrics_port:
        start_http_server(options.metrics_port, registry=figures.registry)
    who = f"{socket.gethostname()}-{os.getpid()}"
    async with Cluster(login()) as cluster:
        leader = Leader(cluster, options.namespace, who, duration_s=options.lease_s)
        await leader.acquire()
        stop = asyncio.Event()
        health = f"http://0.0.0.0:{options.health_port}/healthz" if options.health_port else None
        running = asyncio.create_task(
            kopf.operator(
                registry=registry_of(options, cluster, figures), namespaces=[options.namespace], standalone=True,
                stop_flag=stop, liveness_endpoint=health,
            )
        )  # fmt: skip
        keeping = asyncio.create_task(leader.keep())
        done, _ = await asyncio.wait({running, keeping}, return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        keeping.cancel()
        await asyncio.wait({running})
        return LOST_LEADERSHIP if keeping in done else 0
