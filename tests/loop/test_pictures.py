from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, Invalid
from foveola.guard.detectors import Region
from foveola.guard.privacy import Deidentifier
from foveola.learn.distil.records import Record, read_records
from foveola.loop.pictures import Pictures
from tests.loop.making import write_records

CLASSES = ("crack", "pit")


class Corner:
    """A detector that finds a face in the left upper corner of everything."""

    kind = "face"

    def __init__(self) -> None:
        self.asked = 0

    def find(self, rgb: np.ndarray) -> list[Region]:
        self.asked += 1
        return [Region("face", 0, 0, 8, 8, 0.9)]


def test_records_become_examples_of_one_size(tmp_path: Path) -> None:
    records = read_records(write_records(tmp_path / "records", 2, unlabelled=1))
    examples = Pictures(None, tmp_path / "kept", (28, 56)).examples(records, CLASSES, old=True)
    assert [one.label for one in examples] == [0, 1, 0, 1, -1]
    assert {one.pixels.shape for one in examples} == {(28, 56, 3)}
    assert all(one.old for one in examples)
    assert [one.located for one in examples] == [True, True, False, False, False]
    assert examples[1].boxes is not None
    assert examples[1].boxes[0].tolist() == pytest.approx([1, 1 / 6, 0.25, 0.5, 0.75])
    assert not (tmp_path / "kept").exists()


def test_what_is_learnt_from_was_de_identified_first_and_once(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    records = read_records(write_records(folder, 1))
    white = Image.fromarray(np.full((40, 40, 3), 255, np.uint8))
    white.paste((255, 0, 0), (0, 0, 8, 8))
    for record in records:
        white.save(record.image)
    detector = Corner()
    for _ in range(2):
        pictures = Pictures(Deidentifier([detector]), tmp_path / "kept", (40, 40))  # type: ignore[list-item]
        examples = pictures.examples(records, CLASSES)
    assert detector.asked == 1  # one picture under two names, and not again in the second run
    corner = examples[0].pixels[:8, :8].astype(int)
    assert (abs(corner - [255, 0, 0]).sum(-1) > 60).all()
    (kept,) = (tmp_path / "kept").iterdir()
    assert Image.open(io.BytesIO(kept.read_bytes())).size == (40, 40)


def test_a_class_that_was_not_named_is_refused(tmp_path: Path) -> None:
    records = read_records(write_records(tmp_path / "records", 1))
    with pytest.raises(Invalid, match=r"1.png is of the class 'pit'; expected one of crack, dent\."):
        Pictures(None, tmp_path, (28, 28)).examples(records, ("crack", "dent"))


def test_a_picture_that_is_missing_or_none_is_named(tmp_path: Path) -> None:
    pictures = Pictures(Deidentifier([Corner()]), tmp_path / "kept", (28, 28))  # type: ignore[list-item]
    with pytest.raises(BadImage, match="gone.png cannot be read"):
        pictures.examples([Record(tmp_path / "gone.png", None, None)], CLASSES)
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(BadImage, match="text.png: "):
        pictures.examples([Record(tmp_path / "text.png", None, None)], CLASSES)
