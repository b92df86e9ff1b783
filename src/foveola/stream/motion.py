"""How the camera turned: readings of a gyroscope, integrated between frames, and what that does to the picture."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import Invalid

Matrix = NDArray[np.float64]
COLUMNS = ("t", "wx", "wy", "wz")


@dataclass(frozen=True, slots=True)
class Camera:
    """A pinhole in pixels: focal length and principal point, for a picture of ``width`` x ``height``."""

    focal: float
    width: int
    height: int

    @classmethod
    def of_angle(cls, horizontal_deg: float, width: int, height: int) -> Camera:
        """From the horizontal field of view."""
        if not 1 <= horizontal_deg < 179:
            raise Invalid(f"The field of view is {horizontal_deg} degrees; expected 1 to 178.", field="fov")
        return cls(width / 2 / math.tan(math.radians(horizontal_deg) / 2), width, height)

    def scaled(self, width: int, height: int) -> Camera:
        """The same camera for a picture that was resized."""
        return Camera(self.focal * width / self.width, width, height)

    def matrix(self) -> Matrix:
        """K."""
        return np.array([[self.focal, 0, self.width / 2], [0, self.focal, self.height / 2], [0, 0, 1]], np.float64)


def rotation(angles: Sequence[float] | Matrix) -> Matrix:
    """The rotation by a vector of angles in radians (Rodrigues)."""
    vector = np.asarray(angles, np.float64)
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.asarray(np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross)


def homography(camera: Camera, turned: Matrix) -> Matrix:
    """H = K R K^-1: where a pixel of the earlier picture is in the later one, for a camera that turned by R."""
    k = camera.matrix()
    return np.asarray(k @ turned @ np.linalg.inv(k))


class Gyroscope:
    """Angular velocity over time: rows of seconds and rad/s around x (right), y (down) and z (forward)."""

    def __init__(self, times_s: Sequence[float] | Matrix, omega: Sequence[Sequence[float]] | Matrix) -> None:
        self._times = np.asarray(times_s, np.float64)
        self._omega = np.asarray(omega, np.float64).reshape(-1, 3)
        if len(self._times) != len(self._omega) or len(self._times) < 1:
            raise Invalid("The IMU's readings have no rows, or not three rates in each.", field="imu")
        if not (np.isfinite(self._times).all() and np.isfinite(self._omega).all()) or (np.diff(self._times) <= 0).any():
            raise Invalid("The IMU's readings are not numbers in the order of time; sort and clean them.", field="imu")

    @classmethod
    def read(cls, path: Path) -> Gyroscope:
        """From a CSV file with the columns t, wx, wy, wz. Raises ``Invalid``."""
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                rows = list(csv.DictReader(stream))
            values = np.array([[float(row[name]) for name in COLUMNS] for row in rows])
        except (OSError, ValueError, KeyError, TypeError):
            raise Invalid(
                f"{path.name} holds no IMU readings; expected CSV with the columns {', '.join(COLUMNS)} "
                "(seconds, rad/s).",
                field="imu",
            ) from None
        return cls(values[:, 0] if len(values) else [], values[:, 1:] if len(values) else [])

    def omega(self, time_s: float) -> Matrix:
        """Rates at a moment, between readings linearly, before and behind them the nearest: float64 [3]."""
        return np.array([np.interp(time_s, self._times, self._omega[:, axis]) for axis in range(3)])

    def turned(self, start_s: float, end_s: float, steps: int = 8) -> Matrix:
        """By what the *scene* seems to turn between two moments: the inverse of the camera's own rotation."""
        if end_s <= start_s:
            return np.eye(3)
        step = (end_s - start_s) / steps
        whole = np.eye(3)
        for index in range(steps):
            whole = rotation(-self.omega(start_s + (index + 0.5) * step) * step) @ whole
        return whole


STILL = Gyroscope([0.0], [[0.0, 0.0, 0.0]])
