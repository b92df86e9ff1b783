"""An emulated Kubernetes API: enough truth for kopf, kubectl and helm, and for what the operator relies on.

It has discovery, tables, watches with resource versions, server-side apply (as a merge of what is named), merge and
JSON patches, the status subresource, 404, 409 and 422 with schemas and CEL rules of CRDs, finalizers, and garbage
collection by owner references. It has no scheduler, no controllers and no admission: pods never run here, and a test
says itself that a Deployment is available.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import threading
import uuid
from datetime import UTC, datetime
from typing import Any

import cel
import jsonpatch
import jsonschema
import yaml
from aiohttp import web

from tests.rollout.protobuf import MAGIC, secret

Json = dict[str, Any]

# group/version → kind → (plural, namespaced)
BUILT_IN: dict[str, dict[str, tuple[str, bool]]] = {
    "v1": {"Namespace": ("namespaces", False), "Service": ("services", True), "ConfigMap": ("configmaps", True),
           "Secret": ("secrets", True), "ServiceAccount": ("serviceaccounts", True), "Event": ("events", True),
           "Node": ("nodes", False)},
    "apps/v1": {"Deployment": ("deployments", True)},
    "policy/v1": {"PodDisruptionBudget": ("poddisruptionbudgets", True)},
    "autoscaling/v2": {"HorizontalPodAutoscaler": ("horizontalpodautoscalers", True)},
    "coordination.k8s.io/v1": {"Lease": ("leases", True)},
    "networking.k8s.io/v1": {"NetworkPolicy": ("networkpolicies", True)},
    "rbac.authorization.k8s.io/v1": {"Role": ("roles", True), "RoleBinding": ("rolebindings", True),
                                     "ClusterRole": ("clusterroles", False),
                                     "ClusterRoleBinding": ("clusterrolebindings", False)},
    "resource.k8s.io/v1": {"ResourceClaimTemplate": ("resourceclaimtemplates", True)},
    "apiextensions.k8s.io/v1": {"CustomResourceDefinition": ("customresourcedefinitions", False)},
}  # fmt: skip
CRD = ("apiextensions.k8s.io/v1", "customresourcedefinitions")


class Refused(Exception):
    """A Kubernetes Status that is a failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


def merged(old: Any, new: Any) -> Any:
    """RFC 7386."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return copy.deepcopy(new)
    found = dict(old)
    for key, value in new.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(old.get(key, {} if isinstance(value, dict) else None), value)
    return found


def broken_rules(schema: Json, value: Any, path: str = "") -> list[str]:
    """Schema and CEL rules, from the root down."""
    found = []
    if not path:
        for error in jsonschema.Draft7Validator(schema).iter_errors(value):
            found.append(f"{'.'.join(map(str, error.path))}: {error.message}")
    for rule in schema.get("x-kubernetes-validations", ()):
        try:
            ok = cel.evaluate(rule["rule"], {"self": value})
        except (RuntimeError, ValueError, TypeError) as error:
            ok = False
            found.append(f"{path}: {rule['rule']}: {error}")
        if not ok:
            found.append(f"{path}: {rule.get('message', rule['rule'])}")
    if isinstance(value, dict):
        for key, part in schema.get("properties", {}).items():
            if key in value:
                found += broken_rules(part, value[key], f"{path}.{key}")
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            found += broken_rules(schema["items"], item, f"{path}[{index}]")
    return found


def with_defaults(schema: Json, value: Any) -> Any:
    """Structural defaulting and pruning of unknown fields."""
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        kept = {key: item for key, item in value.items() if key in known}
        for key, part in known.items():
            if key not in kept and "default" in part:
                kept[key] = copy.deepcopy(part["default"])
            if key in kept:
                kept[key] = with_defaults(part, kept[key])
        return kept
    if isinstance(value, list) and "items" in schema:
        return [with_defaults(schema["items"], item) for item in value]
    return value


class ApiServer:
    """Runs in a thread; ``url`` is where."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str, str], Json] = {}  # (group version, plural, namespace, name)
        self.kinds = copy.deepcopy(BUILT_IN)
        self.crds: dict[tuple[str, str], Json] = {}
        self.requests: list[tuple[str, str]] = []
        self._versions = itertools.count(100)
        self._history: list[tuple[tuple[str, str, str, str], Json]] = []
        self._watchers: list[tuple[str, str, str, asyncio.Queue[Json]]] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        self._store("v1", "namespaces", "", "plant", {"apiVersion": "v1", "kind": "Namespace", "metadata": {}})

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=1 << 26, middlewares=[self._guard])
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None)
        self._loop.run_until_complete(self._runner.setup())
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._ready.set()
        self._loop.run_forever()

    def close(self) -> None:
        async def end() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await self._runner.cleanup()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    # --- what tests do in place of controllers

    def call(self, work: Any) -> Any:
        """Run a function of the store in the server's thread."""

        async def inside() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(30)

    def find(self, plural: str, name: str, namespace: str = "plant") -> Json | None:
        """A copy of an object, or None."""

        def look() -> Json | None:
            for (_, kind, space, one), item in self.objects.items():
                if (kind, space, one) == (plural, namespace, name):
                    return copy.deepcopy(item)
            return None

        return self.call(look)  # type: ignore[no-any-return]

    def names(self, plural: str) -> list[str]:
        return self.call(lambda: sorted(key[3] for key in self.objects if key[1] == plural))  # type: ignore[no-any-return]

    def make_available(self) -> None:
        """All Deployments have all their replicas."""

        def work() -> None:
            for key, item in list(self.objects.items()):
                if key[1] == "deployments":
                    self._store(*key, {**item, "status": {"availableReplicas": item["spec"].get("replicas", 1)}})

        self.call(work)

    # --- the store

    def _store(self, group: str, plural: str, namespace: str, name: str, item: Json) -> Json:
        key = (group, plural, namespace, name)
        old = self.objects.get(key)
        item = copy.deepcopy(item)
        metadata = item.setdefault("metadata", {})
        if old is None:
            metadata |= {"uid": str(uuid.uuid4()), "generation": 1, "name": name,
                         "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}  # fmt: skip
            if namespace:
                metadata["namespace"] = namespace
        else:
            if {**old, "metadata": {**old["metadata"], "resourceVersion": ""}} == {
                **item, "metadata": {**metadata, "resourceVersion": ""}
            }:  # fmt: skip
                return old
            changed = old.get("spec") != item.get("spec")
            metadata["generation"] = old["metadata"]["generation"] + changed
        metadata["resourceVersion"] = str(next(self._versions))
        if old is not None and metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            return self._remove(key)
        self.objects[key] = item
        self._tell(key, "MODIFIED" if old else "ADDED", item)
        if (group, plural) == CRD:
            self._learn(item)
        return item

    def _remove(self, key: tuple[str, str, str, str]) -> Json:
        item = self.objects.pop(key)
        item["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(key, "DELETED", item)
        uid = item["metadata"]["uid"]
        for other, child in list(self.objects.items()):
            if any(one.get("uid") == uid for one in child["metadata"].get("ownerReferences", ())):
                self._delete(other)
        return item

    def _delete(self, key: tuple[str, str, str, str]) -> Json:
        item = self.objects.get(key)
        if item is None:
            raise Refused(404, "NotFound", f'{key[1]} "{key[3]}" not found')
        if item["metadata"].get("finalizers"):
            if "deletionTimestamp" not in item["metadata"]:
                stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                return self._store(*key, merged(item, {"metadata": {"deletionTimestamp": stamp}}))
            return item
        return self._remove(key)

    def _tell(self, key: tuple[str, str, str, str], what: str, item: Json) -> None:
        self._history.append((key, {"type": what, "object": copy.deepcopy(item)}))
        for group, plural, namespace, queue in self._watchers:
            if (group, plural) == key[:2] and namespace in ("", key[2]):
                queue.put_nowait({"type": what, "object": copy.deepcopy(item)})

    def _learn(self, crd: Json) -> None:
        spec = crd["spec"]
        for version in spec["versions"]:
            group = f"{spec['group']}/{version['name']}"
            names = spec["names"]
            self.kinds.setdefault(group, {})[names["kind"]] = (names["plural"], spec["scope"] == "Namespaced")
            self.crds[group, names["plural"]] = {**version, "shortNames": names.get("shortNames", [])}

    def _checked(self, group: str, plural: str, item: Json) -> Json:
        crd = self.crds.get((group, plural))
        if crd is None:
            return item
        schema = crd["schema"]["openAPIV3Schema"]
        parts = {
            name: with_defaults(schema["properties"][name], item[name]) for name in ("spec", "status") if name in item
        }
        item = {**item, **parts}
        wrong = broken_rules(schema, {key: value for key, value in item.items() if key in ("spec", "status")})
        if wrong:
            raise Refused(422, "Invalid", f'{plural} "{item["metadata"].get("name")}" is invalid: {"; ".join(wrong)}')
        return item

    # --- HTTP

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await handler(request)  # type: ignore[no-any-return]
        except Refused as refused:
            status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": refused.code,
                      "reason": refused.reason, "message": refused.message, "metadata": {}}  # fmt: skip
            return web.json_response(status, status=refused.code)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = [part for part in request.path.split("/") if part]
        self.requests.append((request.method, request.path))
        if parts == ["version"]:
            return web.json_response({"major": "1", "minor": "35", "gitVersion": "v1.35.0", "platform": "linux/amd64"})
        if parts == ["api"]:
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        if parts == ["apis"]:
            return web.json_response(self._groups())
        if parts and parts[0] in ("api", "apis"):
            group, rest = ("v1", parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
            if group in self.kinds:
                return await self._resource(request, group, rest) if rest else web.json_response(self._kinds(group))
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    def _groups(self) -> Json:
        groups = []
        for name in dict.fromkeys(one.split("/")[0] for one in self.kinds if "/" in one):
            versions = [
                {"groupVersion": one, "version": one.split("/")[1]} for one in self.kinds if one.startswith(f"{name}/")
            ]
            groups.append({"name": name, "versions": versions, "preferredVersion": versions[0]})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _kinds(self, group: str) -> Json:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        found = []
        for kind, (plural, namespaced) in self.kinds[group].items():
            short = self.crds.get((group, plural), {}).get("shortNames", [])
            one = {"name": plural, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": verbs}
            found.append({**one, "shortNames": short})
            if plural in ("deployments",) or (group, plural) in self.crds:
                found.append({**one, "name": f"{plural}/status", "verbs": ["get", "patch", "update"]})
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": found}

    async def _resource(self, request: web.Request, group: str, rest: list[str]) -> web.StreamResponse:
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "")[:3]
        kind = next((kind for kind, (one, _) in self.kinds[group].items() if one == plural), None)
        if kind is None or sub not in ("", "status"):
            raise Refused(404, "NotFound", f"there is no {plural} {sub}")
        key = (group, plural, namespace, name)
        if request.method == "GET" and not name:
            return await self._list(request, group, plural, namespace, kind)
        if request.method == "POST":
            return self._create(await self._body(request), group, plural, namespace, kind)
        if request.method == "DELETE":
            return web.json_response(self._delete(key))
        if request.method == "PATCH" and key not in self.objects and "apply-patch" in request.content_type:
            return self._create(await self._body(request), group, plural, namespace, kind, name)
        if key not in self.objects:
            raise Refused(404, "NotFound", f'{plural} "{name}" not found')
        if request.method == "GET":
            return self._shown(request, self.objects[key], group, plural)
        return web.json_response(self._changed(key, request, await self._body(request), sub))

    @staticmethod
    async def _body(request: web.Request) -> Any:
        raw = await request.read()
        if raw.startswith(MAGIC):
            return secret(raw)
        return yaml.safe_load(raw) or {}

    def _create(
        self, item: Json, group: str, plural: str, namespace: str, kind: str, name: str = ""
    ) -> web.StreamResponse:
        name = name or item["metadata"].get("name") or item["metadata"]["generateName"] + uuid.uuid4().hex[:5]
        if (group, plural, namespace, name) in self.objects:
            raise Refused(409, "AlreadyExists", f'{plural} "{name}" already exists')
        item = {**item, "apiVersion": group, "kind": kind}
        if (group, plural) in self.crds:
            item.pop("status", None)
        item = self._checked(group, plural, item)
        stored = self._store(group, plural, namespace, name, item)
        if (group, plural) == CRD:
            accepted = [{"type": one, "status": "True", "reason": "Ok", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                        for one in ("NamesAccepted", "Established")]  # fmt: skip
            names = stored["spec"]["names"]
            status = {"conditions": accepted, "acceptedNames": names, "storedVersions": ["v1alpha1"]}
            stored = self._store(group, plural, namespace, name, {**stored, "status": status})
        return web.json_response(stored, status=201)

    def _changed(self, key: tuple[str, str, str, str], request: web.Request, change: Any, sub: str) -> Json:
        old = self.objects[key]
        kind = request.content_type
        if request.method == "PUT":
            new = change
        elif "json-patch" in kind:
            new = jsonpatch.apply_patch(old, change)
        else:
            new = merged(old, change)
        wanted = (change.get("metadata") or {}).get("resourceVersion") if isinstance(change, dict) else None
        if wanted and wanted != old["metadata"]["resourceVersion"]:
            raise Refused(
                409, "Conflict", "the object has been modified; please apply your changes to the latest version"
            )
        if key[:2] in self.crds or key[1] == "deployments":
            other = "spec" if sub == "status" else "status"
            new = {**new, other: old.get(other)} if other in old else {k: v for k, v in new.items() if k != other}
            if sub == "status":
                new["metadata"] = {**old["metadata"]}
        new["metadata"] = {**new["metadata"], **{name: old["metadata"][name] for name in ("uid", "creationTimestamp")}}
        return self._store(*key, self._checked(key[0], key[1], new))

    async def _list(
        self, request: web.Request, group: str, plural: str, namespace: str, kind: str
    ) -> web.StreamResponse:
        wanted = dict(pair.split("=", 1) for pair in request.query.get("labelSelector", "").split(",") if "=" in pair)
        field = dict(pair.split("=", 1) for pair in request.query.get("fieldSelector", "").split(",") if "=" in pair)

        def chosen(item: Json) -> bool:
            labels = item["metadata"].get("labels", {})
            named = field.get("metadata.name", item["metadata"]["name"]) == item["metadata"]["name"]
            return named and all(labels.get(name.strip()) == value.strip("=") for name, value in wanted.items())

        items = [
            item for key, item in self.objects.items()
            if key[:2] == (group, plural) and namespace in ("", key[2]) and chosen(item)
        ]  # fmt: skip
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, group, plural, namespace, items, chosen)
        if "as=Table" in request.headers.get("accept", ""):
            return web.json_response(self._table(items, group, plural))
        version = str(next(self._versions))
        return web.json_response({"apiVersion": group, "kind": f"{kind}List", "metadata": {"resourceVersion": version},
                                  "items": items})  # fmt: skip

    async def _watch(
        self, request: web.Request, group: str, plural: str, namespace: str, items: list[Json], chosen: Any
    ) -> web.StreamResponse:
        queue: asyncio.Queue[Json] = asyncio.Queue()
        watcher = (group, plural, namespace, queue)
        self._watchers.append(watcher)
        since = int(request.query.get("resourceVersion") or 0)
        before = [{"type": "ADDED", "object": item} for item in items]
        if since:  # what happened between a list and the watch that goes on from it is not lost
            before = [
                event for key, event in self._history
                if key[:2] == (group, plural) and namespace in ("", key[2]) and chosen(event["object"])
                and int(event["object"]["metadata"]["resourceVersion"]) > since
            ]  # fmt: skip
        before = copy.deepcopy(before)
        reply = web.StreamResponse(headers={"content-type": "application/json"})
        await reply.prepare(request)
        try:
            for event in before:
                await reply.write(json.dumps(event).encode() + b"\n")
            if request.query.get("sendInitialEvents") == "true":
                kind = next(kind for kind, (one, _) in self.kinds[group].items() if one == plural)
                end = {
                    "resourceVersion": str(next(self._versions)),
                    "annotations": {"k8s.io/initial-events-end": "true"},
                }
                mark = {"type": "BOOKMARK", "object": {"apiVersion": group, "kind": kind, "metadata": end}}
                await reply.write(json.dumps(mark).encode() + b"\n")
            while True:
                event = await queue.get()
                if chosen(event["object"]):
                    await reply.write(json.dumps(event).encode() + b"\n")
        except (ConnectionError, asyncio.CancelledError):
            return reply
        finally:
            self._watchers.remove(watcher)

    def _shown(self, request: web.Request, item: Json, group: str, plural: str) -> web.StreamResponse:
        if "as=Table" in request.headers.get("accept", ""):
            return web.json_response(self._table([item], group, plural))
        return web.json_response(item)

    def _table(self, items: list[Json], group: str, plural: str) -> Json:
        columns = [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}]
        more = self.crds.get((group, plural), {}).get("additionalPrinterColumns", [])
        columns += [
            {"name": one["name"], "type": one["type"], "format": "", "description": "", "priority": 0} for one in more
        ]
        rows = []
        for item in items:
            cells: list[Any] = [item["metadata"]["name"]]
            for one in more:
                value: Any = item
                for part in one["jsonPath"].strip(".").split("."):
                    value = value.get(part) if isinstance(value, dict) else None
                cells.append(value if value is not None else "")
            rows.append({"cells": cells, "object": item})
        version = {"resourceVersion": str(next(self._versions))}
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": version,
            "columnDefinitions": columns,
            "rows": rows,
        }
