"""One camera's eye: a frame in, features out, computed where they have to be and reused where they need not.

Reuse is decided per cell, the audit per frame: attention in the vision graph is global, so the features of a part that
is computed alone are not those that it has in its picture (docs/streams.md says what that costs).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from foveola.engine.features import Selected
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture
from foveola.intake.views import Geometry, View
from foveola.stream.motion import STILL, Camera, Gyroscope, Matrix, homography
from foveola.stream.options import StreamOptions
from foveola.stream.scene import Answered, Entry, Floats, Match, Scene, sketch_of
from foveola.stream.window import derived_window, described_window, pixels_per_frame

Mode = Literal["full", "reused", "partial", "audit", "refresh"]
MOVED_CELLS = 0.02  # of a cell: a camera that turned by less has not moved


@dataclass(frozen=True, slots=True, eq=False)
class Glance:
    """What the eye made of a frame.

    ``cells`` of it in all, ``reused`` of them not computed. ``error`` is 1 - the cosine of reused and computed features
    where both are known (an audit). ``answered`` is what was said to exactly these features before.
    """

    picture: Picture
    view: View
    features: Selected
    mode: Mode
    omega: float
    phi: float
    window: int
    cells: int
    reused: int
    error: float | None = None
    answered: Answered | None = None


class Eye:
    """Not thread-safe: one camera, frame after frame. ``encode`` runs the vision graph on what it is given."""

    def __init__(
        self,
        geometry: Geometry,
        encode: Callable[[Packed], Floats],
        options: StreamOptions | None = None,
        *,
        camera: Camera | None = None,
        gyroscope: Gyroscope = STILL,
    ) -> None:
        """Without a ``camera`` (its focal length) the picture is taken not to move."""
        self.options = options or StreamOptions()
        self._geometry = geometry
        self._encode = encode
        self._camera = camera
        self._gyroscope = gyroscope
        self._scene = Scene(self.options.max_window)
        self._chance = random.Random(self.options.seed)
        self._since_full = 0

    def look(self, picture: Picture, time_s: float) -> Glance:
        """See a frame. Raises what the geometry refuses."""
        [view] = self._geometry.fit([picture.original])
        omega = float(np.linalg.norm(self._gyroscope.omega(time_s)))
        phi, window = self._window(omega, view)
        sketch = sketch_of(picture.rgb, view.grid)
        cells = view.grid[0] * view.grid[1]
        still = Glance(picture, view, Selected(_NONE, _NO_CELLS), "full", omega, phi, window, cells, 0)
        match = None
        if self.options.reuse:
            warps = [self._warp(then, time_s, view) for then in self._scene.times(window)]
            match = self._scene.match(sketch, warps, window, self._epsilon(view))
        whole = match is not None and bool(match.known.all())
        if match is None or not (whole or (match.known.any() and self._may_be_partial(view))):
            return self._computed(still, sketch, time_s)
        self._since_full += 1
        if self._since_full >= self.options.refresh_frames:
            return self._computed(replace(still, mode="refresh"), sketch, time_s)
        if self._chance.random() < self.options.audit_share:
            return self._audited(still, match, sketch, time_s)
        return self._reused(still, match, sketch, time_s)

    def answered(self, answered: Answered) -> None:
        """What was said to the newest frame: kept with its features."""
        newest = self._scene.newest
        if newest is not None:
            self._scene.replace_newest(replace(newest, answer=answered))

    def _computed(self, glance: Glance, sketch: Floats, time_s: float) -> Glance:
        features = self._encode(self._packed(glance))
        self._since_full = 0
        self._scene.remember(Entry(time_s, features, sketch, _movable(glance.view)))
        return replace(glance, features=_all(features))

    def _audited(self, glance: Glance, match: Match, sketch: Floats, time_s: float) -> Glance:
        known = match.known.reshape(-1)
        done = self._computed(replace(glance, mode="audit"), sketch, time_s)
        if not known.all():
            return done
        one, other = match.features, done.features.features
        products = (one * other).sum(-1) / (np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1) + 1e-9)
        return replace(done, error=float(1 - products.mean()), reused=int(known.sum()))

    def _reused(self, glance: Glance, match: Match, sketch: Floats, time_s: float) -> Glance:
        known = match.known.reshape(-1)
        if match.entry is not None:
            self._scene.remember(replace(match.entry, time_s=time_s))
            return replace(
                glance,
                features=_all(match.features),
                mode="reused",
                reused=len(known),
                answered=match.entry.answer,
            )
        features = match.features.copy()
        kept_sketch = match.sketch
        mode: Mode = "reused"
        if not known.all():
            features[~known] = self._encode_cells(self._packed(glance), np.flatnonzero(~known))
            blocks = np.repeat(np.repeat(~match.known, 4, 0), 4, 1)
            kept_sketch = np.where(blocks, sketch, match.sketch)
            mode = "partial"
        self._scene.remember(Entry(time_s, features, kept_sketch, movable=True))
        return replace(glance, features=_all(features), mode=mode, reused=int(known.sum()))

    def _encode_cells(self, packed: Packed, cells: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Floats:
        """The vision graph on some cells alone, where they are: what they would be if nothing else were there."""
        per_cell = len(packed.pixel_values) // sum(image.tokens for image in packed.images)
        patches = (cells[:, None] * per_cell + np.arange(per_cell)).reshape(-1)
        part = replace(
            packed,
            pixel_values=packed.pixel_values[patches],
            position_ids=packed.position_ids[patches],
            segment_ids=np.zeros(len(patches), np.int64),
        )
        return self._encode(part)

    def _packed(self, glance: Glance) -> Packed:
        return self._geometry.pack([glance.picture], [glance.view])

    def _may_be_partial(self, view: View) -> bool:
        return self.options.partial and _movable(view)

    def _window(self, omega: float, view: View) -> tuple[float, int]:
        """phi in pixels of the picture that the model gets, and how many frames back may be used."""
        if self._camera is None:
            return 0.0, self.options.max_window
        camera = self._camera.scaled(*view.use.used)
        phi = pixels_per_frame(omega, camera.focal, self.options.fps)
        if self.options.window == "described":
            return phi, min(described_window(omega), self.options.max_window)
        patch = view.use.used[0] / view.grid[1]
        tolerance, most = self.options.tolerance, self.options.max_window
        return phi, derived_window(phi, patch, tolerance=tolerance, max_window=most)

    def _warp(self, then: float, now: float, view: View) -> Matrix | None:
        """From a cell's place now to its place then; None where the camera has hardly moved."""
        if self._camera is None:
            return None
        turned = self._gyroscope.turned(then, now)
        rows, columns = view.grid
        camera = self._camera.scaled(columns, rows)
        angle = float(np.arccos(np.clip((np.trace(turned) - 1) / 2, -1, 1)))
        if camera.focal * angle < MOVED_CELLS:
            return None
        return homography(camera, turned.T)

    def _epsilon(self, view: View) -> Floats:
        """How much each cell may differ: less where the model looked last."""
        rows, columns = view.grid
        epsilon = np.full((rows, columns), self.options.epsilon, np.float32)
        newest = self._scene.newest
        seen = () if newest is None or newest.answer is None else newest.answer.attention
        if len(seen) == rows * columns:
            weights = np.asarray(seen, np.float64)
            order = np.argsort(-weights)
            share = np.cumsum(weights[order]) / max(float(weights.sum()), 1e-12)
            looked = order[: int(np.searchsorted(share, self.options.attended)) + 1]
            epsilon.reshape(-1)[looked] /= self.options.attended_strictness
        return epsilon


_NONE = np.zeros((0, 0), np.float32)
_NO_CELLS = np.zeros(0, np.int64)


def _all(features: Floats) -> Selected:
    return Selected(features, np.arange(len(features)))


def _movable(view: View) -> bool:
    """Whether there is one feature for each cell, row by row."""
    return view.cells is None and view.use.tokens == view.grid[0] * view.grid[1]
