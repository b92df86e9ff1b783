"""Leader election by a Lease (coordination.k8s.io), so that two operators never steer one canary."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from foveola.rollout.cluster import ApiError, Cluster, Conflict, Json

log = logging.getLogger(__name__)
NAME = "foveola-operator"


def _now() -> datetime:
    return datetime.now(UTC)


def may_take(lease: Json, who: str, now: datetime) -> bool:
    """Whether the lease is free, ours, or run out."""
    spec = lease.get("spec", {})
    if spec.get("holderIdentity") in (None, "", who):
        return True
    renewed = spec.get("renewTime")
    if not renewed:
        return True
    age = (now - datetime.fromisoformat(renewed)).total_seconds()
    return bool(age > spec.get("leaseDurationSeconds", 15))


def taken(lease: Json, who: str, now: datetime, duration_s: int) -> Json:
    """The lease as it is when we hold it; ``leaseTransitions`` counts changes of the holder."""
    spec = lease.get("spec", {})
    changed = spec.get("holderIdentity") != who
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    fresh = {
        "holderIdentity": who,
        "leaseDurationSeconds": duration_s,
        "renewTime": stamp,
        "acquireTime": stamp if changed else spec.get("acquireTime", stamp),
        "leaseTransitions": spec.get("leaseTransitions", 0) + int(changed),
    }
    return {**lease, "spec": fresh}


class Leader:
    """One candidate. ``acquire`` waits for the lease, ``keep`` renews it and returns when it is lost."""

    def __init__(
        self, cluster: Cluster, namespace: str, who: str, *, duration_s: int = 15, clock: Callable[[], datetime] = _now
    ) -> None:
        self._cluster, self._namespace, self._who = cluster, namespace, who
        self._duration_s, self._clock = duration_s, clock

    async def try_once(self) -> bool:
        """Take or renew the lease if that is possible now."""
        lease = await self._cluster.get("Lease", self._namespace, NAME)
        empty = {
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": NAME, "namespace": self._namespace}, "spec": {},
        }  # fmt: skip
        if lease is not None and not may_take(lease, self._who, self._clock()):
            return False
        mine = taken(lease or empty, self._who, self._clock(), self._duration_s)
        mine["kind"] = "Lease"
        try:
            await (self._cluster.replace(mine) if lease is not None else self._cluster.create(mine))
        except Conflict:  # somebody was quicker
            return False
        return True

    async def acquire(self) -> None:
        """Wait until we are the leader."""
        while not await self._quietly():  # noqa: ASYNC110 - what is waited for lies in the API server
            await asyncio.sleep(self._duration_s / 5)
        log.info("%s leads", self._who)

    async def keep(self) -> None:
        """Renew until the lease is lost: taken by another, or not renewed for its whole duration."""
        last = self._clock()
        while (self._clock() - last).total_seconds() < self._duration_s * 2 / 3:
            await asyncio.sleep(self._duration_s / 5)
            if await self._quietly():
                last = self._clock()
        log.error("%s leads no more", self._who)

    async def _quietly(self) -> bool:
        try:
            return await self.try_once()
        except (ApiError, OSError, TimeoutError) as error:
            log.warning("the lease cannot be asked for: %s", error)
            return False
