"""Labels over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foveola.observe import Record
from foveola.observe.accuracy import Accuracy
from tests.serve.fake import FakeAnswer, laid, served

PATH = "/v1/feedback"


def known() -> Accuracy:
    accuracy = Accuracy()
    for id_, text in (("a", "scratch"), ("b", "pit")):
        accuracy(Record(id_, "answered", 0.1, text=text))
    return accuracy


async def test_labels_make_the_accuracy() -> None:
    accuracy = known()
    async with laid(load=lambda: served(FakeAnswer(), accuracy=accuracy)) as table:
        first = await table.client.post(PATH, json={"id": "a", "expected": "Scratch"})
        second = await table.client.post(PATH, json={"id": "b", "right": False})
    assert first.json() == {"id": "a", "right": True, "accuracy": 1.0, "samples": 1}
    assert second.json() == {"id": "b", "right": False, "accuracy": 0.5, "samples": 2}


@pytest.mark.parametrize(("body", "status", "message"), [
    ({"id": "z", "right": True}, 404, "no answer with this id"),
    ({"id": "a"}, 422, "either `right` (true or false) or `expected`"),
    ({"id": "a", "right": True, "expected": "x"}, 422, "send one"),
    ({"right": True}, 422, "`id`"),
    ({"id": "a", "right": "yes"}, 422, "`right`"),
    ({"id": "a", "right": True, "more": 1}, 422, "`more`"),
    ([1], 422, 'The label is a list of 1; expected JSON such as {"id": "...", "right": true}'),
    ({"\ud800": 1}, 422, "half of a surrogate pair"),
])  # fmt: skip
async def test_what_is_no_label_is_told(body: Any, status: int, message: str) -> None:
    accuracy = known()
    async with laid(load=lambda: served(FakeAnswer(), accuracy=accuracy)) as table:
        sent = json.dumps(body)
        response = await table.client.post(PATH, content=sent, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert message in response.json()["error"]["message"]
    assert accuracy.samples == 0


async def test_a_body_that_is_no_json_is_told() -> None:
    async with laid() as table:
        response = await table.client.post(PATH, content=b"{", headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert "The label is not JSON" in response.json()["error"]["message"]
