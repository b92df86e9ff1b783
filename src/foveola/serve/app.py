"""The routes. What each takes and gives is declared here once, for the server and for the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

import foveola
from foveola.exchange import Invalid, Refusal
from foveola.serve import schema
from foveola.serve.admin import add_admin
from foveola.serve.answering import Answering
from foveola.serve.bridge import add_bridge
from foveola.serve.console import add_console
from foveola.serve.counting import Counting
from foveola.serve.describe import CHAT, COUNT, FEATURES, INVOKE, METRICS, failures, page, tidy
from foveola.serve.door import Door, note_of
from foveola.serve.drift import add_drift
from foveola.serve.feedback import add_feedback
from foveola.serve.gate import Gate
from foveola.serve.gateways import add_gateways
from foveola.serve.invoke import read_chat, reads_invoke
from foveola.serve.keys import NO_KEYS, KeyRing
from foveola.serve.refusals import Broken, MethodNotAllowed, NotFound
from foveola.serve.reply import reply
from foveola.serve.seeing import Seeing
from foveola.serve.service import Served, Service
from foveola.serve.tally import Tally
from foveola.serve.watchers import add_watchers

if TYPE_CHECKING:
    from foveola.bridge.desk import Desk

SUMMARY = "Ask a vision-language model about a picture."


def create_app(service: Service, ring: KeyRing = NO_KEYS, desk: Desk | None = None) -> ASGIApp:
    """The whole application around ``service``, which it starts and stops, like the bridge's ``desk`` if there is one;
    ``ring`` holds the keys that open it."""
    tally = Tally(service.options.region)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await service.stop()
            if desk is not None:
                await asyncio.to_thread(desk.close)

    # The interactive pages of FastAPI load scripts from the internet; an air-gapped line has none, so ours is plain.
    app = FastAPI(
        title="Foveola",
        version=foveola.__version__,
        summary=SUMMARY,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.add_exception_handler(Refusal, _reply_refusal)
    app.add_exception_handler(HTTPException, _reply_http)
    app.add_exception_handler(Exception, _reply_broken)
    _add_questions(app, service)
    _add_state(app, service, tally)
    add_admin(app, service)
    add_gateways(app, service)
    if desk is not None:
        add_bridge(app, desk)
    add_feedback(app, service)
    add_drift(app, service)
    add_watchers(app, service)
    add_console(app, service, keys=bool(ring), bridge=desk is not None)

    generate = app.openapi

    def openapi() -> dict[str, Any]:
        return app.openapi_schema if app.openapi_schema is not None else tidy(generate())

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's manual says
    routes = frozenset(route.path for route in app.routes if isinstance(route, Route))
    return Door(Gate(app, ring, service.options.requests_per_minute), tally, routes)


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post(
        "/v1/vlm/invoke",
        summary="Ask about a picture",
        tags=["questions"],
        response_class=Response,
        **INVOKE,
    )
    async def invoke(http: HttpRequest) -> Response:
        return Answering(service, reads_invoke(stream=_flag(http, "stream")))

    @app.post(
        "/v1/vlm/count",
        summary="How many tokens a question would take",
        tags=["questions"],
        response_class=Response,
        **COUNT,
    )
    async def count(http: HttpRequest) -> Response:
        return Counting(service)

    @app.post(
        "/v1/chat/completions",
        summary="Ask in OpenAI's form",
        tags=["questions"],
        response_class=Response,
        **CHAT,
    )
    async def chat(http: HttpRequest) -> Response:
        return Answering(service, read_chat)

    @app.post(
        "/v1/vision/features",
        summary="See pictures for a language service",
        tags=["services"],
        response_class=Response,
        **FEATURES,
    )
    async def features(http: HttpRequest) -> Response:
        return Seeing(service)


def _flag(http: HttpRequest, name: str) -> bool:
    words = {"1": True, "true": True, "0": False, "false": False}
    values = http.query_params.getlist(name)
    if not values:
        return False
    if len(values) > 1 or values[0].lower() not in words:
        raise Invalid(f"`{name}` in the address must be 1, true, 0 or false, and come once.", field=name)
    return words[values[0].lower()]


def _model(served: Served, name: str) -> schema.Model:
    return schema.Model(id=name, created=served.created, owned_by="foveola", model_hash=served.weights)


def _add_state(app: FastAPI, service: Service, tally: Tally) -> None:
    @app.get("/v1/models", summary="The models served here", tags=["questions"], responses=failures(503))
    async def models() -> schema.ModelList:
        served = service.served
        return schema.ModelList(data=[_model(served, name) for name in (served.name, *served.others)])

    @app.get("/v1/models/{model}", summary="One of them", tags=["questions"], responses=failures(404, 503))
    async def one_model(model: str) -> schema.Model:
        served = service.served
        served.answer_of(model)  # which refuses a name that is none
        return _model(served, model)

    @app.get("/health/live", summary="Is the process alive", tags=["health"])
    async def live() -> schema.Health:
        return schema.Health(status="ok")

    @app.get("/health/ready", summary="Would a question be answered now", tags=["health"], responses=failures(503))
    async def ready() -> schema.Health:
        service.check_ready()
        return schema.Health(status="ok")

    @app.get("/version", summary="What is running", tags=["health"])
    async def version() -> schema.Version:
        served = service.loaded
        return schema.Version(
            version=foveola.__version__,
            runtime=version_of("onnxruntime"),
            model=served.name if served else None,
            model_hash=served.weights if served else None,
        )

    @app.get("/metrics", summary="Figures for Prometheus", tags=["health"], response_class=Response, responses=METRICS)
    async def metrics() -> Response:
        served = service.loaded
        body = (served.metrics() if served else b"") + tally.render()
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()))


async def _reply_refusal(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    note = note_of(http.scope)
    note.details["code"] = error.code
    if error.field is not None:
        note.details["field"] = error.field
    return reply(error, http.url.path)


async def _reply_http(http: HttpRequest, error: Exception) -> Response:
    """Starlette's own refusals (no such path, wrong method) in the common shape."""
    assert isinstance(error, HTTPException)
    refusal: Refusal
    more: dict[str, str] = {}
    if error.status_code == 405:
        more = {"allow": (error.headers or {}).get("Allow", "")}
        refusal = MethodNotAllowed(f"This path does not take {http.method}; it takes {more['allow']}.")
    elif error.status_code == 404:
        refusal = NotFound("There is nothing under this path; /docs lists what there is.")
    else:
        raise error
    note_of(http.scope).details["code"] = refusal.code
    return reply(refusal, http.url.path, more)


async def _reply_broken(http: HttpRequest, _: Exception) -> Response:
    """What nobody expected: told without its insides. Starlette raises it again after this, and the door logs it."""
    note_of(http.scope).details["code"] = Broken.code
    return reply(Broken.of(note_of(http.scope).id), http.url.path)
