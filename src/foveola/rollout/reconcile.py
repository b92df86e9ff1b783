"""Making a cluster what is declared: level-triggered, idempotent, and resumed from the status alone."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from foveola.exchange import Invalid
from foveola.rollout.canary import Observed, Progress, advance, current, weights_of
from foveola.rollout.cluster import Cluster, Json
from foveola.rollout.objects import objects_of, owner_of, service_objects
from foveola.rollout.release import Release, release_of

PRUNED = ("HorizontalPodAutoscaler", "Deployment", "Service", "ConfigMap", "PodDisruptionBudget",
          "ResourceClaimTemplate")  # fmt: skip
Observe = Callable[[Release, Progress], Awaitable[Observed]]
"""What is known of a canary since its step began."""


async def _nothing(_: Release, __: Progress) -> Observed:
    return Observed()


def condition(kind: str, ok: bool | None, reason: str, message: str, before: list[Json], generation: int) -> Json:
    """A status condition; its time changes only when its status does."""
    status = "Unknown" if ok is None else str(ok)
    same = next((one for one in before if one["type"] == kind and one["status"] == status), None)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation,
        "lastTransitionTime": same["lastTransitionTime"] if same else now,
    }  # fmt: skip


async def reconcile(
    cluster: Cluster, body: Json, *, observe: Observe = _nothing, clock: Callable[[], float] = time.time
) -> Json:
    """One round for a VisionLanguageModel; returns its new status.

    An invalid declaration changes nothing in the cluster: what runs goes on running, and the status says why.
    """
    generation, before = body["metadata"].get("generation", 0), body.get("status", {})
    old = before.get("conditions", [])
    try:
        release = release_of(body)
        progress = current(release, Progress.of(before.get("canary")), clock())
        if progress is not None and release.canary is not None:
            progress = advance(release.canary, progress, await observe(release, progress), clock())
        weights = weights_of(release, progress)
        objects = objects_of(release, weights, owner_of(body))
    except Invalid as refusal:
        wrong = condition("Valid", False, "Invalid", refusal.message, old, generation)
        return {"phase": "Invalid", "observedGeneration": generation, "conditions": _merged(old, [wrong])}
    await apply_all(cluster, objects, release.namespace, f"vlms.ai/model={release.name}")
    ready, told = await _ready(cluster, objects)
    conditions = [
        condition("Valid", True, "Valid", "", old, generation),
        condition("Ready", ready, "Available" if ready else "Waiting", told, old, generation),
    ]
    phase = "Ready" if ready else "Starting"
    status: Json = {
        "observedGeneration": generation,
        "weights": weights,
        "split": " ".join(f"{name}:{weight}" for name, weight in weights.items()),
        "canary": progress.to_json() if progress else None,
    }
    if progress is not None:
        healthy = None if progress.phase == "Paused" else progress.phase != "RolledBack" and progress.failures == 0
        conditions.append(condition("CanaryHealthy", healthy, progress.phase, progress.reason, old, generation))
        phase = phase if progress.phase == "Promoted" else progress.phase
    return {**status, "phase": phase, "conditions": conditions}


async def reconcile_service(cluster: Cluster, body: Json) -> Json:
    """One round for a VLMService; returns its new status."""
    generation, old = body["metadata"].get("generation", 0), body.get("status", {}).get("conditions", [])
    name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "default")
    try:
        objects = service_objects(body)
    except Invalid as refusal:
        wrong = condition("Valid", False, "Invalid", refusal.message, old, generation)
        return {"phase": "Invalid", "observedGeneration": generation, "conditions": _merged(old, [wrong])}
    await apply_all(cluster, objects, namespace, f"vlms.ai/service={name}")
    ready, told = await _ready(cluster, objects)
    return {
        "phase": "Ready" if ready else "Starting",
        "topology": body["spec"].get("topology", "single"),
        "observedGeneration": generation,
        "conditions": [
            condition("Valid", True, "Valid", "", old, generation),
            condition("Ready", ready, "Available" if ready else "Waiting", told, old, generation),
        ],
    }


async def apply_all(cluster: Cluster, objects: list[Json], namespace: str, selector: str) -> None:
    """Apply all, then delete what carries the label and is not among them."""
    for item in objects:
        await cluster.apply(item)
    wanted = {(item["kind"], item["metadata"]["name"]) for item in objects}
    for kind in PRUNED:
        for item in await cluster.list(kind, namespace, selector):
            if (kind, item["metadata"]["name"]) not in wanted:
                await cluster.delete(kind, namespace, item["metadata"]["name"])


async def clean_up(cluster: Cluster, namespace: str, selector: str) -> None:
    """Delete everything with the label: owner references would do it too, later."""
    await apply_all(cluster, [], namespace, selector)


async def _ready(cluster: Cluster, objects: list[Json]) -> tuple[bool, str]:
    waiting = []
    for item in objects:
        if item["kind"] != "Deployment":
            continue
        metadata = item["metadata"]
        found: dict[str, Any] = await cluster.get("Deployment", metadata["namespace"], metadata["name"]) or {}
        available = found.get("status", {}).get("availableReplicas", 0)
        # Where an autoscaler chooses the number, it stands in the cluster and not in the declaration.
        wanted = item["spec"].get("replicas", found.get("spec", {}).get("replicas", 1))
        if available < wanted:
            waiting.append(f"{metadata['name']} {available}/{wanted}")
    return not waiting, ", ".join(waiting)


def _merged(old: list[Json], new: list[Json]) -> list[Json]:
    kinds = {one["type"] for one in new}
    return [*(one for one in old if one["type"] not in kinds), *new]
