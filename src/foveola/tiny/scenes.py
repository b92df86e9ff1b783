"""Generated surfaces, and defects drawn or pasted on them: pictures whose answers are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Grey = NDArray[np.float32]
Box = tuple[float, float, float, float]
DRAWN = ("scratch", "pit", "crack", "stain")


@dataclass(frozen=True, slots=True)
class Defect:
    """A named defect and its box (x1, y1, x2, y2) as shares of the picture's width and height."""

    name: str
    box: Box

    @property
    def cell(self) -> int:
        """Index 0..8, in reading order, of the ninth of the picture that holds the middle of the box."""
        x, y = (self.box[0] + self.box[2]) / 2, (self.box[1] + self.box[3]) / 2
        return min(2, int(y * 3)) * 3 + min(2, int(x * 3))


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture with everything that may be asked about it. ``pixels`` are uint8 [H, W, 3].

    ``located`` says that the boxes are complete and exact, so that where, box and count may be asked.
    """

    pixels: NDArray[np.uint8]
    material: str
    defects: tuple[Defect, ...] = ()
    located: bool = True
    names: tuple[str, ...] = ()
    code: str = ""
    expiry: str = ""
    reading: str = ""
    # character index under each pixel column block: (box, character), for the auxiliary heads
    characters: tuple[tuple[str, int, Box], ...] = field(default=(), repr=False)


def _noise(rng: np.random.Generator, height: int, width: int, cell_px: float) -> Grey:
    """Smooth noise of unit scale: white noise on a grid of ``cell_px``, enlarged."""
    h, w = max(2, int(height / cell_px)), max(2, int(width / cell_px))
    small = Image.fromarray(rng.standard_normal((h, w)).astype(np.float32))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), np.float32)


def surface(rng: np.random.Generator, height: int, width: int) -> Grey:
    """A clean procedural surface, float32 [height, width] in 0..255."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    level = np.full((height, width), rng.uniform(45, 225), np.float32)
    kind = rng.choice(7, p=[0.16, 0.2, 0.16, 0.14, 0.1, 0.12, 0.12])
    if kind == 1:  # brushed metal: noise drawn out along one axis
        drawn = rng.standard_normal((height if rng.random() < 0.5 else 1, width)).astype(np.float32)
        drawn = drawn if drawn.shape[0] == 1 else rng.standard_normal((height, 1)).astype(np.float32)
        level = level + drawn * rng.uniform(2, 12) + _noise(rng, height, width, 3) * rng.uniform(0, 5)
    elif kind == 2:  # cast: several scales of noise
        for cell_px in (2, 5, 14):
            level = level + _noise(rng, height, width, cell_px) * rng.uniform(1, 8)
    elif kind == 3:  # turned: concentric rings
        cx, cy = rng.uniform(-0.5, 1.5, 2) * (width, height)
        radius = np.hypot(x - cx, y - cy)
        level = level + np.sin(radius * rng.uniform(0.3, 1.6)) * rng.uniform(2, 12)
    elif kind == 4:  # woven or milled: regular stripes
        angle = rng.uniform(0, np.pi)
        wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * rng.uniform(0.2, 1.2))
        level = level + wave * rng.uniform(2, 14)
    elif kind == 5:  # large soft blotches
        level = level + _noise(rng, height, width, rng.uniform(20, 60)) * rng.uniform(3, 12)
    if rng.random() < 0.6:  # uneven light
        angle = rng.uniform(0, 2 * np.pi)
        level = level + ((x / width - 0.5) * np.cos(angle) + (y / height - 0.5) * np.sin(angle)) * rng.uniform(0, 70)
    if rng.random() < 0.15:  # vignette
        level = level * (1 - rng.uniform(0.1, 0.5) * (((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2))
    if rng.random() < 0.75:
        level = level + rng.standard_normal((height, width)).astype(np.float32) * rng.uniform(0.5, 9)
    return np.clip(level, 4, 251).astype(np.float32)


def _stroke(rng: np.random.Generator, draw: ImageDraw.ImageDraw, size: int, name: str) -> None:
    """Draws one defect of the size ``size`` (px) in the middle of a mask of 3·size."""
    middle = size * 1.5
    if name in ("scratch", "crack"):
        angle = rng.uniform(0, np.pi)
        steps = 2 if name == "scratch" else int(rng.integers(5, 12))
        along = np.linspace(-size / 2, size / 2, steps + 1)
        bend = 0.03 if name == "scratch" else 0.1
        across = np.cumsum(rng.standard_normal(steps + 1)) * size * bend
        points = [
            (middle + a * np.cos(angle) - b * np.sin(angle), middle + a * np.sin(angle) + b * np.cos(angle))
            for a, b in zip(along, across - across.mean(), strict=True)
        ]
        thick = max(1, round(size * rng.uniform(0.015, 0.05))) + (size > 40)
        draw.line(points, fill=255, width=int(thick), joint="curve")
        if name == "crack" and rng.random() < 0.5:
            start = points[len(points) // 2]
            turn = angle + rng.choice((-1, 1)) * rng.uniform(0.5, 1.1)
            reach = size * rng.uniform(0.15, 0.3)
            draw.line(
                [start, (start[0] + reach * np.cos(turn), start[1] + reach * np.sin(turn))], fill=255, width=int(thick)
            )
    elif name == "pit":
        rx, ry = size / 2 * rng.uniform(0.75, 1, 2)
        draw.ellipse([middle - rx, middle - ry, middle + rx, middle + ry], fill=255)
    else:  # stain: a lobed blob
        turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)
        lobes = 1 + 0.25 * np.sin(turns * rng.integers(2, 5) + rng.uniform(0, 6)) + 0.1 * rng.standard_normal(24)
        rx, ry = size / 2.5 * rng.uniform(0.6, 1, 2)
        draw.polygon(
            [(middle + rx * r * np.cos(t), middle + ry * r * np.sin(t)) for t, r in zip(turns, lobes, strict=True)],
            fill=255,
        )


def defect_mask(rng: np.random.Generator, name: str, size: int) -> Grey:
    """A drawn defect as opacity 0..1, cropped to its extent; its longer side is near ``size`` px."""
    canvas = Image.new("L", (size * 3, size * 3), 0)
    _stroke(rng, ImageDraw.Draw(canvas), size, name)
    if name == "stain":
        canvas = canvas.filter(ImageFilter.GaussianBlur(size * rng.uniform(0.01, 0.07)))
    elif rng.random() < 0.6:
        canvas = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9)))
    mask: Grey = np.asarray(canvas, np.float32) / np.float32(255)
    rows, columns = np.nonzero(mask.max(1) > 0.3)[0], np.nonzero(mask.max(0) > 0.3)[0]
    return mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _place(
    rng: np.random.Generator, taken: list[Box], shape: tuple[int, int], size: tuple[int, int]
) -> tuple[int, int] | None:
    """A free top-left corner (y, x) for a patch of ``size`` (h, w); None where ten tries fail."""
    for _ in range(10):
        y = int(rng.integers(0, shape[0] - size[0] + 1))
        x = int(rng.integers(0, shape[1] - size[1] + 1))
        gap = 4
        if all(x + size[1] + gap < a or c + gap < x or y + size[0] + gap < b or d + gap < y for a, b, c, d in taken):
            return y, x
    return None


def _draw(rng: np.random.Generator, picture: Grey, name: str, mask: Grey, at: tuple[int, int]) -> None:
    """Blends a drawn defect into ``picture`` in place, darker or brighter than its surroundings."""
    y, x = at
    region = picture[y : y + mask.shape[0], x : x + mask.shape[1]]
    mean = float(region.mean())
    strength = rng.uniform(28, 100)
    darker = mean > 80 and (name in ("pit", "crack") or rng.random() < 0.55)
    if not darker and mean > 185:
        darker = True
    ink = mean - strength if darker else mean + strength
    body = np.full_like(region, ink) + rng.standard_normal(region.shape).astype(np.float32) * 4
    if name == "stain":
        body = region * 0.5 + body * 0.5 if strength > 55 else body
    if name == "pit" and min(mask.shape) > 6:  # a lit rim on one side
        rim = np.roll(mask, (1, 1), (0, 1)) - mask
        body = body + np.clip(rim, 0, 1) * rng.uniform(20, 60)
    region[...] = np.clip(region * (1 - mask) + body * mask, 0, 255)


def _paste(rng: np.random.Generator, picture: Grey, patch: Grey, at: tuple[int, int]) -> None:
    """Pastes a cut-out of a real defect, hard-edged or feathered, its brightness sometimes matched."""
    y, x = at
    h, w = patch.shape
    region = picture[y : y + h, x : x + w]
    if rng.random() < 0.6:
        edge = np.concatenate([patch[0], patch[-1], patch[:, 0], patch[:, -1]])
        patch = patch + (float(region.mean()) - float(np.median(edge))) * rng.uniform(0.5, 1)
    alpha = np.ones((h, w), np.float32)
    if rng.random() < 0.6:
        feather = max(1.0, min(h, w) * rng.uniform(0.05, 0.25))
        yy = np.minimum(np.arange(h), np.arange(h)[::-1])[:, None]
        xx = np.minimum(np.arange(w), np.arange(w)[::-1])[None]
        alpha = np.clip((np.minimum(yy, xx) + 1) / feather, 0, 1).astype(np.float32)
    region[...] = np.clip(region * (1 - alpha) + patch * alpha, 0, 255)


def colour(rng: np.random.Generator, grey: Grey, share: float = 0.25) -> NDArray[np.uint8]:
    """Grey [H, W] → uint8 [H, W, 3]; a ``share`` of the pictures is tinted."""
    tint = 1 + rng.uniform(-0.15, 0.15, 3).astype(np.float32) if rng.random() < share else np.ones(3, np.float32)
    out: NDArray[np.uint8] = np.clip(grey[:, :, None] * tint, 0, 255).astype(np.uint8)
    return out


def scene(
    rng: np.random.Generator,
    height: int,
    width: int,
    *,
    background: tuple[Grey, str] | None = None,
    cutouts: Sequence[tuple[str, Grey]] = (),
    counts: Sequence[float] = (0.22, 0.5, 0.14, 0.09, 0.05),
) -> Scene:
    """A surface with 0..4 defects, the number drawn from ``counts``.

    ``background`` is a clean picture of the right size and its material; without one a surface is generated.
    ``cutouts`` are real defects (name, float32 [h, w] in 0..255) that may be pasted instead of drawn.
    """
    picture, material = background or (surface(rng, height, width), "machined part")
    picture = picture.copy()
    defects: list[Defect] = []
    taken: list[Box] = []
    for _ in range(int(rng.choice(len(counts), p=counts))):
        if cutouts and rng.random() < 0.45:
            name, patch = cutouts[int(rng.integers(len(cutouts)))]
            scale = min(height, width) * rng.uniform(0.14, 0.42) / max(patch.shape)
            size = (max(8, round(patch.shape[1] * scale)), max(8, round(patch.shape[0] * scale)))
            patch = np.asarray(Image.fromarray(patch).resize(size, Image.Resampling.BICUBIC), np.float32)
            patch = patch[:: int(rng.choice((-1, 1))), :: int(rng.choice((-1, 1)))]
            at = _place(rng, taken, picture.shape, patch.shape)
            if at is None:
                continue
            _paste(rng, picture, patch, at)
            h, w = patch.shape
        else:
            name = DRAWN[int(rng.integers(len(DRAWN)))]
            share = rng.uniform(0.05, 0.16) if name == "pit" else rng.uniform(0.12, 0.42)
            mask = defect_mask(rng, name, max(5, int(min(height, width) * share)))
            at = _place(rng, taken, picture.shape, mask.shape) if max(mask.shape) < min(height, width) else None
            if at is None:
                continue
            _draw(rng, picture, name, mask, at)
            h, w = mask.shape
        y, x = at
        taken.append((x, y, x + w, y + h))
        defects.append(Defect(name, (x / width, y / height, (x + w) / width, (y + h) / height)))
    if rng.random() < 0.25:
        soft = Image.fromarray(picture.astype(np.uint8)).filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))
        picture = np.asarray(soft, np.float32)
    order = sorted(defects, key=lambda d: (d.cell, d.box))
    return Scene(colour(rng, picture), material, tuple(order), True, tuple(d.name for d in order))
