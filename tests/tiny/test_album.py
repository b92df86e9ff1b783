"""What was seen once is asked about again, and gives way to new pictures."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.tiny import album, labels  # noqa: E402
from foveola.tiny.album import Album  # noqa: E402
from foveola.tiny.batches import Ease, Source  # noqa: E402
from foveola.tiny.tokens import train_tokenizer  # noqa: E402
from foveola.tiny.turns import Packer  # noqa: E402

GRID = (2, 6)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    try:
        labels.font_files()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return Source([], Packer(train_tokenizer(tmp_path_factory.mktemp("tokenizer"))), None)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(album, "ROOM", 3)


class Eyes:
    """Says of each picture how bright its patches are, and counts how often it looked."""

    looked = 0

    def __call__(self, group):
        self.looked += 1
        return group.patches.mean(-1, keepdim=True).expand(-1, -1, 4)


def test_a_full_album_asks_again_and_looks_now_and_then(source, small):
    eyes = Eyes()
    kept = Album(source, eyes)
    groups = [kept.group("label", GRID, 2, [seed], turns=5) for seed in range(43)]
    assert 3 + 4 <= eyes.looked <= 3 + 20  # 40 draws from a full album, of which one in four is new
    again = [g for g in groups if not g.patches.shape[1]]
    assert len(again) == 43 - eyes.looked
    for group in again:
        first = next(g for g in groups if torch.equal(g.under, group.under))
        assert first.patches.shape == (2, 12, 588)
        assert torch.allclose(group.states, first.states, atol=1e-3)
        assert group.states.dtype == torch.float32
    assert any(not torch.equal(g.ids, h.ids) for g in again for h in groups if torch.equal(g.under, h.under))


def test_sizes_and_kinds_are_kept_apart(source, small):
    kept = Album(source, Eyes())
    for seed in range(12):
        assert kept.group("label", GRID, 2, [seed]).states.shape == (2, 12, 4)
        assert kept.group("cells", (2, 8), 3, [seed], ease=Ease(jitter_px=2)).states.shape == (3, 16, 4)


def test_a_new_picture_is_the_one_that_the_source_draws(source):
    ours, theirs = (
        Album(source, Eyes()).group("label", GRID, 2, [5], turns=3),
        source.group("label", GRID, 2, [5], turns=3),
    )
    for name in ("patches", "ids", "targets", "under", "places"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
