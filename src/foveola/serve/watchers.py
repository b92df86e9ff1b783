"""What the person on call looks at besides drift: the guards' last decisions, and how traffic is split by version."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import asdict, dataclass

from fastapi import FastAPI
from pydantic import BaseModel, Field

from foveola.guard.verdict import Verdict
from foveola.observe.fleet import versions
from foveola.observe.prometheus import PrometheusApi
from foveola.serve.describe import failures
from foveola.serve.refusals import NotFound
from foveola.serve.service import Service

KEPT = 200
PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Decided:
    """A verdict and when it was reached, in Unix seconds."""

    at: float
    verdict: Verdict


class VerdictLog:
    """The last ``KEPT`` verdicts that were not a mere passing. A ``Tell``; holds nothing that a user wrote."""

    def __init__(self) -> None:
        self.last: deque[Decided] = deque(maxlen=KEPT)

    def __call__(self, verdict: Verdict) -> None:
        """Keep a verdict."""
        if verdict.outcome != PASSED:
            self.last.append(Decided(time.time(), verdict))


class Entry(BaseModel):
    """One decision of a guard."""

    at: float = Field(description="Unix seconds")
    guard: str
    outcome: str
    id: str = Field(description="the request's id")
    route: str
    detail: dict[str, int | float | str]


class GuardLog(BaseModel):
    """The guards' last decisions, newest first; what they merely let pass is not among them."""

    verdicts: list[Entry]


class VersionShare(BaseModel):
    """One version of the model over the last five minutes; null where there is nothing to tell."""

    model_version: str
    share: float | None = Field(description="of all requests")
    requests_per_s: float | None
    refused_per_s: float | None
    p95_s: float | None
    accuracy: float | None
    samples: float | None = Field(description="labelled answers that the accuracy is the share of")


class Split(BaseModel):
    """How requests are split among versions, as Prometheus sees it."""

    versions: list[VersionShare]


def add_watchers(app: FastAPI, service: Service) -> None:
    """Add both routes."""

    @app.get("/v1/verdicts", summary="What the guards decided", tags=["guard"], responses=failures(503))
    async def verdicts() -> GuardLog:
        log = service.served.verdicts
        kept = [] if log is None else [{"at": one.at, **asdict(one.verdict)} for one in reversed(log.last)]
        return GuardLog.model_validate({"verdicts": kept})

    @app.get("/v1/split", summary="How traffic is split by version", tags=["health"], responses=failures(404, 503))
    async def split() -> Split:
        address = service.options.prometheus
        if not address:
            raise NotFound("This server knows no Prometheus; set `prometheus` to the address of the one that scrapes.")
        found = await asyncio.to_thread(versions, PrometheusApi(address))
        return Split.model_validate({"versions": [asdict(one) for one in found]})
