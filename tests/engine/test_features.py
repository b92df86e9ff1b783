"""The seam between vision and language: nothing changes under the identity, and dropping tokens keeps geometry."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.engine.features import Selected, evidence_of, joined, keep_all, place

IDS = np.array([1, 9, 9, 9, 9, 2, 9, 9, 3])
POSITIONS = np.arange(27).reshape(3, 9)
VISUAL = np.array([1, 2, 3, 4, 6, 7])
GRIDS = ((2, 2), (1, 2))
FEATURES = np.arange(12, dtype=np.float32).reshape(6, 2)


def test_the_identity_changes_nothing() -> None:
    selected = keep_all(Selected(FEATURES, np.arange(6)), GRIDS)
    assert selected.features is FEATURES
    chunk = place(IDS, POSITIONS, VISUAL, selected)
    assert chunk.ids is IDS
    assert chunk.positions is POSITIONS
    assert chunk.features is FEATURES
    assert chunk.rows.tolist() == VISUAL.tolist()
    assert chunk.start == 0


def test_without_pictures_there_are_no_features() -> None:
    chunk = place(IDS[:1], POSITIONS[:, :1], VISUAL[:0], None)
    assert chunk.features is None
    assert chunk.ids.tolist() == [1]


def test_tokens_that_are_not_kept_vanish_and_the_rest_keep_their_positions() -> None:
    kept = np.array([0, 3, 5])
    chunk = place(IDS, POSITIONS, VISUAL, Selected(FEATURES[kept], kept))
    assert chunk.ids.tolist() == [1, 9, 9, 2, 9, 3]
    assert chunk.positions.tolist() == POSITIONS[:, [0, 1, 4, 5, 7, 8]].tolist()
    assert chunk.rows.tolist() == [1, 2, 4]
    assert chunk.ids[chunk.rows].tolist() == [9, 9, 9]


def test_evidence_is_told_per_picture_and_is_zero_where_nothing_was_kept() -> None:
    kept = np.array([0, 3, 5])
    chunk = place(IDS, POSITIONS, VISUAL, Selected(FEATURES[kept], kept))
    attention = np.array([0.1, 0.2, 0.05, 0.1, 0.25, 0.3], np.float32)
    first, second = evidence_of(attention, chunk, kept, GRIDS)
    assert first.grid == (2, 2)
    assert first.weights == pytest.approx((0.2, 0, 0, 0.05))
    assert second.grid == (1, 2)
    assert second.weights == pytest.approx((0, 0.25))
    assert (first.mass, second.mass) == pytest.approx((0.25, 0.25))


def test_a_selection_that_does_not_add_up_is_an_error() -> None:
    with pytest.raises(ValueError, match="6 features were selected for 2 places"):
        place(IDS, POSITIONS, VISUAL, Selected(FEATURES, np.array([0, 1])))


def test_pictures_are_joined_at_their_places_among_all_tokens() -> None:
    first = Selected(FEATURES[:2], np.array([1, 3]), np.array([2, 3], np.float32))
    second = Selected(FEATURES[2:3], np.array([0]))
    both = joined([first, second], [4, 2])
    assert both.kept.tolist() == [1, 3, 4]
    assert both.features.tolist() == FEATURES[:3].tolist()
    assert both.counts is not None
    assert both.counts.tolist() == [2, 3, 1]


def test_a_token_that_stands_for_several_is_attended_to_as_several() -> None:
    kept = np.array([0, 3, 5])
    chunk = place(IDS, POSITIONS, VISUAL, Selected(FEATURES[kept], kept, np.array([2, 1, 3], np.float32)))
    assert chunk.bias is not None
    assert chunk.bias == pytest.approx(np.log([1, 2, 1, 1, 3, 1]))


def test_tokens_that_stand_for_themselves_need_no_bias() -> None:
    chunk = place(IDS, POSITIONS, VISUAL, Selected(FEATURES, np.arange(6), np.ones(6, np.float32)))
    assert chunk.bias is None
