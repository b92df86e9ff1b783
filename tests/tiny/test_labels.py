"""Labels: codes are legible where they are said to be, and held-out fonts stay out of training."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.tiny import labels


def _fonts(held_out: bool) -> tuple[str, ...]:
    try:
        return labels.font_files(held_out=held_out)
    except FileNotFoundError:
        pytest.skip("no fonts are installed on this machine")


def test_the_font_families_are_disjoint():
    assert not labels.TRAIN_FAMILIES & labels.HELD_OUT_FAMILIES


def test_no_font_file_serves_both_sides():
    assert not set(_fonts(False)) & set(_fonts(True))


def test_codes_have_the_length_and_the_alphabet():
    rng = np.random.default_rng(0)
    for _ in range(300):
        code = labels.random_code(rng)
        assert 4 <= len(code) <= 8
        assert set(code) <= set(labels.COMMON + labels.RARE + "-")


@pytest.mark.parametrize("size", [(112, 224), (224, 224), (28, 112), (160, 240)])
def test_characters_lie_inside_in_reading_order(size):
    _fonts(False)
    for seed in range(20):
        one = labels.label(np.random.default_rng(seed), *size, lines=False)
        assert one.pixels.shape == (*size, 3)
        assert "".join(c for c, _, _ in one.characters) == one.code
        middles = [(b[0] + b[2]) / 2 for _, _, b in one.characters]
        assert middles == sorted(middles)
        assert all(-0.05 < m < 1.05 for m in middles)


def test_a_label_with_lines_has_a_date():
    _fonts(False)
    one = labels.label(np.random.default_rng(3), 160, 240, lines=True)
    assert any(ch.isdigit() for ch in one.expiry)
    assert one.code != one.expiry


def test_missing_fonts_are_told(monkeypatch, tmp_path):
    labels.font_files.cache_clear()
    monkeypatch.setenv("FOVEOLA_FONTS", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="none of the .* font families is installed; .* set FOVEOLA_FONTS"):
        labels.font_files()
    labels.font_files.cache_clear()


def test_a_page_is_full_of_characters_that_stand_where_it_says():
    _fonts(False)
    for seed in range(12):
        one = labels.page(np.random.default_rng(seed), 112, 168, plain=1.0)
        assert one.pixels.shape == (112, 168, 3)
        assert not one.code
        assert len(one.characters) >= 4
        for character, index, (x1, y1, x2, y2) in one.characters:
            assert character in labels.COMMON + labels.RARE + "-"
            assert index == -1
            assert x1 < x2
            assert y1 < y2
            inside = one.pixels[max(0, round(y1 * 112)) : round(y2 * 112), max(0, round(x1 * 168)) : round(x2 * 168)]
            if x1 >= 0 and y1 >= 0 and x2 <= 1 and y2 <= 1:
                assert int(inside.max()) - int(inside.min()) > 60, "dark ink on light paper under every character"
