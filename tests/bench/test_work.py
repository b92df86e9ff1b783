from __future__ import annotations

from pathlib import Path

import pytest

from foveola.bench.options import BenchOptions
from foveola.bench.run import workload
from foveola.bench.work import folder_items, generated_items
from foveola.exchange import BadImage, Invalid
from foveola.intake import decode


def test_generated_items_are_pictures_with_questions_and_always_the_same() -> None:
    made = generated_items(12)
    assert made == generated_items(12)
    assert made != generated_items(12, seed=1)
    assert made[:3] == generated_items(3)
    assert {decode(item.image).format for item in made} == {"PNG", "JPEG"}
    assert len({decode(item.image).rgb.shape for item in made}) > 4
    assert any(ord(letter) > 0x2E80 for letter in made[3].text)  # every fourth is Chinese
    assert all(item.text.strip() for item in made)


def test_a_folder_gives_one_question_per_picture_in_order(tmp_path: Path) -> None:
    pictures = generated_items(3)
    (tmp_path / "deep").mkdir()
    (tmp_path / "b.png").write_bytes(pictures[0].image)
    (tmp_path / "a.jpg").write_bytes(pictures[1].image)
    (tmp_path / "deep" / "c.PNG").write_bytes(pictures[2].image)
    (tmp_path / "notes.txt").write_text("not a picture")
    assert [item.name for item in folder_items(tmp_path)] == ["a.jpg", "b.png", "c.PNG"]


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="holds no pictures; expected files with one of the endings .bmp, .gif"):
        folder_items(tmp_path)
    with pytest.raises(Invalid, match="missing is no directory; name a folder with pictures."):
        folder_items(tmp_path / "missing")


def test_a_broken_picture_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(generated_items(1)[0].image[:200])
    with pytest.raises(BadImage, match="^broken.png: "):
        folder_items(tmp_path)


def test_a_folder_s_pictures_are_mixed_with_the_generated_ones(tmp_path: Path) -> None:
    for index in range(2):
        (tmp_path / f"given{index}.png").write_bytes(generated_items(1)[0].image)
    options = BenchOptions(bundle=tmp_path, cores=1, pictures=tmp_path, requests=4)
    kinds = [item.name.startswith("given") for item in workload(options)]
    assert sum(kinds) == 2
    assert len(kinds) == 6
    assert kinds not in ([True] * 2 + [False] * 4, [False] * 4 + [True] * 2)
