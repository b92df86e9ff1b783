"""What an admin may do while the server serves: replace a part of the weights, take that back, see what happened.

Answers go on meanwhile: a patch works in threads beside the engine's, and newcomers change over between two steps.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request as HttpRequest

from foveola.exchange import BadRequest, Damaged, Invalid, Unavailable
from foveola.serve.admin_schema import Change, Versions
from foveola.serve.body import FORM, check_length, content_type, form_parts
from foveola.serve.describe import failures
from foveola.serve.door import note_of
from foveola.serve.gate import key_of
from foveola.serve.log import event
from foveola.serve.options import KIB, ServeOptions
from foveola.serve.refusals import Conflict, NotFound
from foveola.serve.service import Patched, Patching, Service

HISTORY = 100  # changes that are remembered
FIELD_BYTES = KIB  # of a part that is no file
FORM_BYTES = 64 * KIB  # of a form, beside its file
_PARTS = ("module_path", "strict", "weights")
_REFUSED = failures(400, 401, 403, 404, 409, 413, 415, 422, 503)


class Admin:
    """Changes the weights of what a service serves, one change at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._changing = False
        self._history: deque[Change] = deque(maxlen=HISTORY)

    @property
    def patching(self) -> Patching:
        """The engine that can be changed. Raises ``NotFound`` where it cannot, ``Loading`` while there is none."""
        patching = self._service.served.patching
        if patching is None:
            raise NotFound(
                "The weights of what is served here cannot be replaced while it serves; deploy a new bundle."
            )
        return patching

    def versions(self) -> Versions:
        """What serves now, and what was changed since the start, newest first."""
        served = self._service.served
        return Versions(
            model=served.name,
            model_hash=served.weights,
            bundle_hash=served.model_hash,
            changes=list(self._history)[::-1],
        )

    async def patch(self, http: HttpRequest) -> Change:
        """Take new weights from a form and serve newcomers with them."""
        patching, options = self.patching, self._service.options
        _, parameters = content_type(http.headers, (FORM,))
        check_length(http.headers, options.max_patch_bytes + FORM_BYTES)
        async with self._alone():
            with _folder() as folder:
                file = folder / "weights.safetensors"
                fields = await _received(http.stream(), parameters.get("boundary", ""), file, options)
                patched = await asyncio.to_thread(_replace, patching, file, fields)
        return self._changed(http, "patch", patched, strict=fields["strict"] == "true")

    async def rollback(self, http: HttpRequest) -> Change:
        """Serve newcomers with the weights before the last patch."""
        patching = self.patching
        async with self._alone():
            patched = await asyncio.to_thread(patching.rollback)
        return self._changed(http, "rollback", patched, strict=None)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        if self._changing:
            raise Conflict("Another change of the weights is under way; ask again when it is done.")
        self._changing = True
        try:
            yield
        finally:
            self._changing = False

    def _changed(self, http: HttpRequest, kind: str, patched: Patched, *, strict: bool | None) -> Change:
        key = key_of(http.scope)
        change = Change(
            kind="patch" if kind == "patch" else "rollback",
            when=round(time.time(), 3),
            who=key.name if key else "",
            module_path=patched.module_path,
            strict=strict,
            before=patched.before,
            model_hash=patched.model_hash,
            tensors=patched.tensors,
            graphs=list(patched.graphs),
            seconds=round(patched.seconds, 4),
            probe={name: round(value, 6) for name, value in patched.probe.items()},
        )
        self._history.append(change)
        event(logging.INFO, kind, id=note_of(http.scope).id, **change.model_dump(exclude={"kind", "when"}))
        return change


@contextmanager
def _folder() -> Iterator[Path]:
    """For the weights while they come. Raises ``Unavailable`` where the disk fails meanwhile."""
    try:
        with tempfile.TemporaryDirectory(prefix="foveola-patch-") as folder:
            yield Path(folder)
    except OSError as error:
        raise Unavailable(
            f"The weights cannot be kept while they are read ({error.strerror or 'input/output error'}), and nothing "
            "has changed; make room in the folder for temporary files, and send them again."
        ) from None


async def _received(chunks: AsyncIterator[bytes], boundary: str, file: Path, options: ServeOptions) -> dict[str, str]:
    """Write the part ``weights`` into ``file`` as it comes; the other parts as text."""
    fields: dict[str, bytearray] = {}
    most = options.max_patch_bytes
    with file.open("wb") as out:
        async for name, data in form_parts(chunks, boundary, _PARTS, most + FORM_BYTES, most):
            if data is None:
                fields[name] = bytearray()
            elif name == "weights":
                await asyncio.to_thread(out.write, data)
            else:
                fields[name] += data
                if len(fields[name]) > FIELD_BYTES:
                    raise Invalid(f"`{name}` is longer than {FIELD_BYTES} bytes; send less.", field=name)
    if "weights" not in fields or "module_path" not in fields:
        lacking = "weights" if "weights" not in fields else "module_path"
        raise BadRequest(
            f"The part `{lacking}` is missing; send `module_path`, `weights` (a safetensors file), perhaps `strict`.",
            field=lacking,
        )
    strict = bytes(fields.get("strict", b"true"))
    if strict not in (b"true", b"false"):
        raise Invalid("`strict` is neither true nor false; send one of them, or leave it out.", field="strict")
    try:
        module_path = fields["module_path"].decode()
    except UnicodeDecodeError:
        raise Invalid("`module_path` is not UTF-8; send a name such as visual.", field="module_path") from None
    return {"module_path": module_path, "strict": strict.decode()}


def _replace(patching: Patching, file: Path, fields: dict[str, str]) -> Patched:
    """In a thread: read the weights and put them in place."""
    from foveola.engine.patch_file import read_state_dict

    try:
        tensors = read_state_dict(file)
    except Damaged as damaged:  # what a client sent is the client's fault
        raise Invalid(damaged.message, field="weights") from None
    return patching.replace_submodule(fields["module_path"], tensors, strict=fields["strict"] == "true")


def add_admin(app: FastAPI, service: Service) -> None:
    """Add the routes under ``/v1/admin``; the gate lets only admins come here."""
    admin = Admin(service)
    form: dict[str, Any] = {
        "type": "object",
        "required": ["module_path", "weights"],
        "additionalProperties": False,
        "properties": {
            "module_path": {"type": "string", "description": "the part of the model, such as `visual`"},
            "strict": {"type": "string", "enum": ["true", "false"], "default": "true"},
            "weights": {"type": "string", "format": "binary", "description": "a safetensors file"},
        },
    }
    body = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}}}

    @app.post(
        "/v1/admin/patch",
        summary="Replace a part of the weights while serving",
        description="Newcomers get the new weights; who began on the old ones ends on them. Weights that fail a probe "
        "change nothing. `strict` false lets parameters be missing.",
        tags=["admin"],
        responses=_REFUSED,
        openapi_extra=body,
    )
    async def patch(http: HttpRequest) -> Change:
        return await admin.patch(http)

    @app.post(
        "/v1/admin/rollback", summary="Back to the weights before the last patch", tags=["admin"], responses=_REFUSED
    )
    async def rollback(http: HttpRequest) -> Change:
        return await admin.rollback(http)

    @app.get("/v1/admin/versions", summary="Which weights serve, and what changed", tags=["admin"], responses=_REFUSED)
    async def versions() -> Versions:
        return admin.versions()
