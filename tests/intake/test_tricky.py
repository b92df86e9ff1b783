"""Every difficult picture of the shared data: a sane picture or a refusal, in bounded memory, without a crash."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from foveola.intake.image import decode
from tests.intake.processes import decode_apart
from tests.intake.test_image import assert_clean

# Decoded here, and otherwise than Pillow alone does, each for a reason.
BETTER = {
    # Browsers show nothing around a frame smaller than its screen; Pillow fills it with colour 0 of the palette.
    "tests_images_gif_anim_border_touching_layers.gif",
    "test_data_artificial-gif_metadata-empty.gif",
    "test_data_artificial-gif_small-frame-interlaced.gif",
    # The transparent grey of a 4-bit picture: Pillow compares it with pixels already scaled to 8 bits.
    "png_42ec8668adb5dbc6581393f463976510.png",
}


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    found = shared / "data" / "tricky"
    if not (found / "manifest.csv").is_file():
        pytest.skip("the shared data hold no tricky pictures")
    return found


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[Path, dict[str, str]]:
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as stream:
        return {folder / row["path"]: row for row in csv.DictReader(stream)}


@pytest.fixture(scope="module")
def outcomes(rows: dict[Path, dict[str, str]]) -> dict[Path, dict[str, Any]]:
    return {Path(outcome["path"]): outcome for outcome in decode_apart(rows)}


def test_every_file_ends_in_a_sane_picture_or_a_refusal(outcomes: dict[Path, dict[str, Any]]) -> None:
    assert len(outcomes) > 1000
    for outcome in outcomes.values():
        if "refused" in outcome:
            assert outcome["status"] in (400, 413, 415), outcome
            assert "not enough memory" not in outcome["message"], outcome
            assert_clean(outcome["message"])
        else:
            assert outcome["sane"], outcome


def test_what_can_be_shown_is_shown(outcomes: dict[Path, dict[str, Any]], rows: dict[Path, dict[str, str]]) -> None:
    """Of the files that opened elsewhere, in the formats served here, only these few kinds are refused."""
    refused: Counter[str] = Counter()
    for path, row in rows.items():
        served = row["format"] in ("JPEG", "MPO", "PNG", "WEBP", "BMP", "GIF", "TIFF")
        if served and json.loads(row["annotation"])["expect"] == "decode" and "refused" in outcomes[path]:
            refused[row["set"]] += 1
    assert refused.pop("decompression_bomb") == 5  # 100 million pixels each
    # Flipped bits (checksums tell), float and signed TIFF without an agreed look, LZMA.
    assert set(refused) <= {"png_alpha", "png_other", "png_palette_transparency", "tiff_variant"}
    assert sum(refused.values()) <= 29


def test_bombs_are_refused(outcomes: dict[Path, dict[str, Any]], rows: dict[Path, dict[str, str]]) -> None:
    bombs = {path: outcomes[path] for path, row in rows.items() if row["set"] == "decompression_bomb"}
    assert len(bombs) >= 16
    assert [path.name for path, outcome in bombs.items() if "refused" not in outcome] == []


def reference(data: bytes) -> Any:
    """What Pillow alone shows, over white and upright; None where it cannot say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = Image.open(io.BytesIO(data))
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            return np.rint(np.asarray(image)[..., None].repeat(3, axis=-1) / 257)
        if image.mode in ("F", "LAB"):
            return None
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, "white")
            white.alpha_composite(image.convert("RGBA"))
            image = white
        return np.asarray(image.convert("RGB"))


def test_the_pixels_are_those_that_a_person_sees(
    outcomes: dict[Path, dict[str, Any]], rows: dict[Path, dict[str, str]]
) -> None:
    compared = 0
    different = set()
    for path, outcome in outcomes.items():
        small = "refused" not in outcome and outcome["shape"][0] * outcome["shape"][1] <= 3_000_000
        if not small or rows[path]["pillow_load"] != "ok" or "APNG contains" in rows[path]["extra"]:
            continue
        data = path.read_bytes()
        try:
            expected = reference(data)
        except (SyntaxError, ValueError):
            continue  # Pillow gives up over metadata that is not even looked at here
        if expected is None:
            continue
        compared += 1
        rgb = decode(data).rgb
        if rgb.shape != expected.shape or np.abs(rgb - expected.astype(float)).max() > 1:
            different.add(path.name)
    assert compared > 650
    assert different == BETTER
