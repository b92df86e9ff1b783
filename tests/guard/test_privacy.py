from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveola.artifact.audit import AuditLog, read_audit
from foveola.exchange import BadImage, Piece, Request, Unavailable
from foveola.guard.detectors import Pixels, Region, suppress
from foveola.guard.privacy import Deidentifier, private
from foveola.guard.verdict import Verdict
from tests.guard.answers import asking, pieces_of, saying


class Fixed:
    """A detector that knows."""

    def __init__(self, *regions: Region) -> None:
        self.regions = regions

    def find(self, rgb: Pixels) -> list[Region]:
        return list(self.regions)


FACE = Region("face", 20, 20, 40, 40, 0.9)


def picture(format: str = "PNG", **more: object) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize((100, 80)).save(file, format, **more)
    return file.getvalue()


def exif() -> bytes:
    tags = Image.Exif()
    tags[0x010F] = "Camera of Li Wei"
    tags.get_ifd(0x8825)[2] = (31.0, 14.0, 0.0)
    return tags.tobytes()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_metadata_does_not_survive(format: str) -> None:
    data = picture(format, exif=exif())
    assert b"Li Wei" in data
    done = Deidentifier([Fixed()]).picture(data)  # type: ignore[list-item]
    with Image.open(io.BytesIO(done.data)) as image:
        assert image.size == (100, 80)
        assert not image.getexif() and set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}
    assert b"Li Wei" not in done.data
    assert done.regions == ()


def test_a_region_is_erased_with_its_margin_and_the_log_says_so(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    done = Deidentifier([Fixed(FACE)], AuditLog(log)).picture(picture(), name="frame-7")  # type: ignore[list-item]
    before, after = (np.asarray(Image.open(io.BytesIO(data))).astype(int) for data in (picture(), done.data))
    changed = np.argwhere(np.abs(before - after).sum(-1) > 0)
    assert changed.min(0).tolist() == [16, 16] and changed.max(0).tolist() == [43, 43]
    [entry] = read_audit(log)
    assert (entry["picture"], entry["face"], entry["plate"]) == ("frame-7", 1, 0)
    assert entry["coordinates"] == done.coordinate_hash
    moved = Deidentifier([Fixed(Region("face", 21, 20, 40, 40, 0.9))]).picture(picture())  # type: ignore[list-item]
    assert moved.coordinate_hash != done.coordinate_hash
    assert not {"left", "top", "regions"} & set(entry)


def test_nothing_passes_that_the_log_does_not_hold(tmp_path: Path) -> None:
    broken = tmp_path / "audit.log"
    broken.write_text("half a line")
    for log, told in (
        (tmp_path / "gone" / "a.log", "No such file or directory. No picture"),
        (broken, "middle of a li"),
    ):
        with pytest.raises(Unavailable, match=f"^The log of erased faces and plates cannot be written: .*{told}"):
            Deidentifier([Fixed(FACE)], AuditLog(log)).picture(picture())  # type: ignore[list-item]
    assert broken.read_text() == "half a line"


def test_what_is_no_picture_is_refused_and_logged_nowhere(tmp_path: Path) -> None:
    with pytest.raises(BadImage):
        Deidentifier([Fixed(FACE)], AuditLog(tmp_path / "a")).picture(picture()[:80])  # type: ignore[list-item]
    assert not (tmp_path / "a").exists()


async def test_the_answerer_behind_it_never_sees_the_original() -> None:
    seen: list[Request] = []
    told: list[Verdict] = []

    def answer(request: Request) -> object:
        seen.append(request)
        return saying("yes")(request)

    data = picture("JPEG", exif=exif())
    guarded = private(answer, Deidentifier([Fixed(FACE)]), told.append)  # type: ignore[arg-type, list-item]
    pieces: list[Piece] = list(await pieces_of(guarded, asking("?", data, data)))
    assert [piece.text for piece in pieces] == ["yes", ""]
    assert all(b"Li Wei" not in image and image != data for image in seen[0].turns[0].images)
    assert told == [Verdict("privacy", "erased", "job-1", "", {"face": 2, "plate": 0})]


def test_overlapping_boxes_are_one() -> None:
    boxes = np.array([[0, 0, 10, 10, 0.5], [1, 1, 11, 11, 0.9], [50, 50, 60, 60, 0.1]], np.float32)
    assert suppress(boxes, 0.4) == [1, 2]
    assert suppress(boxes[:0], 0.4) == []
