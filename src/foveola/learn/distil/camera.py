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
    """``gains`` [BANDS] by radial frequency; ``before`` and ``after`` [CELLS, CELLS, LEVELS] are quantiles of grey
    levels; ``noise`` is the standard deviation of what is added, in grey levels."""

    gains: Floats
    before: Floats
    after: Floats
    noise: float

    def put_on(self, pixels: Pixels, rng: np.random.Generator) -> Pixels:
        """``pixels`` uint8 [H, W, 3] as the other camera might show them; grey."""
        grey = self.toned(filtered(_grey(pixels), self.gains))
        grey = grey + rng.standard_normal(grey.shape).astype(np.float32) * np.float32(self.noise)
        return np.repeat(np.rint(grey).clip(0, 255).astype(np.uint8)[:, :, None], 3, 2)

    def toned(self, grey: Floats) -> Floats:
        """Grey levels [H, W] of the first line to those of the second, the cells blended."""
        rows, columns = _weights(grey.shape[0]), _weights(grey.shape[1])
        out = np.zeros_like(grey)
        for i in range(CELLS):
            for j in range(CELLS):
                told = np.interp(grey, self.before[i, j], self.after[i, j]).astype(np.float32)
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
            first += [_grey(one.pixels) for one in ours[:count]]
            second += [_grey(one.pixels) for one in theirs[-count:]]
    if not first:
        return None
    wanted, floor = spectrum(second), 0.0
    gains, change = np.ones(BANDS, np.float32), None
    for turn in range(PASSES):
        softened = [filtered(one, gains) for one in first]
        change = Change(gains, _quantiles(softened), _quantiles(second), 0.0)
        have = spectrum([change.toned(one) for one in softened])
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
    """[CELLS, CELLS, LEVELS] of the grey levels of all pictures, cell by cell, rising."""
    stack = np.stack(pictures)
    at = np.linspace(0, 1, LEVELS)
    rows = np.array_split(np.arange(stack.shape[1]), CELLS)
    columns = np.array_split(np.arange(stack.shape[2]), CELLS)
    told = [[np.quantile(stack[:, r[0] : r[-1] + 1, c[0] : c[-1] + 1], at) for c in columns] for r in rows]
    rising: Floats = (np.array(told) + np.arange(LEVELS) * 1e-3).astype(np.float32)
    return rising


def _weights(length: int) -> Floats:
    """[CELLS, length]: how much each cell counts for a pixel of an axis; they sum to 1."""
    place = ((np.arange(length) + 0.5) / length * CELLS - 0.5).clip(0, CELLS - 1)
    shares: Floats = np.maximum(0, 1 - np.abs(place[None] - np.arange(CELLS)[:, None])).astype(np.float32)
    return shares


def _grey(pixels: Pixels) -> Floats:
    grey: Floats = pixels.mean(axis=2, dtype=np.float32)
    return grey
