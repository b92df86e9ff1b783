"""What another camera changes is found from frequent classes, and put on any picture."""

from __future__ import annotations

import numpy as np
import pytest

from foveola.learn.distil.camera import CELLS, camera_change, filtered, spectrum
from foveola.learn.distil.tail import Example

RNG = np.random.default_rng(0)
SIDE = 64


def texture(rng: np.random.Generator) -> np.ndarray:
    grey = filtered(
        rng.standard_normal((SIDE, SIDE)).astype(np.float32) * 45, np.linspace(1, 0.3, 16, dtype=np.float32)
    )
    return (grey + 128).clip(0, 255)


def other_camera(grey: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    soft = filtered(grey.astype(np.float32), np.linspace(1, 0.1, 16, dtype=np.float32))
    lit = soft * np.linspace(0.3, 0.8, SIDE, dtype=np.float32)[None] + 10
    return (lit + rng.standard_normal(lit.shape) * 4).clip(0, 255)


def shown(grey: np.ndarray, label: int) -> Example:
    return Example(np.repeat(np.rint(grey).astype(np.uint8)[:, :, None], 3, 2), label)


def lines(count: int) -> tuple[list[Example], list[Example]]:
    old = [shown(texture(RNG), 0) for _ in range(count)]
    return old, [shown(other_camera(texture(RNG), RNG), 0) for _ in range(count)]


def test_a_picture_of_a_class_that_the_new_line_never_showed_looks_as_it_would_there() -> None:
    old, new = lines(16)
    change = camera_change(old, new)
    assert change is not None
    rare = texture(np.random.default_rng(5))
    rare[20:40, 20:40] -= 60
    rare = rare.clip(0, 255)
    made = change.put_on(shown(rare, 3).pixels, np.random.default_rng(1))[:, :, 0].astype(np.float32)
    wanted = other_camera(rare, np.random.default_rng(2)).astype(np.float32)
    assert np.abs(made - wanted).mean() < 0.15 * np.abs(rare - wanted).mean()


def test_cameras_that_do_not_differ_change_hardly_anything() -> None:
    old = [shown(texture(RNG), 0) for _ in range(16)]
    change = camera_change(old, [shown(texture(RNG), 0) for _ in range(16)])
    assert change is not None
    pixels = old[0].pixels
    made = change.put_on(pixels, np.random.default_rng(0))
    assert np.abs(made.astype(float) - pixels).mean() < 8
    assert change.before.shape[:3] == (1, CELLS, CELLS)
    assert (made[:, :, 0] == made[:, :, 2]).all()


def test_nothing_is_said_where_no_class_is_on_both_lines() -> None:
    old, new = lines(3)
    assert camera_change([Example(one.pixels, 1) for one in old], new) is None
    assert camera_change(old[:2], new) is None


def test_white_noise_has_its_variance_at_every_frequency() -> None:
    noise = [RNG.standard_normal((SIDE, SIDE)).astype(np.float32) * 3 for _ in range(8)]
    assert spectrum(noise)[1:] == pytest.approx(np.full(15, 9.0), rel=0.25)


def test_a_red_veil_is_red_afterwards() -> None:
    old, new = lines(8)
    for one in new:
        one.pixels[:, :, 0] = 200
    change = camera_change(old, new)
    assert change is not None
    made = change.put_on(old[0].pixels, np.random.default_rng(0))
    assert made[:, :, 0].mean() == pytest.approx(200, abs=6)
    assert made[:, :, 1].mean() < 100
