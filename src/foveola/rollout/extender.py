"""A scheduler extender: which nodes have room for a version's slice, and which of them is best.

The types of ``k8s.io/kube-scheduler/extender/v1`` carry no JSON names, so keys arrive with capitals. A node tells its
GPUs with the labels ``vlms.ai/gpu-model`` and ``vlms.ai/gpus``; what runs there is told by the annotation
``vlms.ai/slices`` (JSON: ``[{"name", "profile"}]``), which the plant's device plugin or an administrator keeps.

Weight and concurrency: a pod of a version carries the annotations ``vlms.ai/weight`` (its share of the traffic) and
``vlms.ai/max-concurrency`` (requests that one replica answers at once), which the operator writes. A node whose label
``vlms.ai/max-concurrency`` says a number takes no more than that in total; what its pods already use stands beside
their slice (``"concurrency"``, ``"weight"``) in the node's annotation. Heavy versions are spread, light ones packed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from foveola.exchange import Invalid
from foveola.rollout.gpu import MODELS, Profile
from foveola.rollout.objects import CONCURRENCY, WEIGHT
from foveola.rollout.packing import Packing, Slice, pack

PREFIX = "nvidia.com/mig-"
MAX_SCORE = 10


def profile_wanted(pod: Mapping[str, Any]) -> str | None:
    """The MIG profile that a pod asks for, or None."""
    for container in pod.get("spec", {}).get("containers", ()):
        for key in container.get("resources", {}).get("limits", {}):
            if key.startswith(PREFIX):
                return str(key.removeprefix(PREFIX))
    return None


def _profile(model: str, name: str) -> Profile | None:
    return next((one for one in MODELS.get(model, ()) if one.name == name), None)


def _annotation(pod: Mapping[str, Any], name: str) -> int:
    """A count that the operator wrote on the pod; 0 where none stands there. Raises ``Invalid`` for anything else."""
    text = (pod["metadata"].get("annotations") or {}).get(name, "0")
    if not (isinstance(text, str) and text.isascii() and text.isdigit()):
        raise Invalid(f"The pod's annotation {name} is {text!r}; expected a whole number from 0.", field=name)
    return int(text)


def _traffic(running: list[dict[str, Any]]) -> float:
    """The weights of what runs on a node, together (per cent)."""
    return sum(float(one.get("weight", 0)) for one in running)


def fit(node: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[Packing | None, str]:
    """How the node's GPUs would be packed with the pod on it; None and a reason where they cannot be."""
    wanted = profile_wanted(pod)
    metadata = node["metadata"]
    labels, notes = metadata.get("labels", {}), metadata.get("annotations", {})
    model = labels.get("vlms.ai/gpu-model", "")
    try:
        gpus, running = int(labels.get("vlms.ai/gpus", "0")), json.loads(notes.get("vlms.ai/slices", "[]"))
        found = [(one["name"], _profile(model, one.get("profile", ""))) for one in running]
        slices = [Slice(name, profile) for name, profile in found if profile]
        room = int(labels[CONCURRENCY]) if CONCURRENCY in labels else None
        used = sum(int(one.get("concurrency", 0)) for one in running)
        _traffic(running)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "its labels or annotations of vlms.ai cannot be read"
    more = _annotation(pod, CONCURRENCY)
    if room is not None and used + more > room:
        return None, f"{used} of its {room} requests at once are taken and the pod needs {more}"
    if wanted is None:
        return Packing((), ()), ""
    profile = _profile(model, wanted)
    if profile is None:
        return None, f"its GPUs ({model or 'none'}) have no profile {wanted}"
    name = pod["metadata"].get("name") or pod["metadata"].get("generateName", "pod")
    packing = pack([*slices, Slice(name, profile)], gpus, model)
    if packing.left:
        return None, f"no free {wanted} on its {gpus} GPUs"
    return packing, ""


def score(node: Mapping[str, Any], pod: Mapping[str, Any], packing: Packing) -> int:
    """0..10: nodes whose used GPUs are fullest, so that whole GPUs stay free; less where the version runs already.

    The larger the pod's share of the traffic, the more it counts that little traffic goes to the node so far.
    """
    used = sum(place.slice.profile.compute for place in packing.places)
    full = used / (7 * packing.gpus_used) if packing.gpus_used else 0.0
    version = pod["metadata"].get("labels", {}).get("vlms.ai/version", "")
    mine = sum(bool(version) and place.slice.name.startswith(version) for place in packing.places)
    weight = min(_annotation(pod, WEIGHT), 100) / 100
    running = json.loads(node["metadata"].get("annotations", {}).get("vlms.ai/slices", "[]"))
    idle = 1.0 - min(_traffic(running) / 100, 1.0)
    wanted = (1.0 - weight) * full + weight * idle
    return max(0, min(MAX_SCORE, round(MAX_SCORE * wanted) - 2 * max(0, mine - 1)))


def create_extender() -> FastAPI:
    """``/filter`` and ``/prioritize`` for kube-scheduler. Raises ``Invalid`` (422) for a body that is no request."""
    app = FastAPI(title="Foveola scheduler extender", docs_url=None, redoc_url=None)

    @app.exception_handler(Invalid)
    async def refused(_: Request, error: Invalid) -> JSONResponse:
        return JSONResponse({"Error": error.message}, status_code=422)

    @app.post("/filter")
    async def choose(http: Request) -> dict[str, Any]:
        pod, nodes = _asked(await http.json())
        fits, failed = [], {}
        for node in nodes:
            packing, reason = fit(node, pod)
            if packing is None:
                failed[node["metadata"]["name"]] = reason
            else:
                fits.append(node)
        return {"Nodes": {"items": fits}, "NodeNames": None, "FailedNodes": failed, "Error": ""}

    @app.post("/prioritize")
    async def prefer(http: Request) -> list[dict[str, Any]]:
        pod, nodes = _asked(await http.json())
        found = []
        for node in nodes:
            packing, _ = fit(node, pod)
            found.append({"Host": node["metadata"]["name"], "Score": score(node, pod, packing) if packing else 0})
        return found

    return app


def _asked(body: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        return body["Pod"], body["Nodes"]["items"]
    except (KeyError, TypeError):
        raise Invalid("The body is no ExtenderArgs with Pod and Nodes; set `nodeCacheCapable: false`.") from None
