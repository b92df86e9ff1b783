"""Pictures without faces, plates and metadata: before one is stored, sent, shown or learnt from.

``Deidentifier`` is the one way through. What it did goes into a hash-chained log: the time, how many regions of which
kind, a hash of their coordinates, and the hash of the picture that came out, never the regions themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import secrets
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from PIL import Image

from foveola.artifact.audit import AuditLog
from foveola.exchange import Answer, Damaged, Piece, Request, Turn, Unavailable
from foveola.guard.detectors import Detector, Pixels, Region, open_detectors
from foveola.guard.erase import erase, widened
from foveola.guard.verdict import ROUTE, Tell, Verdict, nobody
from foveola.intake import Limits, decode

MARGIN = 0.2
_LOSSY = ("JPEG",)


@dataclass(frozen=True, slots=True, eq=False)
class Deidentified:
    """A picture as it may be kept: ``data`` is a JPEG or PNG file without metadata; ``regions`` were erased from it."""

    data: bytes
    regions: tuple[Region, ...]

    @property
    def coordinate_hash(self) -> str:
        """SHA-256 over the kinds and coordinates of the regions, in their order."""
        boxes = [[one.kind, one.left, one.top, one.right, one.bottom] for one in self.regions]
        return hashlib.sha256(json.dumps(boxes, separators=(",", ":")).encode()).hexdigest()


class Deidentifier:
    """Finds and erases. Safe to call from several threads; one picture is searched at a time."""

    def __init__(self, detectors: Sequence[Detector], audit: AuditLog | None = None, margin: float = MARGIN) -> None:
        """``margin`` is added on every side of a region, as a share of its width and height."""
        self._detectors = detectors
        self._audit = audit
        self._margin = margin
        self._lock = threading.Lock()

    @classmethod
    def open(cls, audit: AuditLog | None = None, *, threads: int = 1) -> Deidentifier:
        """With the detectors of ``detectors.py``. Raises ``NoDoor`` where their weights are not installed."""
        return cls(open_detectors(threads), audit)

    def find(self, rgb: Pixels) -> tuple[Region, ...]:
        """The regions to erase in uint8 [H, W, 3], margin included."""
        size = (rgb.shape[1], rgb.shape[0])
        with self._lock:
            found = [region for detector in self._detectors for region in detector.find(rgb)]
        wide = []
        for one in found:
            left, top, right, bottom = widened((one.left, one.top, one.right, one.bottom), self._margin, size)
            wide.append(replace(one, left=left, top=top, right=right, bottom=bottom))
        return tuple(wide)

    def pixels(self, rgb: Pixels) -> tuple[Pixels, tuple[Region, ...]]:
        """``rgb`` with its regions erased, and the regions."""
        regions = self.find(rgb)
        boxes = [(one.left, one.top, one.right, one.bottom) for one in regions]
        return erase(rgb, boxes, np.random.default_rng(secrets.randbits(128))), regions

    def picture(self, data: bytes, *, name: str = "", limits: Limits | None = None) -> Deidentified:
        """An encoded picture without faces, plates and metadata; ``name`` is how the log calls it.

        What was JPEG stays JPEG (quality 95), everything else becomes PNG. Raises what ``intake.decode`` does, and
        ``Unavailable`` where the log cannot be written.
        """
        decoded = decode(data, limits or Limits())
        rgb, regions = self.pixels(decoded.rgb)
        done = Deidentified(_encoded(rgb, lossy=decoded.format in _LOSSY), regions)
        if self._audit is not None:
            self._note(self._audit, done, name)
        return done

    @staticmethod
    def _note(audit: AuditLog, done: Deidentified, name: str) -> None:
        """One line of the log. Raises ``Unavailable`` where it cannot be written: nothing passes that is not noted."""
        counts = {kind: sum(one.kind == kind for one in done.regions) for kind in ("face", "plate")}
        digest = hashlib.sha256(done.data).hexdigest()
        try:
            audit.append("deidentified", picture=name, **counts, coordinates=done.coordinate_hash, sha256=digest)
        except (OSError, Damaged) as error:
            reason = error.message if isinstance(error, Damaged) else f"{error.strerror or 'input/output error'}."
            raise Unavailable(
                f"The log of erased faces and plates cannot be written: {reason} No picture is passed on without it; "
                "whoever runs the server has to make room."
            ) from None


def _encoded(rgb: Pixels, *, lossy: bool) -> bytes:
    file = io.BytesIO()
    image = Image.fromarray(rgb)
    if lossy:
        image.save(file, "JPEG", quality=95, subsampling=0)
    else:
        image.save(file, "PNG", compress_level=3)
    return file.getvalue()


def private(answer: Answer, deidentifier: Deidentifier, tell: Tell = nobody) -> Answer:
    """``answer``, which gets only de-identified pictures: for engines, caches and records beyond this point."""

    async def answering(request: Request) -> AsyncIterator[Piece]:
        if any(turn.images for turn in request.turns):
            turns, counts = await asyncio.to_thread(_without_persons, request, deidentifier)
            request = replace(request, turns=turns)
            outcome = "erased" if any(counts.values()) else "passed"
            tell(Verdict("privacy", outcome, request.id, ROUTE.get(), dict(counts)))
        async with aclosing(cast("AsyncGenerator[Piece]", answer(request))) as pieces:
            async for piece in pieces:
                yield piece

    return answering


def _without_persons(request: Request, deidentifier: Deidentifier) -> tuple[tuple[Turn, ...], dict[str, int]]:
    counts = {"face": 0, "plate": 0}
    turns = []
    for turn in request.turns:
        done = [deidentifier.picture(image, name=request.id) for image in turn.images]
        for region in (region for one in done for region in one.regions):
            counts[region.kind] += 1
        turns.append(replace(turn, images=tuple(one.data for one in done)))
    return tuple(turns), counts
