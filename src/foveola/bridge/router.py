"""The bridge over HTTP: hand in instructions and events, review, read the audit."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from foveola.bridge.context import Event
from foveola.bridge.desk import Desk
from foveola.bridge.payload import RawInstruction

Identify = Callable[[Request], str]
"""Who is asking, as the transport proves it (the name of an API key). Raises a ``Refusal`` for nobody."""


class InstructionBody(BaseModel):
    """What a device hands in; ``at`` is its own clock in Unix seconds."""

    src_id: str = Field(min_length=1, max_length=100)
    text: str = Field(min_length=1, max_length=65_536)
    at: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)
    id: str | None = Field(default=None, min_length=1, max_length=100, description="repeat it when you try again")
    confidence: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)


class EventBody(BaseModel):
    """A lot that entered a place (null: left it), or an object that was seen there."""

    src_id: str = Field(min_length=1, max_length=100)
    what: Literal["lot", "object"]
    value: str | None = Field(max_length=200)
    at: float | None = Field(default=None, ge=0, le=1e11, allow_inf_nan=False)


class DecisionBody(BaseModel):
    """What the instruction means; NONE where it is none."""

    intent: str = Field(min_length=1, max_length=100)
    lot: str | None = Field(default=None, max_length=100)
    reason: str = Field(default="", max_length=2000)


def create_router(
    desk: Desk, identify: Identify, reviewer: Identify | None = None, clock: Callable[[], float] = time.time
) -> APIRouter:
    """The routes below ``/v1/bridge`` and the page ``/review``; ``reviewer`` identifies those who may decide."""
    router = APIRouter(tags=["bridge"])

    def asking(request: Request) -> str:  # declared here, so that any callable may identify
        return identify(request)

    def deciding(request: Request) -> str:
        return (reviewer or identify)(request)

    Who = Annotated[str, Depends(asking)]
    Reviewer = Annotated[str, Depends(deciding)]

    @router.post("/v1/bridge/instructions", summary="Hand in an instruction")
    async def take(body: InstructionBody, who: Who) -> dict[str, Any]:
        now = clock()
        at = body.at if body.at is not None else now
        raw = RawInstruction(
            body.id or uuid.uuid4().hex, body.src_id, who, body.text, at, now, confidence=body.confidence
        )
        return (await run_in_threadpool(desk.take, raw)).to_json()

    @router.post("/v1/bridge/events", summary="A lot came or went, an object was seen", status_code=204)
    async def observe(body: EventBody, who: Who) -> None:
        now = clock()
        at = body.at if body.at is not None else now
        source = desk.sources.admit(RawInstruction("", body.src_id, who, "-", at, now))
        desk.observe(Event(source.id, source.place, body.what, body.value, at, now))

    @router.get("/v1/bridge/reviews", summary="Instructions that a person decides")
    async def reviews(
        who: Reviewer,
        state: Literal["open", "claimed", "decided", "expired"] = "open",
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        found = await run_in_threadpool(desk.reviews.list, state, limit)
        return {"reviews": [one.to_json() for one in found], "counts": desk.reviews.counts()}

    @router.post("/v1/bridge/reviews/{id}/claim", summary="Hold one for yourself")
    async def claim(id: str, who: Reviewer) -> dict[str, Any]:
        return (await run_in_threadpool(desk.reviews.claim, id, who)).to_json()

    @router.post("/v1/bridge/reviews/{id}/decide", summary="Say what it means")
    async def decide(id: str, body: DecisionBody, who: Reviewer) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            return desk.reviews.decide(id, who, body.intent, lot=body.lot, reason=body.reason).to_json()

        return await run_in_threadpool(work)

    @router.get("/v1/bridge/audit", summary="Check the audit log")
    async def check(who: Reviewer, head: str | None = None) -> dict[str, Any]:
        return {"entries": await run_in_threadpool(desk.reviews.verify, head), "whole": True}

    @router.get("/v1/bridge/metrics", summary="Figures for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(desk.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/review", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(Path(__file__).with_name("review.html").read_text(encoding="utf-8"))

    return router
