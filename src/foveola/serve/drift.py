"""Drift over HTTP: how the cameras stand, the timeline of alarms, and the word that somebody has looked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

from foveola.drift.monitor import Standing
from foveola.drift.watch import DriftWatch
from foveola.exchange import NO_CAMERA
from foveola.observe import Metrics, Record, definitions
from foveola.serve.describe import failures
from foveola.serve.refusals import NotFound
from foveola.serve.service import Service


class Camera(BaseModel):
    """How one camera stands."""

    frames: int
    shares: dict[str, float] = Field(description="each chart's value as a share of its bound; above 1 is an alarm")
    rule_mean: float | None = Field(description="the described rule's sliding mean of cosines; an indicator")
    rule_level: str
    raised: list[str] = Field(description="charts with an alarm that nobody has acknowledged")


class Alarm(BaseModel):
    """One alarm of the timeline."""

    at: float = Field(description="Unix seconds")
    request: str
    camera: str
    chart: str
    frame: int
    value: float
    bound: float
    label: str
    frame_jpeg: str = Field(description="base64: the frame that raised it, small; empty where frames are not kept")
    picture_png: str = Field(description="base64: where the model looked before, where it looks now, the difference")


class Drift(BaseModel):
    """All cameras and the last alarms, oldest first."""

    cameras: dict[str, Camera]
    timeline: list[Alarm]


def add_drift(app: FastAPI, service: Service) -> None:
    """Add the routes; without a reference in the settings they reply 404."""

    def watch() -> DriftWatch:
        if service.served.drift is None:
            raise NotFound("This server watches no drift; make a reference with `foveola drift calibrate` and name it.")
        return service.served.drift

    @app.get("/v1/drift", summary="How the cameras stand", tags=["drift"], responses=failures(404, 503))
    async def drift() -> Drift:
        known = watch()
        standings: dict[str, Any] = {name: asdict(standing) for name, standing in known.standings().items()}
        return Drift.model_validate({"cameras": standings, "timeline": [event.to_json() for event in known.timeline]})

    @app.post(
        "/v1/drift/{camera}/acknowledge",
        summary="Somebody has looked: start a camera's charts anew",
        tags=["drift"],
        responses=failures(404, 503),
    )
    async def acknowledge(camera: str) -> Drift:
        if not watch().acknowledge(camera):
            raise NotFound("No camera of this name has sent a picture; see /v1/drift for those that have.")
        return await drift()


def watching(watch: DriftWatch, metrics: Metrics, *, frames: bool = True) -> Any:
    """A watch for ``observed`` that feeds drift, and tells its figures to ``metrics``. Without ``frames`` no picture is
    kept: where faces and plates are to be erased, the one that came is none to be shown."""

    def publish(name: str, standing: Standing) -> None:
        for chart, share in standing.shares.items():
            metrics.set(definitions.DRIFT, share, camera=name, chart=chart)
            metrics.count(definitions.DRIFT_ALARMS, 0, camera=name, chart=chart)  # it is there before it counts
        if standing.rule_mean is not None:
            metrics.set(definitions.DRIFT_RULE, standing.rule_mean, camera=name)

    def take(record: Record) -> None:
        if record.outcome != "answered" or record.usage is None or not record.usage.evidence:
            return
        if record.camera == NO_CAMERA:
            return
        camera, image = record.camera or record.client, record.image if frames else b""
        alarms = watch.frame(record.id, camera, record.text, record.usage.evidence[0], image)
        for alarm in alarms:
            metrics.count(definitions.DRIFT_ALARMS, camera=alarm.camera, chart=alarm.chart)
        publish(*watch.standing(camera))

    for name, standing in watch.standings().items():  # what stood before a restart stands now
        publish(name, standing)
    return take
