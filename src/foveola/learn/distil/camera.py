"""How another camera shows the same kinds of part, found from pictures of both, and put on pictures of the first.

Frequent classes tell how light and sharpness changed; rare ones are then shown in it, with the labels and boxes that
they had. A picture is softened or sharpened frequency by frequency until its mean spectrum is that of the new line, its
grey levels are matched cell by cell (population against population, as histogram matching does; the cells blend into
one another as in CLAHE, Zuiderveld 1994), and the noise is added that the new line has more. Only means over many
pictures are matched (Yang, Soatto: "FDA", CVPR 2020, matches single ones): what a picture shows is not carried over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.learn.distil.tail import Example, Pixels

Floats = NDArray[np.float32]
CELLS, LEVELS, BANDS, PASSES = 4, 65, 16, 3
LEAST = 3
"""Pictures of a class on either side from which it says something."""
_GAIN = (0.1, 4.0)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """``gains`` [BANDS] by radial frequency; ``before`` and ``after`` [C, CELLS, CELLS, LEVELS] are quantiles of the
    levels of C channels, one where all pictures were grey; ``noise`` is the standard deviation of what is added."""

    gains: Floats
    before: Floats
    after: Floats
    noise: float

    def put_on(self, pixels: Pixels, rng: np.random.Generator) -> Pixels:
        """``pixels`` uint8 [H, W, 3] as the other camera might show them; grey ones stay grey."""
        planes = _planes(pixels)
        noise = rng.standard_normal(pixels.shape[:2]).astype(np.float32) * np.float32(self.noise)
        if len(self.before) > len(planes):
            planes = planes.repeat(len(self.before), axis=0)
        told = [self.toned(filtered(one, self.gains), channel) + noise for channel, one in enumerate(planes)]
        shown: Pixels = np.rint(np.stack(told, -1)).clip(0, 255).astype(np.uint8)
        return shown if len(told) == 3 else np.repeat(shown, 3, axis=2)

    def toned(self, plane: Floats, channel: int = 0) -> Floats:
        """Levels [H, W] of the first line to those of the second, the cells blended."""
        at = min(channel, len(self.before) - 1)
        rows, columns = _weights(plane.shape[0]), _weights(plane.shape[1])
        out = np.zeros_like(plane)
        for i in range(CELLS):
            for j in range(CELLS):
                told = np.interp(plane, self.before[at, i, j], self.after[at, i, j]).astype(np.float32)
                out += rows[i][:, None] * columns[j][None] * told
        return out


def camera_change(old: Sequence[Example], new: Sequence[Example], most: int = 16) -> Change | None:
    """What changed from ``old`` to ``new``, from the classes that both show, as many pictures of each (at most
    ``most``); None where they share no class of at least ``LEAST`` pictures."""
    first: list[Floats] = []
    second: list[Floats] = []
    for label in sorted({one.label for one in new if one.label >= 0}):
        ours = [one for one in old if one.label == label]
        theirs = [one for one in new if one.label == label]
        count = min(len(ours), len(theirs), most)
        if count >= LEAST:
            first += [_planes(one.pixels) for one in ours[:count]]
            second += [_planes(one.pixels) for one in theirs[-count:]]
    if not first:
        return None
    channels = max(len(one) for one in (*first, *second))
    first, second = ([one.repeat(channels // len(one), axis=0) for one in some] for some in (first, second))
    wanted, floor = spectrum([one.mean(axis=0) for one in second]), 0.0
    gains, change = np.ones(BANDS, np.float32), None
    for turn in range(PASSES):
        soft = [np.stack([filtered(plane, gains) for plane in one]) for one in first]
        change = Change(gains, _quantiles(soft), _quantiles(second), 0.0)
        shown = [np.mean([change.toned(plane, c) for c, plane in enumerate(one)], axis=0) for one in soft]
        have = spectrum(shown)
        if turn == 0:  # what the finest structure has more than light alone explains is noise
            floor = max(0.0, float((wanted - have)[-2:].mean()))
        signal = np.maximum(wanted - floor, 0.02 * wanted)
        gains = (gains * np.sqrt(signal / np.maximum(have, 1e-6))).clip(*_GAIN).astype(np.float32)
        gains[0] = 1.0
    assert change is not None
    return Change(gains, change.before, change.after, math.sqrt(floor))


def filtered(grey: Floats, gains: Floats) -> Floats:
    """``grey`` [H, W] with each of its ``BANDS`` of radial frequency amplified by ``gains``, in between straight."""
    place = _radius(grey.shape) * (BANDS - 1)
    curve = np.interp(place, np.arange(BANDS), gains).astype(np.float32)
    out: Floats = np.fft.irfft2(np.fft.rfft2(grey) * curve, s=grey.shape).astype(np.float32)
    return out


def spectrum(pictures: Sequence[Floats]) -> Floats:
    """Mean power [BANDS] per pixel of pictures [H, W] by radial frequency: white noise of variance v has v in each."""
    band = np.rint(_radius(pictures[0].shape) * (BANDS - 1)).astype(np.int64)
    inside = band < BANDS
    power = np.zeros(band.shape)
    for one in pictures:
        power += np.abs(np.fft.rfft2(one - one.mean())) ** 2 / one.size
    total = np.bincount(band[inside], power[inside] / len(pictures), BANDS)
    mean: Floats = (total / np.maximum(np.bincount(band[inside], minlength=BANDS), 1)).astype(np.float32)
    return mean


def _radius(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Of the frequencies of ``rfft2``: 1 at the highest along an axis."""
    radius: NDArray[np.float64] = np.hypot(np.fft.fftfreq(shape[0])[:, None], np.fft.rfftfreq(shape[1])[None]) * 2
    return radius


def _quantiles(pictures: Sequence[Floats]) -> Floats:
    """[C, CELLS, CELLS, LEVELS] of the levels of all pictures [C, H, W], channel by channel, cell by cell, rising."""
    stack = np.stack(pictures, axis=1)
    at = np.linspace(0, 1, LEVELS)
    rows = np.array_split(np.arange(stack.shape[2]), CELLS)
    columns = np.array_split(np.arange(stack.shape[3]), CELLS)
    told = [
        [[np.quantile(plane[:, r[0] : r[-1] + 1, c[0] : c[-1] + 1], at) for c in columns] for r in rows]
        for plane in stack
    ]
    rising: Floats = (np.array(told) + np.arange(LEVELS) * 1e-3).astype(np.float32)
    return rising


def _weights(length: int) -> Floats:
    """[CELLS, length]: how much each cell counts for a pixel of an axis; they sum to 1."""
    place = ((np.arange(length) + 0.5) / length * CELLS - 0.5).clip(0, CELLS - 1)
    shares: Floats = np.maximum(0, 1 - np.abs(place[None] - np.arange(CELLS)[:, None])).astype(np.float32)
    return shares


def _planes(pixels: Pixels) -> Floats:
    """float32 [1, H, W] of a grey picture, [3, H, W] of another."""
    grey = bool((pixels == pixels[:, :, :1]).all())
    planes: Floats = np.moveaxis(pixels[:, :, :1] if grey else pixels, 2, 0).astype(np.float32)
    return planes
