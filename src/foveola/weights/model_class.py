"""Which class builds a family's models."""

from __future__ import annotations

import importlib
from typing import Any

import transformers

from foveola.family import Family


def model_class(family: Family) -> Any:
    """The class of ``family``'s models: transformers', or our own where it has none."""
    if family.native is None:
        return getattr(transformers, family.model_class)
    module, _, name = family.native.partition(":")
    return getattr(importlib.import_module(module), name)
