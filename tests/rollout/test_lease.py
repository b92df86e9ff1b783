from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from foveola.rollout.lease import Leader, may_take, taken
from tests.rollout.making import Lab

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_lease_is_held_until_it_runs_out() -> None:
    lease = taken({"metadata": {"resourceVersion": "5"}}, "a", NOW, 15)
    assert lease["metadata"] == {"resourceVersion": "5"}
    assert may_take(lease, "a", NOW)
    assert not may_take(lease, "b", NOW + timedelta(seconds=15))
    assert may_take(lease, "b", NOW + timedelta(seconds=16))
    mine = taken(lease, "b", NOW + timedelta(seconds=16), 15)
    assert mine["spec"]["leaseTransitions"] == 2
    assert taken(mine, "b", NOW + timedelta(seconds=20), 15)["spec"]["acquireTime"] == mine["spec"]["acquireTime"]


@pytest.mark.process
async def test_of_two_only_one_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kopf", reason="the extra `rollout` is not installed")
    from foveola.rollout.cluster import Cluster, login

    with Lab(tmp_path) as lab:
        monkeypatch.setenv("KUBECONFIG", str(lab.config))
        now = NOW
        async with Cluster(login()) as cluster:
            one, other = (Leader(cluster, "plant", who, duration_s=15, clock=lambda: now) for who in ("a", "b"))
            assert await one.try_once()
            assert not await other.try_once()
            now += timedelta(seconds=20)
            assert await other.try_once()
            assert not await one.try_once()
