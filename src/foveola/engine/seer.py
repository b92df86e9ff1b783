"""The vision half of a bundle by itself: pictures in, features out. One of the two services that share a model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from foveola.artifact import Bundle
from foveola.engine.features import Floats, Selected
from foveola.engine.lru import ByteCache
from foveola.engine.options import EngineOptions
from foveola.engine.pictures import one_by_one
from foveola.engine.runner import KEEP, LARGE_ROWS
from foveola.engine.sessions import open_session, version_of
from foveola.engine.travel import Look, Sight, Sights
from foveola.exchange import Invalid
from foveola.intake import Limits, decode
from foveola.intake.geometries import geometry_of
from foveola.intake.geometry import Packed

MIB = 1024 * 1024


class VisionGraph:
    """The vision graph of a bundle in a session of its own. Thread-safe."""

    def __init__(self, bundle: Bundle, options: EngineOptions) -> None:
        """Raises ``Damaged``, or ``Invalid`` for a bundle that takes no pictures."""
        if "vision" not in bundle.model["graphs"]:
            raise Invalid("This model reads text only; name a bundle of one that takes pictures.", field="bundle")
        self._session = open_session(bundle, bundle.model["graphs"]["vision"], options)
        self.selects = any(one.name == KEEP for one in self._session.get_inputs())
        self.version = version_of(bundle, {}).vision

    def __call__(self, packed: Packed) -> Selected:
        """The visual tokens of the packed pictures, as ``Runner.encode`` gives them."""
        feeds = packed.feeds()
        if not self.selects:
            features: Floats = self._session.run(["features"], feeds)[0]
            return Selected(features, np.arange(len(features)))
        everything = np.full(len(packed.segment_ids), len(packed.segment_ids), np.int64)
        return Selected(*self._session.run(["features", "kept", "counts"], {KEEP: everything} | feeds))


class Seer:
    """Sees pictures for others, as many at once as there are ``EngineOptions.eyes``, one large one. Thread-safe."""

    def __init__(self, bundle: Bundle, options: EngineOptions, limits: Limits | None = None) -> None:
        """Open the vision graph of a bundle. Raises ``Damaged`` or ``Invalid``."""
        self._graph = VisionGraph(bundle, options)
        geometry = geometry_of(bundle.model)
        assert geometry is not None  # a bundle with a vision graph has one
        self._geometry = geometry
        self._limits = limits or Limits()
        self._running = threading.Semaphore(options.eyes)
        self._large = threading.Lock()  # its scratch memory is in the square of the patches
        self._cache: ByteCache[bytes, Selected] = ByteCache(
            options.feature_cache_mib * MIB, lambda seen: seen.features.nbytes
        )

    @property
    def version(self) -> str:
        """Name of the weights."""
        return self._graph.version

    def __call__(self, look: Look) -> Sights:
        """See pictures. Blocks; raises what decoding and fitting raise, ``Invalid`` where none can be left out."""
        if look.keep is not None and not self._graph.selects:
            raise Invalid("This model keeps all tokens of a picture; leave `keep` out.", field="keep")
        enough = self._geometry.enough_pixels
        pictures = [decode(data, self._limits, enough_pixels=enough) for data in look.pictures]
        views = self._geometry.fit([picture.original for picture in pictures], room_tokens=look.room_tokens)
        packed = self._geometry.pack(pictures, views)
        if look.keep is not None:
            packed = keeping(packed, look.keep)
        seen = self._encoded(packed)
        sights = zip(views, seen, strict=True)
        return Sights(self.version, tuple(Sight(view.use.used, view.use.tokens, one) for view, one in sights))

    def _encoded(self, packed: Packed) -> Sequence[Selected]:
        found = []
        for picture in one_by_one(packed):
            seen = self._cache.get(picture.name)
            if seen is None:
                alone = self._large if picture.packed.patches > LARGE_ROWS else nullcontext()
                with alone, self._running:
                    seen = self._graph(picture.packed)
                self._cache.put(picture.name, seen)
            found.append(seen)
        return found


def keeping(packed: Packed, keep: int) -> Packed:
    """The pictures with the wish that ``keep`` tokens of each stay."""
    told = {KEEP: np.full(len(packed.segment_ids), keep, np.int64)}
    return replace(packed, inputs=(*packed.inputs, *told), others={**packed.others, **told})
