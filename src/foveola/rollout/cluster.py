"""The few calls to the Kubernetes API that the operator makes, over aiohttp."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import kopf

from foveola.exchange import Unavailable
from foveola.rollout.release import API_VERSION, GROUP

Json = dict[str, Any]
MANAGER = "foveola-operator"
TIMEOUT_S = 30.0

# kind → (path of its group and version, plural)
KINDS: dict[str, tuple[str, str]] = {
    "Deployment": ("apis/apps/v1", "deployments"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("apis/autoscaling/v2", "horizontalpodautoscalers"),
    "ResourceClaimTemplate": ("apis/resource.k8s.io/v1", "resourceclaimtemplates"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "VisionLanguageModel": (f"apis/{GROUP}/{API_VERSION}", "visionlanguagemodels"),
    "VLMService": (f"apis/{GROUP}/{API_VERSION}", "vlmservices"),
}


class Conflict(Exception):
    """The object was changed meanwhile, or exists (409)."""


class ApiError(Exception):
    """The API server refused; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def login() -> kopf.ConnectionInfo:
    """Where the API server is: the pod's service account, else a kubeconfig. Raises ``Unavailable``."""
    settings = kopf.OperatorSettings()
    found = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(settings=settings)
    if found is None:
        raise Unavailable("There is no cluster to talk to: run in a pod, or set KUBECONFIG to a file.")
    return found


class Cluster:
    """A session with the API server; an async context manager."""

    def __init__(self, info: kopf.ConnectionInfo) -> None:
        self._server = info.server.rstrip("/")
        headers = {"authorization": f"Bearer {info.token}"} if info.token else {}
        self._session = aiohttp.ClientSession(
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            connector=aiohttp.TCPConnector(ssl=_ssl(info)),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self._session.close()

    async def apply(self, item: Mapping[str, Any]) -> Json:
        """Server-side apply: creates, or takes over the fields that ``item`` names. Idempotent."""
        url = self._url(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
        # JSON is YAML.
        headers = {"content-type": "application/apply-patch+yaml"}
        parameters = {"fieldManager": MANAGER, "force": "true"}
        return await self._ask("PATCH", url, json.dumps(item), headers, parameters)

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """One object, or None."""
        try:
            return await self._ask("GET", self._url(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str, selector: str) -> list[Json]:
        """Objects by labels; an API server that does not know the kind has none."""
        try:
            found = await self._ask("GET", self._url(kind, namespace), parameters={"labelSelector": selector})
        except ApiError as error:
            if error.status == 404:
                return []
            raise
        return [{"kind": kind, **item} for item in found.get("items", [])]

    async def create(self, item: Mapping[str, Any]) -> Json:
        """Raises ``Conflict`` where it exists."""
        url = self._url(item["kind"], item["metadata"]["namespace"])
        return await self._ask("POST", url, json.dumps(item), {"content-type": "application/json"})

    async def replace(self, item: Mapping[str, Any]) -> Json:
        """Put an object whose ``resourceVersion`` must still be the current one. Raises ``Conflict``."""
        url = self._url(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
        return await self._ask("PUT", url, json.dumps(item), {"content-type": "application/json"})

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object; one that is gone is fine."""
        try:
            await self._ask("DELETE", self._url(kind, namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise

    def _url(self, kind: str, namespace: str, name: str = "") -> str:
        group, plural = KINDS[kind]
        return f"{self._server}/{group}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")

    async def _ask(
        self,
        method: str,
        url: str,
        data: str | None = None,
        headers: Json | None = None,
        parameters: Json | None = None,
    ) -> Json:
        async with self._session.request(method, url, data=data, headers=headers, params=parameters) as reply:
            body: Json = await reply.json(content_type=None)
            if reply.status == 409:
                raise Conflict(body.get("message", "conflict"))
            if reply.status >= 400:
                raise ApiError(reply.status, str(body.get("message", "no message")))
            return body


def _ssl(info: kopf.ConnectionInfo) -> ssl.SSLContext | bool:
    if not info.server.startswith("https"):
        return True
    if info.insecure:
        return False
    data = base64.b64decode(info.ca_data).decode() if isinstance(info.ca_data, str | bytes) and info.ca_data else None
    context = ssl.create_default_context(cafile=str(info.ca_path) if info.ca_path else None, cadata=data)
    if info.certificate_path and info.private_key_path:
        context.load_cert_chain(str(info.certificate_path), str(info.private_key_path))
    return context
