"""Printed lot codes, expiry dates and displays in many fonts, sizes and places."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from foveola.tiny.scenes import Box, Grey, Scene, surface

COMMON = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789"
RARE = "IOQ"
# The smallest font size (px): capitals of 12 px. A visual token is 28 px wide; smaller print is not learnt.
SMALLEST_PX = 17.0
# Families that the evaluation uses and training never does, with those of the same outlines.
HELD_OUT_FAMILIES = frozenset({
    "Inter", "Inter Display", "Liberation Mono", "Cousine", "Carlito", "Roboto Slab", "JetBrains Mono", "Open Sans",
    "PT Serif", "PT Serif Caption", "Routed Gothic", "Tuffy",
})  # fmt: skip
TRAIN_FAMILIES = frozenset({
    "Agave", "Allerta", "Anonymous Pro", "Arimo", "B612", "B612 Mono", "Bebas Neue", "Cabin", "Caladea", "Cantarell",
    "Clear Sans", "Clear Sans Medium", "Courier Prime", "Courier Prime Code", "Courier Prime Sans", "DejaVu Sans",
    "DejaVu Sans Mono", "DejaVu Serif", "Dosis", "EB Garamond", "Fantasque Sans Mono", "Fira Code", "FreeMono",
    "FreeSans", "FreeSerif", "GNUTypewriter", "Gillius ADF", "Gillius ADF No2", "Go", "Go Medium", "Go Mono", "Hack",
    "Inconsolata", "Junction", "Jura", "Karla", "Lato", "League Mono", "League Spartan", "Liberation Sans",
    "Liberation Sans Narrow", "Liberation Serif", "Linux Biolinum O", "Linux Libertine O", "Linux Libertine Mono O",
    "Manjari", "Manrope", "Monoid", "Noto Mono", "Noto Sans", "Noto Serif", "Oxygen Mono", "Oxygen-Sans", "PT Mono",
    "PT Sans", "PT Sans Caption", "PT Sans Narrow", "Play", "Quattrocento", "Quicksand", "Quicksand Medium",
    "Roadgeek 2014 Series C", "Roadgeek 2014 Series D", "Roadgeek 2014 Series E", "Roboto", "Roboto Condensed",
    "STIX", "Sora", "Tinos", "TeX Gyre Adventor", "TeX Gyre Bonum", "TeX Gyre Cursor", "TeX Gyre Heros",
    "TeX Gyre Heros Cn", "TeX Gyre Pagella", "TeX Gyre Schola", "TeX Gyre Termes", "Universalis ADF Std",
    "Verana Sans", "Veranda", "Verana", "Vollkorn", "Yanone Kaffeesatz", "mononoki", "osifont", "OCR A", "OCR-B",
    "OCRA", "OCRB", "Open Sans Condensed",
})  # fmt: skip
_STYLES_OUT = ("italic", "oblique", "thin", "hairline", "extralight", "ultralight", "black italic")


@functools.cache
def font_files(*, held_out: bool = False) -> tuple[str, ...]:
    """Upright font files of the training (or held-out) families found on this machine, sorted.

    Raises:
        FileNotFoundError: none of the families is installed.
    """
    roots = [Path(p) for p in os.environ.get("FOVEOLA_FONTS", "/usr/share/fonts").split(":")]
    families = HELD_OUT_FAMILIES if held_out else TRAIN_FAMILIES
    found: dict[tuple[str, str], str] = {}
    for root in roots:
        for path in sorted(root.rglob("*.[to]tf")):
            try:
                family, style = ImageFont.truetype(str(path), 20).getname()
            except OSError:  # no font that FreeType can open, such as an empty file: it takes no part
                continue
            if family in families and not any(s in (style or "").lower() for s in _STYLES_OUT):
                found.setdefault((family or "", style or ""), str(path))
    if not found:
        raise FileNotFoundError(
            f"none of the {len(families)} font families is installed; "
            "install the packages listed in docs/training.md or set FOVEOLA_FONTS"
        )
    return tuple(sorted(found.values()))


@functools.cache
def _plain_fonts() -> tuple[str, ...]:
    return tuple(p for p in font_files() if "DejaVuSans" in p) or font_files()


@functools.lru_cache(512)
def _font(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)


def random_code(rng: np.random.Generator, low: int = 4, high: int = 8) -> str:
    """A lot code of ``low``..``high`` characters: free, or in one of the usual forms (letter + date, groups)."""
    n = int(rng.integers(low, high + 1))
    form = rng.random()
    if form < 0.7:
        pool = COMMON + (RARE if rng.random() < 0.35 else "")
        return "".join(pool[i] for i in rng.integers(0, len(pool), n))
    if n < 3:
        return "".join(COMMON[i] for i in rng.integers(0, len(COMMON), n))
    letters, digits = "ABCDEFGHJKLMNPRSTUVWXYZ", "0123456789"
    head = int(rng.integers(1, 3))
    code = "".join(letters[i] for i in rng.integers(0, 23, head)) + "".join(
        digits[i] for i in rng.integers(0, 10, n - head)
    )
    if form > 0.92 and n >= 5:
        cut = int(rng.integers(2, n - 2))
        code = code[:cut] + "-" + code[cut + 1 :]
    return code


_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]


def random_date(rng: np.random.Generator) -> str:
    """A date in one of the forms that packages carry."""
    y, m, d = int(rng.integers(2020, 2032)), int(rng.integers(1, 13)), int(rng.integers(1, 29))
    forms = (
        f"{y}-{m:02}-{d:02}", f"{d:02}.{m:02}.{y}", f"{d:02}/{m:02}/{y}", f"{m:02}/{y}", f"{d:02} {_MONTHS[m - 1]} {y}",
        f"{y}.{m:02}.{d:02}", f"{y}{m:02}{d:02}",
    )  # fmt: skip
    return forms[int(rng.integers(len(forms)))]


def _ink(rng: np.random.Generator, paper: Grey) -> float:
    mean = float(paper.mean())
    contrast = rng.uniform(55, 170)
    darker = mean > 128 if rng.random() < 0.85 else mean > 100
    return float(np.clip(mean - contrast if darker else mean + contrast, 0, 255))


def _paper(rng: np.random.Generator, height: int, width: int) -> Grey:
    kind = rng.random()
    if kind < 0.3:
        return np.full(
            (height, width), rng.choice((255, 250, 240, rng.uniform(150, 255), rng.uniform(0, 90))), np.float32
        )
    return surface(rng, height, width)


def label(
    rng: np.random.Generator,
    height: int,
    width: int,
    *,
    held_out: bool = False,
    lines: bool | None = None,
    tight: float = 0.0,
    plain: float = 0.0,
    length: tuple[int, int] = (4, 8),
) -> Scene:
    """A printed label.

    ``lines``: with a lot line and an expiry line (None: one in five where there is room). ``tight`` is the least
    share of the width that the widest line fills, ``plain`` the share of labels that are dark on light in the plainest
    fonts, ``length`` bounds the code: for an easier start of the training.
    """
    easy = bool(rng.random() < plain)
    paths = _plain_fonts() if easy else font_files(held_out=held_out)
    path = paths[int(rng.integers(len(paths)))]
    code = random_code(rng, *length)
    if lines is None:
        lines = bool(rng.random() < 0.2) and height >= 84 and width >= 140
    expiry = random_date(rng) if lines else ""
    rows = _lines(rng, code, expiry) if lines else [("", code)]
    texts = [a + b for a, b in rows]
    size = _fit(rng, path, texts, height, width, tight)
    font = _font(path, size)
    spacing = rng.uniform(0, size * 0.12) if rng.random() < 0.35 else 0.0
    image = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(image)
    _, top, _, bottom = font.getbbox("0H")
    line_h = int((bottom - top) * rng.uniform(1.25, 1.8))
    block_h = line_h * (len(texts) - 1) + (bottom - top)
    widths = [font.getlength(t) + spacing * len(t) for t in texts]
    if max(widths) > width - 4:
        spacing, widths = 0.0, [font.getlength(t) for t in texts]
    y0 = rng.uniform(2, max(3, height - block_h - 2))
    x0 = rng.uniform(2, max(3, width - max(widths) - 2))
    characters: list[tuple[str, int, Box]] = []
    for row, (prefix, value) in enumerate(rows):
        x, y = x0, y0 + row * line_h
        for position, character in enumerate(prefix + value):
            draw.text((x, y - top), character, font=font, fill=255)
            advance = font.getlength(character) + spacing
            if value is code and position >= len(prefix):
                box = (x / width, y / height, (x + advance) / width, (y + bottom - top) / height)
                characters.append((character, position - len(prefix), box))
            x += advance
    angle = float(rng.uniform(-4, 4)) if rng.random() < 0.35 else 0.0
    if angle:
        image = image.rotate(angle, Image.Resampling.BILINEAR)
        characters = [(c, i, _turn(b, angle, width, height)) for c, i, b in characters]
    if rng.random() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, max(0.35, size * 0.03))))
    mask: Grey = np.asarray(image, np.float32) / np.float32(255)
    pixels = _dark_on_light(rng, mask) if easy else _blend(rng, _paper(rng, height, width), mask)
    return Scene(pixels, "printed label", code=code, expiry=expiry, characters=tuple(characters))


def _lines(rng: np.random.Generator, code: str, expiry: str) -> list[tuple[str, str]]:
    """A lot line and an expiry line, each as what introduces it and what is said, in either order."""
    rows = [
        (str(rng.choice(("LOT ", "LOT: ", "Lot ", "LOT", "BATCH ", "L: ", ""))), code),
        (str(rng.choice(("EXP ", "EXP: ", "Exp. ", "BBE ", "USE BY ", "BEST BEFORE ", ""))), expiry),
    ]
    return rows[::-1] if rng.random() < 0.4 else rows


def cells(
    rng: np.random.Generator, rows: int, columns: int, *, jitter_px: float, plain: float = 0.0, cell_px: int = 28
) -> Scene:
    """A code with one character in each cell of one row of a ``rows`` × ``columns`` grid of cells, moved by up to
    ``jitter_px``: the easiest labels, with which reading begins. A share ``plain`` is dark on light in one of the
    plainest fonts."""
    easy = bool(rng.random() < plain)
    paths = _plain_fonts() if easy else font_files()
    path = paths[int(rng.integers(len(paths)))]
    code = "".join((COMMON + RARE)[i] for i in rng.integers(0, len(COMMON + RARE), columns))
    height, width = rows * cell_px, columns * cell_px
    font = _font(path, int(rng.integers(cell_px * 6 // 10, cell_px + 6)))
    image = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(image)
    row = int(rng.integers(rows))
    characters: list[tuple[str, int, Box]] = []
    down = rng.uniform(-jitter_px, jitter_px)
    for i, character in enumerate(code):
        x = (i + 0.5) * cell_px + rng.uniform(-jitter_px, jitter_px)
        y = (row + 0.5) * cell_px + down
        draw.text((x, y), character, font=font, fill=255, anchor="mm")
        half_w, half_h = font.getlength(character) / 2, font.size * 0.38
        box = ((x - half_w) / width, (y - half_h) / height, (x + half_w) / width, (y + half_h) / height)
        characters.append((character, i, box))
    mask: Grey = np.asarray(image, np.float32) / np.float32(255)
    pixels = _dark_on_light(rng, mask) if easy else _blend(rng, _paper(rng, height, width), mask)
    return Scene(pixels, "printed label", code=code, characters=tuple(characters))


def page(rng: np.random.Generator, height: int, width: int, *, held_out: bool = False, plain: float = 0.0) -> Scene:
    """A picture full of printed characters of one font and size: it teaches the vision tower to read, many
    characters at a time. Nothing is asked about it, so it has no code, and its characters have the index -1."""
    easy = bool(rng.random() < plain)
    paths = _plain_fonts() if easy else font_files(held_out=held_out)
    path = paths[int(rng.integers(len(paths)))]
    size = int(SMALLEST_PX * np.exp(rng.uniform(0, np.log(44 / SMALLEST_PX))))
    font = _font(path, size)
    _, top, _, bottom = font.getbbox("0H")
    image = Image.new("L", (width, height), 0)
    draw = ImageDraw.Draw(image)
    characters: list[tuple[str, int, Box]] = []
    pool = COMMON + RARE + "-"
    spacing = rng.uniform(0, size * 0.15) if rng.random() < 0.4 else 0.0
    y = rng.uniform(1 - (bottom - top) * 0.3, 8)
    while y < height - (bottom - top) * 0.7:
        x = rng.uniform(-size * 0.3, size * 0.6)
        while x < width - size * 0.3:
            if rng.random() < 0.06:
                x += size * rng.uniform(0.4, 1.5)
            character = pool[int(rng.integers(len(pool)))]
            advance = font.getlength(character) + spacing
            draw.text((x, y - top), character, font=font, fill=255)
            box = (x / width, y / height, (x + advance) / width, (y + bottom - top) / height)
            characters.append((character, -1, box))
            x += advance
        y += (bottom - top) * rng.uniform(1.15, 1.7)
    if rng.random() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, max(0.35, size * 0.03))))
    mask: Grey = np.asarray(image, np.float32) / np.float32(255)
    pixels = _dark_on_light(rng, mask) if easy else _blend(rng, _paper(rng, height, width), mask)
    return Scene(pixels, "printed label", characters=tuple(characters))


def _fit(rng: np.random.Generator, path: str, texts: list[str], height: int, width: int, tight: float) -> int:
    """A font size (px) at which all lines fit; drawn between legible and filling."""
    unit = max(_font(path, 40).getlength(t) for t in texts) / 40
    most = min((width - 6) / unit, (height - 4) / (1.0 if len(texts) == 1 else 1.7 * len(texts)), 64)
    least = max(min(SMALLEST_PX, most), most * tight)
    return max(8, int(rng.uniform(least, most)))


def _turn(box: Box, angle: float, width: int, height: int) -> Box:
    """The upright box of the same size around the middle that the rotation moves ``box`` to."""
    x, y = (box[0] + box[2]) / 2 * width - width / 2, (box[1] + box[3]) / 2 * height - height / 2
    c, s = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    dx, dy = (x * c + y * s - x) / width, (-x * s + y * c - y) / height
    return box[0] + dx, box[1] + dy, box[2] + dx, box[3] + dy


def _dark_on_light(rng: np.random.Generator, mask: Grey) -> NDArray[np.uint8]:
    paper, ink = np.float32(rng.uniform(170, 250)), np.float32(rng.uniform(0, 60))
    grey = np.asarray(paper * (1 - mask) + ink * mask, np.uint8)
    return np.repeat(grey[:, :, None], 3, 2)


def _blend(rng: np.random.Generator, paper: Grey, mask: Grey) -> NDArray[np.uint8]:
    """Paper and ink, grey or coloured: uint8 [H, W, 3]."""
    ink = _ink(rng, paper)
    grey = paper * (1 - mask) + ink * mask
    if rng.random() < 0.5:
        grey = grey + np.asarray(rng.standard_normal(grey.shape), np.float32) * np.float32(rng.uniform(0, 9))
    tint = np.asarray(1 + rng.uniform(-0.2, 0.2, 3) * (rng.random() < 0.3), np.float32)
    return np.clip(grey[:, :, None] * tint, 0, 255).astype(np.uint8)
