from __future__ import annotations

import numpy as np
import pytest

from foveola.compress.token_map import EDGE, FADED, PAPER, strip, token_map
from foveola.exchange import Invalid


def test_what_is_kept_stays_and_the_rest_fades() -> None:
    rgb = np.full((40, 60, 3), 35, np.uint8)
    drawn = token_map(rgb, (2, 3), [1])
    assert drawn[10, 30].tolist() == [35, 35, 35]
    assert drawn[35, 30].tolist() == [round(PAPER + (35 - PAPER) * FADED)] * 3
    assert drawn[10, 20].tolist() == list(EDGE)
    assert (token_map(rgb, (2, 3), range(6)) == rgb).all()


def test_a_token_beside_the_grid_is_an_error() -> None:
    with pytest.raises(Invalid, match="a token beside the grid of 2 x 3"):
        token_map(np.zeros((8, 8, 3), np.uint8), (2, 3), [6])


def test_a_strip_has_all_its_pictures_at_one_height() -> None:
    sheet = strip([np.zeros((10, 20, 3), np.uint8), np.zeros((30, 30, 3), np.uint8)], height=60, gap=4)
    assert sheet.size == (120 + 4 + 60, 60)
    assert sheet.getpixel((122, 30)) == (255, 255, 255)
