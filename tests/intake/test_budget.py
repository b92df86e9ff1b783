from __future__ import annotations

import numpy as np
import pytest

from foveola.exchange import BadImage, OverBudget
from foveola.intake.budget import check_context, fit_pictures
from foveola.intake.sizes import VisionConfig
from tests.intake.models import vision

CONFIG = VisionConfig.from_model(vision())
PHOTO = (4000, 3000)


def test_within_the_budget_every_picture_has_its_own_size() -> None:
    uses = fit_pictures([PHOTO, (84, 56)], CONFIG)
    assert [use.original for use in uses] == [PHOTO, (84, 56)]
    assert uses[0].used == (504, 364)
    assert uses[0].tokens == 18 * 13
    assert uses[1].used == (84, 56)
    assert uses[1].tokens == 6


def test_a_twelve_megapixel_photo_fits_a_budget_of_4096_tokens() -> None:
    config = VisionConfig.from_model(vision(max_pixels=28 * 28 * 16384, max_patches=65536))
    (use,) = fit_pictures([PHOTO], config, room_tokens=4096 - 200)
    assert 3500 < use.tokens <= 3896
    assert use.used[0] * use.used[1] == use.tokens * 28 * 28


def test_more_than_the_vision_graph_takes_is_shrunk_together() -> None:
    uses = fit_pictures([PHOTO] * 8, CONFIG)
    assert len({use.used for use in uses}) == 1
    assert 900 < sum(use.tokens for use in uses) <= 1024


def test_small_pictures_keep_their_size_when_large_ones_shrink() -> None:
    uses = fit_pictures([PHOTO, (84, 56), PHOTO], CONFIG, room_tokens=200)
    assert uses[1].used == (84, 56)
    assert uses[0].tokens == uses[2].tokens < 18 * 13
    assert sum(use.tokens for use in uses) <= 200


def test_room_is_respected_and_used_whatever_the_sizes() -> None:
    chance = np.random.default_rng(0)
    for _ in range(200):
        sizes = [tuple(int(v) for v in chance.integers(30, 3000, 2)) for _ in range(int(chance.integers(1, 9)))]
        sizes = [(w, h) for w, h in sizes if max(w, h) <= 200 * min(w, h)]
        room = int(chance.integers(60, 1100))
        free = fit_pictures(sizes, CONFIG, room_tokens=10**6) if len(sizes) <= 4 else None
        try:
            uses = fit_pictures(sizes, CONFIG, room_tokens=room)
        except OverBudget:
            assert (
                sum(use.tokens for use in fit_pictures(sizes, VisionConfig.from_model(vision(max_pixels=3136)))) > room
            )
            continue
        total = sum(use.tokens for use in uses)
        assert total <= min(room, 1024)
        for use in uses:
            assert use.used[0] % 28 == use.used[1] % 28 == 0
            assert use.tokens == use.used[0] * use.used[1] // 784
        if free is not None and sum(use.tokens for use in free) <= room:
            assert uses == free


def test_what_cannot_fit_says_the_numbers() -> None:
    with pytest.raises(OverBudget) as caught:
        fit_pictures([PHOTO] * 3, CONFIG, room_tokens=5)
    assert caught.value.message == (
        "3 pictures need at least 6 visual tokens, and there is room for 5. "
        "Send fewer or less elongated pictures, shorten the text, or lower max_tokens."
    )
    assert caught.value.field == "image"
    assert caught.value.status == 422


def test_no_room_at_all() -> None:
    with pytest.raises(OverBudget, match="1 picture needs at least 2 visual tokens, and there is room for 0"):
        fit_pictures([PHOTO], CONFIG, room_tokens=-40)


def test_no_pictures_need_no_room() -> None:
    assert fit_pictures([], CONFIG, room_tokens=0) == ()
    assert fit_pictures([], CONFIG, room_tokens=-5) == ()


def test_a_picture_too_long() -> None:
    with pytest.raises(BadImage, match="at most 200 times the other"):
        fit_pictures([(1000, 2)], CONFIG)


def test_the_context_is_never_exceeded_in_silence() -> None:
    check_context(960, 64, 1024)
    with pytest.raises(OverBudget) as caught:
        check_context(961, 64, 1024)
    assert caught.value.message == (
        "The prompt has 961 tokens and max_tokens is 64; together they exceed the 1024 tokens of this model's context. "
        "Shorten the text, send smaller or fewer pictures, or lower max_tokens."
    )
