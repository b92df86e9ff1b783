"""Geometries by the name that model.json gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from foveola.exchange import Damaged
from foveola.intake.geometry_idefics import NamedTilesGeometry
from foveola.intake.geometry_internvl import NearestRatioGeometry
from foveola.intake.geometry_llava import AnyResGeometry, SquareGeometry
from foveola.intake.geometry_packed import PackedGeometry, SizedGeometry
from foveola.intake.geometry_phi3 import TurnedCanvasGeometry
from foveola.intake.views import Geometry

_GEOMETRIES: dict[str, Callable[[Mapping[str, Any]], Geometry]] = {
    "qwen2_vl": PackedGeometry,
    "qwen3_vl": SizedGeometry,
    "llava": SquareGeometry,
    "llava_next": AnyResGeometry,
    "idefics3": NamedTilesGeometry,
    "internvl": NearestRatioGeometry,
    "phi3_v": TurnedCanvasGeometry,
}
NO_PICTURES = "text"
"""The geometry of a model that reads text only."""


def geometry_of(model: Mapping[str, Any]) -> Geometry | None:
    """The geometry that the model.json ``model`` asks for; None for a model that takes no pictures.

    Raises Damaged for a name that this version does not know, or a section ``vision`` that lacks something.
    """
    name = model.get("geometry")
    if name == NO_PICTURES:
        return None
    if name not in _GEOMETRIES:
        raise Damaged(
            f"model.json names the geometry {name!r}; this version knows {', '.join(sorted(_GEOMETRIES))}. "
            "Compile the bundle with this version, or serve it with the one that made it."
        )
    try:
        return _GEOMETRIES[str(name)](model["vision"])
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"model.json: the section vision does not describe the geometry {name!r}: {error}.") from None
