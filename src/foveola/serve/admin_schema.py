"""The JSON of the admin's routes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Change(BaseModel):
    """One change of the weights. ``strict`` and ``module_path`` belong to a patch; hashes are those of the weights."""

    kind: Literal["patch", "rollback"]
    when: float = Field(description="Unix seconds")
    who: str = Field(description="name of the key")
    module_path: str
    strict: bool | None
    before: str
    model_hash: str
    tensors: int
    graphs: list[str]
    seconds: float
    probe: dict[str, float] = Field(description="what the probe saw before the switch")


class Versions(BaseModel):
    """Which weights serve. ``bundle_hash`` is that of the files, ``model_hash`` that of what newcomers get."""

    model: str
    model_hash: str
    bundle_hash: str
    changes: list[Change] = Field(description="since the start, newest first")
