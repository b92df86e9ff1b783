from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from foveola.exchange import Invalid
from foveola.stream.fleet import Drive, frames, gyroscope
from foveola.stream.motion import STILL, Camera, Gyroscope, homography, rotation


def test_rotations_are_rotations() -> None:
    turned = rotation([0.1, -0.2, 0.3])
    assert turned @ turned.T == pytest.approx(np.eye(3), abs=1e-12)
    assert np.linalg.det(turned) == pytest.approx(1)
    assert rotation([0, math.pi / 2, 0]) @ np.array([0, 0, 1]) == pytest.approx(np.array([1, 0, 0]), abs=1e-12)
    assert rotation([0, 0, 0]) == pytest.approx(np.eye(3))


def test_a_turn_moves_the_middle_by_f_tan() -> None:
    camera = Camera.of_angle(60, 640, 480)
    assert camera.focal == pytest.approx(554.256, abs=1e-3)
    moved = homography(camera, rotation([0, 0.1, 0])) @ np.array([320, 240, 1])
    assert moved[0] / moved[2] == pytest.approx(320 + camera.focal * math.tan(0.1))
    assert moved[1] / moved[2] == pytest.approx(240)
    half = camera.scaled(320, 240)
    assert (half.focal, half.width) == (pytest.approx(camera.focal / 2), 320)


def test_a_gyroscope_is_integrated() -> None:
    drive = Drive(omega=0.7)
    imu = gyroscope(drive, 3.0)
    for start, end in ((0.0, 0.1), (0.2, 1.3)):
        angle = drive.angle(end) - drive.angle(start)
        assert imu.turned(start, end, steps=64) == pytest.approx(rotation([0, -angle, 0]), abs=1e-4)
    assert imu.omega(0.0)[1] == pytest.approx(0.7)
    assert STILL.turned(0, 5) == pytest.approx(np.eye(3))
    assert imu.turned(1.0, 1.0) == pytest.approx(np.eye(3))


def test_rates_are_those_between_the_readings() -> None:
    imu = Gyroscope([0.0, 1.0], [[0, 0, 0], [0, 2, 4]])
    assert imu.omega(0.5).tolist() == [0, 1, 2]
    assert imu.omega(9.0).tolist() == [0, 2, 4]


def test_a_film_of_a_turn_is_the_scene_turned() -> None:
    scene = np.zeros((120, 400, 3), np.uint8)
    scene[:, ::20] = 255  # stripes
    camera = Camera.of_angle(60, 160, 120)
    drive = Drive(omega=0.4, noise=0)
    film = list(frames(scene, camera, drive, 4, fps=10))
    assert film[0].picture.rgb.shape == (120, 160, 3)
    assert np.array_equal(film[0].picture.rgb, scene[:, 120:280])
    moved = camera.focal * math.tan(drive.angle(0.3))  # a point of the scene goes left as the camera turns right
    row = film[3].picture.rgb[60, :, 0].astype(float)
    expected = 80 - moved  # the stripe at scene column 200 is at 80 of the first frame
    near = np.arange(160)[np.abs(np.arange(160) - expected) < 4]
    assert (row[near] * near).sum() / row[near].sum() == pytest.approx(expected, abs=0.75)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t,wx,wy\n0,0,0\n",
        "t,wx,wy,wz\n0,a,0,0\n",
        "t,wx,wy,wz\n",
        "t,wx,wy,wz\n1,0,0,0\n0,0,0,0\n",
        "t,wx,wy,wz\n0,nan,0,0\n",
    ],
)
def test_readings_that_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "imu.csv"
    file.write_text(text)
    with pytest.raises(Invalid, match=r"imu.csv holds no IMU readings|The IMU's readings"):
        Gyroscope.read(file)


def test_readings_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "imu.csv"
    file.write_text("t,wx,wy,wz\n0,0.1,0.2,0.3\n1,0.1,0.4,0.3\n")
    assert Gyroscope.read(file).omega(0.5) == pytest.approx([0.1, 0.3, 0.3])
    with pytest.raises(Invalid, match="none.csv holds no IMU readings; expected CSV with the columns t, wx, wy, wz"):
        Gyroscope.read(tmp_path / "none.csv")
    with pytest.raises(Invalid, match="The field of view is 180 degrees; expected 1 to 178"):
        Camera.of_angle(180, 10, 10)
