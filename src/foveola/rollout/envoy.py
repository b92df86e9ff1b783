"""Envoy's configuration from a release: weighted routes, routing by aspect ratio, retries, ejection of sick servers.

Files, not a control plane: Envoy watches the folder and takes a file that was renamed into it (file xDS). A route to a
cluster that does not exist is rejected by Envoy and the old routes stay (``validate_clusters``).
"""

from __future__ import annotations

import ipaddress
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foveola.exchange import Invalid
from foveola.rollout.release import ASPECT_LIMIT, Release

Json = dict[str, Any]
Endpoints = Mapping[str, tuple[str, int]]
"""Host and port of each version's servers."""

BUFFER_BYTES = 48 * 1024 * 1024
"""A whole body is held until its picture is measured; the server's own limit for a body is about 31 MiB."""
TIMEOUT_S = 150
_TYPE = "type.googleapis.com/envoy"


def cluster(name: str, host: str, port: int) -> Json:
    """One version's servers, with sick ones taken out for a while."""
    try:
        ipaddress.ip_address(host)
        kind = "STATIC"
    except ValueError:
        kind = "STRICT_DNS"
    address = {"socket_address": {"address": host, "port_value": port}}
    return {
        "@type": f"{_TYPE}.config.cluster.v3.Cluster",
        "name": name,
        "type": kind,
        "connect_timeout": "2s",
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "outlier_detection": {
            "consecutive_5xx": 5, "consecutive_gateway_failure": 3, "interval": "5s", "base_ejection_time": "15s",
            "max_ejection_percent": 50,
        },
        "load_assignment": {
            "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }  # fmt: skip


def _action(**where: Any) -> Json:
    retry = {
        "retry_on": "connect-failure,refused-stream,reset-before-request,retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": 3,
        "retry_back_off": {"base_interval": "0.05s", "max_interval": "0.5s"},
    }
    return {**where, "timeout": f"{TIMEOUT_S}s", "retry_policy": retry}


def _told(version: str) -> list[Json]:
    header = {"key": "x-foveola-version", "value": version}
    return [{"header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]


def routes(release: Release, weights: Mapping[str, int]) -> Json:
    """The route table. Raises ``Invalid`` unless the weights sum to 100."""
    if sum(weights.values()) != 100 or min(weights.values()) < 0:
        raise Invalid(f"The weights {dict(weights)} must be per cents that sum to 100.", field="weights")
    split = [
        {"name": name, "weight": weight, "response_headers_to_add": _told(name)}
        for name, weight in weights.items() if weight
    ]  # fmt: skip
    table: list[Json] = []
    if release.wide is not None:
        wide = {"name": "x-image-route", "string_match": {"exact": "wide"}}
        table.append(
            {"name": "wide", "match": {"prefix": "/", "headers": [wide]}, "route": _action(cluster=release.wide),
             "response_headers_to_add": _told(release.wide)}
        )  # fmt: skip
    weighted = {"clusters": split, "header_name": "x-foveola-turn"}
    table.append({"name": "weighted", "match": {"prefix": "/"}, "route": _action(weighted_clusters=weighted)})
    return {
        "@type": f"{_TYPE}.config.route.v3.RouteConfiguration",
        "name": "foveola",
        "validate_clusters": True,
        "request_headers_to_remove": ["x-foveola-turn"],
        "virtual_hosts": [{"name": "foveola", "domains": ["*"], "routes": table}],
    }


def bootstrap(folder: str, *, listen: int, admin: int, admin_host: str = "127.0.0.1", host: str = "0.0.0.0") -> Json:
    """What Envoy is started with; everything that changes comes from ``folder``."""

    def source(file: str) -> Json:
        path = {"path": f"{folder}/{file}", "watched_directory": {"path": folder}}
        return {"resource_api_version": "V3", "path_config_source": path}

    script = Path(__file__).with_name("aspect.lua").read_text(encoding="utf-8").replace("@LIMIT@", str(ASPECT_LIMIT))
    http = f"{_TYPE}.extensions.filters.http"
    manager = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "foveola",
        "codec_type": "AUTO",
        "stream_idle_timeout": f"{TIMEOUT_S}s",
        "rds": {"route_config_name": "foveola", "config_source": source("rds.json")},
        "http_filters": [
            {"name": "lua", "typed_config": {"@type": f"{http}.lua.v3.Lua", "default_source_code": {
                "inline_string": script}}},
            {"name": "router", "typed_config": {"@type": f"{http}.router.v3.Router"}},
        ],
    }  # fmt: skip
    listener = {
        "name": "foveola",
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "address": {"socket_address": {"address": host, "port_value": listen}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return {
        "node": {"id": "foveola", "cluster": "foveola"},
        "admin": {"address": {"socket_address": {"address": admin_host, "port_value": admin}}},
        "dynamic_resources": {"cds_config": source("cds.json")},
        "static_resources": {"listeners": [listener]},
    }


def files_of(
    release: Release, weights: Mapping[str, int], endpoints: Endpoints, *, folder: str = "/etc/envoy/xds",
    listen: int = 8000, admin: int = 9901, host: str = "0.0.0.0",
) -> dict[str, str]:  # fmt: skip
    """The three files by name, as text."""
    clusters = [cluster(name, *endpoints[name]) for name in endpoints]
    made = {
        "bootstrap.json": bootstrap(folder, listen=listen, admin=admin, host=host),
        "cds.json": {"resources": clusters},
        "rds.json": {"resources": [routes(release, weights)]},
    }
    return {name: json.dumps(document, indent=1) + "\n" for name, document in made.items()}


def publish(folder: Path, files: Mapping[str, str]) -> None:
    """Give Envoy new files, each whole: first clusters (with those that the old routes still name), then routes.

    A cluster that is not used any more stays until the next time, so that requests on their way to it end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    old = folder / "cds.json"
    clusters = json.loads(files["cds.json"])["resources"]
    if old.is_file() and (folder / "rds.json").is_file():
        routed = (folder / "rds.json").read_text(encoding="utf-8")
        new = {one["name"] for one in clusters}
        for one in json.loads(old.read_text(encoding="utf-8"))["resources"]:
            if one["name"] not in new and f'"{one["name"]}"' in routed:
                clusters.append(one)
    for name, text in (
        ("bootstrap.json", files["bootstrap.json"]),
        ("cds.json", json.dumps({"resources": clusters}, indent=1) + "\n"),
        ("rds.json", files["rds.json"]),
    ):
        _replace(folder / name, text)


def _replace(path: Path, text: str) -> None:
    """Rename into place: Envoy watches for that, and nobody sees half a file."""
    handle, staged = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    Path(staged).chmod(0o644)
    os.replace(staged, path)
