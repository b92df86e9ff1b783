from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.bench.calibration import documentation_texts, training_samples
from foveola.compress.samples import parse_samples
from foveola.exchange import Invalid


def test_texts_are_the_same_for_a_seed_and_never_of_the_other_side(tmp_path: Path) -> None:
    first = documentation_texts(tmp_path / "a", 30, seed=1)
    again = documentation_texts(tmp_path / "b", 30, seed=1)
    other = documentation_texts(tmp_path / "c", 30, seed=1, held_out=True)
    assert first.read_text() == again.read_text()
    shown, hidden = ({json.loads(line)["text"] for line in p.read_text().splitlines()} for p in (first, other))
    assert len(shown) > 20 and not shown & hidden
    assert all(len(sample.text or "") > 500 for sample in parse_samples(first))


def test_without_the_data_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no defects/manifest.csv in the data folder"):
        training_samples(tmp_path, tmp_path / "out", 2)


@pytest.mark.slow
def test_questions_about_training_pictures(tmp_path: Path, shared: Path) -> None:
    samples = parse_samples(training_samples(shared / "data", tmp_path, 12, seed=3))
    assert len(samples) == 12
    assert all(sample.prompt and sample.answer and sample.image and sample.image.is_file() for sample in samples)
