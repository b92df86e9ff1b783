from __future__ import annotations

import json

import pytest

from foveola.bench.sample import STAGES, Block, Item
from tests.bench.making import sample


def test_items_and_blocks_survive_json() -> None:
    item = Item("a", bytes(range(256)), "这是什么缺陷？")
    assert Item.from_json(json.loads(json.dumps(item.to_json()))) == item
    block = Block((sample(0.5, "划痕"), sample(0.25)), 0.75)
    assert Block.from_json(json.loads(json.dumps(block.to_json()))) == block


def test_what_no_stage_explains_is_other() -> None:
    one = sample(0.4)
    assert one.decode_s == pytest.approx(0.1)
    assert one.other_s == pytest.approx(0.1)
    assert set(one.stages_s) == set(STAGES)
