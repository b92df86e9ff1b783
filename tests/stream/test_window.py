from __future__ import annotations

import math

import pytest

from foveola.stream.options import StreamOptions
from foveola.stream.window import derived_window, described_window, pixels_per_frame


@pytest.mark.parametrize(("omega", "frames"), [(0.0, 8), (0.8, 8), (-0.8, 8), (0.81, 3), (-5.0, 3)])
def test_the_described_rule(omega: float, frames: int) -> None:
    assert described_window(omega) == frames


@pytest.mark.parametrize(
    ("phi", "frames"),
    [(0.0, 8), (0.5, 8), (1.75, 8), (2.0, 7), (3.5, 4), (7.0, 2), (14.0, 1), (1e9, 1), (math.inf, 1), (math.nan, 1)],
)
def test_the_derived_rule(phi: float, frames: int) -> None:
    assert derived_window(phi, 28, tolerance=0.5, max_window=8) == frames


def test_a_window_never_grows_with_motion() -> None:
    windows = [derived_window(phi / 10, 28, tolerance=0.5, max_window=8) for phi in range(300)]
    assert windows == sorted(windows, reverse=True)
    assert (windows[0], windows[-1]) == (8, 1)


def test_pixels_per_frame() -> None:
    assert pixels_per_frame(-0.8, 500, 10) == pytest.approx(40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "long"}, "`window` is 'long'; expected derived or described."),
        ({"fps": 0}, "`fps` is 0; expected a number above 0."),
        ({"epsilon": math.nan}, "`epsilon` is nan; expected a number above 0."),
        ({"max_window": 0}, "`max_window` is 0; expected at least 1."),
        ({"audit_share": 1.5}, "`audit_share` is 1.5; expected 0 to 1."),
        ({"attended_strictness": 0.5}, "`attended_strictness` is 0.5; expected at least 1."),
    ],
)
def test_options_out_of_range(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        StreamOptions(**options)  # type: ignore[arg-type]
    assert str(caught.value) == message
