from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveola.bridge.numbers import chinese_number, quantities, with_digits
from foveola.bridge.payload import Quantity
from foveola.bridge.text import clauses, clean, near, replace_words, shape_of, sounds_of


def test_width_case_and_invisible_characters() -> None:
    assert clean("  ＨＯＬＤ\u200b　Ｌ２４１７\n ") == "HOLD L2417"


@given(st.text(max_size=60))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


def test_characters_that_look_alike_have_one_shape() -> None:
    assert shape_of("re1ease") == shape_of("release")
    assert shape_of("h0ld") == shape_of("hold")
    assert shape_of("revvork") == shape_of("rework")
    assert shape_of("hold") != shape_of("held")


def test_one_letter_is_near_in_long_words_only() -> None:
    assert near("rejegted", "rejected")
    assert near("quarantne", "quarantine")
    assert not near("stop", "shop")
    assert not near("release", "relapse2")


def test_characters_that_sound_alike_share_a_syllable() -> None:
    assert sounds_of("听") & sounds_of("停")
    assert sounds_of("还") & sounds_of("换")
    assert sounds_of("放") & sounds_of("方")
    assert not sounds_of("停") & sounds_of("开")


def test_a_point_in_a_number_ends_no_clause() -> None:
    assert [clause for _, clause in clauses("1.2 mm is fine. stop, now")] == ["1.2 mm is fine", " stop", " now"]


def test_latin_words_are_replaced_whole() -> None:
    assert replace_words("the on older old", {"on old": "on hold"}) == "the on older old"
    assert replace_words("put on old now", {"on old": "on hold"}) == "put on hold now"


@pytest.mark.parametrize(
    ("text", "value"),
    [("十二点零五", 12.05), ("二四一七", 2417), ("两百", 200), ("一千零五十", 1050), ("三万二千", 32000)],
)
def test_chinese_numbers(text: str, value: float) -> None:
    assert chinese_number(text) == pytest.approx(value)


def test_numbers_get_one_unit_each() -> None:
    assert quantities("厚度1.2cm, 95℃ 停十分钟".replace("十分钟", "10分钟")) == (
        Quantity(12.0, "mm"), Quantity(95.0, "°C"), Quantity(600.0, "s"),
    )  # fmt: skip
    assert quantities("L2417 ST05 12 m left") == (Quantity(12.0, "m"),)
    assert quantities("no units 12 here") == ()


def test_spoken_digits_become_digits() -> None:
    assert with_digits("hold lot two four one seven") == "hold lot 2417"
    assert with_digits("把批次二四一七扣下") == "把批次2417扣下"
    assert with_digits("十二点零五毫米") == "12.05毫米"
