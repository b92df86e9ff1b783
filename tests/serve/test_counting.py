"""Counting before asking: the same body, the same limits, nothing run."""

from __future__ import annotations

from foveola.engine.prepared import Counts
from foveola.exchange import BadImage, ImageUse, OverBudget, Request
from tests.serve.fake import FakeAnswer, laid, served

COUNT = "/v1/vlm/count"


async def counts(request: Request) -> Counts:
    if request.turns[0].images == (b"bad",):
        raise BadImage("It ends early.", field="image")
    if request.turns[0].text == "long":
        raise OverBudget("Too long.", field="prompt")
    return Counts(120, 64, (ImageUse((4000, 3000), (252, 196), 64),))


async def test_a_question_is_counted_and_not_asked() -> None:
    answer = FakeAnswer()
    async with laid(answer, load=lambda: served(answer, count=counts)) as table:
        form = {"image": ("a.png", b"photo", "image/png"), "prompt": (None, b'{"text": "a", "max_tokens": 10}')}
        response = await table.client.post(COUNT, files=form)
        same = await table.client.post(COUNT, json={"prompt": {"text": "a", "max_tokens": 10}})
    assert response.status_code == 200
    assert response.json() == same.json()
    told = response.json()
    [image] = told.pop("images")
    assert told == {"prompt_tokens": 120, "visual_tokens": 64, "max_tokens": 10, "budget_tokens": 130}
    assert (image["original"], image["used"], image["tokens"]) == ([4000, 3000], [252, 196], 64)
    assert answer.asked == []


async def test_what_could_not_be_asked_is_not_counted() -> None:
    answer = FakeAnswer()
    async with laid(answer, load=lambda: served(answer, count=counts)) as table:
        bad = await table.client.post(COUNT, files={"image": ("a", b"bad"), "prompt": (None, b'"a"')})
        long = await table.client.post(COUNT, json={"prompt": "long"})
        wrong = await table.client.post(COUNT, json={"prompt": {"text": "a", "max_tokens": 0}})
    assert [(one.status_code, one.json()["error"]["code"]) for one in (bad, long, wrong)] == [
        (400, "bad_image"),
        (422, "over_budget"),
        (422, "invalid_field"),
    ]


async def test_a_model_that_cannot_count_says_so() -> None:
    async with laid() as table:
        response = await table.client.post(COUNT, json={"prompt": "a"})
    assert response.status_code == 404
    assert "read `usage`" in response.json()["error"]["message"]
