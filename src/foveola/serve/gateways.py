"""The route on which camera gateways register what they are about to send."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.requests import Request as HttpRequest

from foveola.exchange import TooLarge
from foveola.guard.live import MAX_DIGESTS, MAX_TTL_S
from foveola.serve.describe import failures
from foveola.serve.refusals import NotFound
from foveola.serve.service import Service

PATH = "/v1/guard/digests"
MAX_BODY_BYTES = 128 * MAX_DIGESTS


class Registration(BaseModel):
    """What a gateway registers."""

    digests: list[str] = Field(description="SHA-256 of each picture's bytes, 64 lower-case hexadecimal digits")
    ttl_s: int = Field(ge=1, le=MAX_TTL_S, description="seconds from the signed time")


class Registered(BaseModel):
    """What was registered."""

    gateway: str
    digests: int
    expires: float = Field(description="Unix seconds")


def add_gateways(app: FastAPI, service: Service) -> None:
    """Add the route; without gateways in the settings it replies 404."""
    body: dict[str, Any] = {"application/json": {"schema": Registration.model_json_schema()}}
    header = {"in": "header", "required": True, "schema": {"type": "string"}}
    described = {
        "requestBody": {"required": True, "content": body},
        "parameters": [{"name": name, **header} for name in ("X-Gateway", "X-Timestamp", "X-Signature")],
    }

    @app.post(
        PATH,
        summary="Register pictures that are about to come",
        tags=["guard"],
        responses=failures(401, 404, 413, 422, 503),
        openapi_extra=described,
    )
    async def register(http: HttpRequest) -> Registered:
        gateways = service.served.gateways
        if gateways is None:
            raise NotFound("This server takes no registrations; its guard has no gateways.")
        taken = bytearray()
        async for chunk in http.stream():
            taken += chunk
            if len(taken) > MAX_BODY_BYTES:
                raise TooLarge(f"The registration is larger than {MAX_BODY_BYTES} bytes; send several.")
        headers = [http.headers.get(name, "") for name in ("x-gateway", "x-timestamp", "x-signature")]
        done = await asyncio.to_thread(
            gateways.register, bytes(taken), gateway=headers[0], signed_at=headers[1], signature=headers[2]
        )
        return Registered(gateway=done.gateway, digests=done.digests, expires=done.expires)
