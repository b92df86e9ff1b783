"""The two custom resources, written once in Python; ``foveola rollout crds`` prints them, the chart carries them.

Schemas are structural; what refers to several fields is a CEL rule; what refers to other objects is checked by the
operator and told in the status.
"""

from __future__ import annotations

from typing import Any

from foveola.rollout.release import API_VERSION, GROUP

Json = dict[str, Any]

_NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 30}
_QUANTITY = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi)?$", "maxLength": 16}
_RATE = {"type": "number", "minimum": 0, "maximum": 1}


def _object(properties: Json, required: list[str] | None = None, rules: list[Json] | None = None) -> Json:
    found: Json = {"type": "object", "properties": properties}
    if required:
        found["required"] = required
    if rules:
        found["x-kubernetes-validations"] = rules
    return found


def _gpu() -> Json:
    return _object(
        {
            "mode": {"type": "string", "enum": ["mig", "dra", "vgpu"]},
            "model": {"type": "string", "enum": ["a100-40gb", "a100-80gb", "h100-80gb", "h200-141gb"]},
            "fraction": {"type": "string", "pattern": "^[1-7]/7$", "maxLength": 3},
            "memoryMiB": {"type": "integer", "minimum": 256, "maximum": 262144},
        },
        ["mode", "model"],
        [
            {"rule": "self.mode != 'vgpu' || has(self.memoryMiB)", "message": "a vgpu needs memoryMiB"},
            {"rule": "self.mode == 'vgpu' || has(self.fraction)", "message": "mig and dra need a fraction such as 1/7"},
        ],
    )


def _version() -> Json:
    return _object(
        {
            "name": _NAME,
            "image": {"type": "string", "minLength": 1, "maxLength": 400},
            "weight": {"type": "integer", "minimum": 0, "maximum": 100, "default": 0},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 64, "default": 1},
            "maxConcurrency": {"type": "integer", "minimum": 1, "maximum": 1024, "default": 1},
            "bundle": {"type": "string", "maxLength": 400},
            "gpu": _gpu(),
            "resources": _object({"cpu": _QUANTITY, "memory": _QUANTITY}),
            "autoscale": _object(
                {
                    "minReplicas": {"type": "integer", "minimum": 1, "maximum": 64},
                    "maxReplicas": {"type": "integer", "minimum": 1, "maximum": 64},
                    "queuePerReplica": {"type": "number", "minimum": 0.1, "maximum": 1024, "default": 1},
                },
                ["minReplicas", "maxReplicas"],
                [
                    {
                        "rule": "self.minReplicas <= self.maxReplicas",
                        "message": "minReplicas must not exceed maxReplicas",
                    }
                ],
            ),
        },
        ["name", "image"],
    )


def _canary() -> Json:
    analysis = _object(
        {
            "maxErrorRate": _RATE,
            "maxLatencySeconds": {"type": "number", "minimum": 0},
            "minAccuracy": _RATE,
            "minSimilarity": _RATE,
            "maxDriftShare": {"type": "number", "minimum": 0},
            "minRequests": {"type": "integer", "minimum": 0},
            "failures": {"type": "integer", "minimum": 1, "maximum": 100},
        }
    )
    step = {"type": "integer", "minimum": 1, "maximum": 100}
    return _object(
        {
            "version": _NAME,
            "steps": {"type": "array", "minItems": 1, "maxItems": 20, "items": step},
            "intervalSeconds": {"type": "number", "minimum": 0.1, "maximum": 86400},
            "paused": {"type": "boolean"},
            "analysis": analysis,
        },
        ["version"],
    )


def _conditions() -> Json:
    text = {"type": "string"}
    one = _object(
        {"type": text, "status": {"type": "string", "enum": ["True", "False", "Unknown"]}, "reason": text,
         "message": text, "lastTransitionTime": {"type": "string", "format": "date-time"},
         "observedGeneration": {"type": "integer"}},
        ["type", "status"],
    )  # fmt: skip
    return {"type": "array", "items": one, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _model_spec() -> Json:
    unique = "self.versions.all(v, self.versions.exists_one(w, w.name == v.name))"
    return _object(
        {
            "versions": {"type": "array", "minItems": 1, "maxItems": 8, "items": _version()},
            "canary": _canary(),
            "wide": _NAME,
            "port": {"type": "integer", "minimum": 1024, "maximum": 65535, "default": 8080},
        },
        ["versions"],
        [
            {"rule": unique, "message": "every version needs a name of its own"},
            {"rule": "self.versions.exists(v, v.weight > 0)", "message": "at least one version needs a weight above 0"},
            {
                "rule": "!has(self.canary) || self.versions.exists(v, v.name == self.canary.version)",
                "message": "canary.version must name a version",
            },
            {
                "rule": "!has(self.wide) || self.versions.exists(v, v.name == self.wide)",
                "message": "wide must name a version",
            },
        ],
    )


def _service_spec() -> Json:
    backend = _object(
        {
            "model": {"type": "string", "minLength": 1, "maxLength": 200},
            "image": {"type": "string", "minLength": 1, "maxLength": 400},
            "bundle": {"type": "string", "maxLength": 400},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 64, "default": 1},
            "gpu": _gpu(),
        },
        ["model", "image"],
    )
    route = _object(
        {"prefix": {"type": "string", "pattern": "^/", "maxLength": 200}, "backend": {"type": "string",
         "enum": ["vision", "language"]}}, ["prefix", "backend"],
    )  # fmt: skip
    return _object(
        {
            "topology": {"type": "string", "enum": ["single", "split"], "default": "single"},
            "vision": backend,
            "language": backend,
            "routes": {"type": "array", "maxItems": 16, "items": route},
            "port": {"type": "integer", "minimum": 1024, "maximum": 65535, "default": 8080},
        },
        ["vision", "language"],
        [
            {
                "rule": "self.topology != 'single' || self.vision.image == self.language.image",
                "message": "in one process both backends have one image; name the same, or topology: split",
            },
            {"rule": "self.topology != 'single' || !has(self.vision.gpu) || !has(self.language.gpu)",
             "message": "in one process only one backend declares the gpu"},
        ],
    )  # fmt: skip


def _crd(kind: str, plural: str, short: str, spec: Json, status: Json, columns: list[tuple[str, str, str]]) -> Json:
    status = {**status, "conditions": _conditions(), "observedGeneration": {"type": "integer"}}
    schema = _object({"spec": spec, "status": _object(status)}, ["spec"])
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "shortNames": [short]},
            "versions": [
                {
                    "name": API_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        *({"name": name, "type": kind_, "jsonPath": path} for name, kind_, path in columns),
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crds() -> tuple[Json, Json]:
    """VisionLanguageModel and VLMService, as they are applied."""
    progress = _object(
        {"version": {"type": "string"}, "phase": {"type": "string"}, "step": {"type": "integer"}, "weight": {
            "type": "integer"}, "since": {"type": "number"}, "failures": {"type": "integer"}, "reason": {
            "type": "string"}, "declared": {"type": "string"}}
    )  # fmt: skip
    weights = {"type": "object", "additionalProperties": {"type": "integer"}}
    model = _crd(
        "VisionLanguageModel", "visionlanguagemodels", "vlm", _model_spec(),
        {"phase": {"type": "string"}, "weights": weights, "canary": progress, "split": {"type": "string"}},
        [("Phase", "string", ".status.phase"), ("Traffic", "string", ".status.split"),
         ("Canary", "string", ".status.canary.phase"), ("Reason", "string", ".status.canary.reason")],
    )  # fmt: skip
    service = _crd(
        "VLMService", "vlmservices", "vlms", _service_spec(),
        {"phase": {"type": "string"}, "topology": {"type": "string"}},
        [("Topology", "string", ".status.topology"), ("Phase", "string", ".status.phase")],
    )  # fmt: skip
    return model, service
