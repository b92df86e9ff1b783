"""Vehicles that exist only as pictures: a camera over a wide scene, parked or turning, and what its gyroscope says.

A frame is cut out of a panorama by the very homography that a turn makes, with noise of a sensor on it. So the motion
is known exactly, and reuse can be judged against it; no vehicle shakes or bends here.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveola.intake.image import Picture
from foveola.stream.motion import Camera, Gyroscope, homography, rotation
from foveola.stream.options import StreamOptions
from foveola.stream.sources import Frame
from foveola.stream.watching import Seen, Watcher


@dataclass(frozen=True, slots=True)
class Drive:
    """How one vehicle moves: it turns at up to ``omega`` rad/s, to and fro, once in ``period_s``; 0 is parked."""

    omega: float
    period_s: float = 4.0
    noise: float = 2.0
    seed: int = 0

    def rate(self, time_s: float) -> float:
        """Angular velocity around the upright axis."""
        return self.omega * math.cos(2 * math.pi * time_s / self.period_s) if self.omega else 0.0

    def angle(self, time_s: float) -> float:
        """The integral of ``rate``."""
        return self.omega * self.period_s / (2 * math.pi) * math.sin(2 * math.pi * time_s / self.period_s)


def gyroscope(drive: Drive, seconds: float, hz: float = 100.0) -> Gyroscope:
    """What the vehicle's IMU would say."""
    times = np.arange(0, seconds + 1 / hz, 1 / hz)
    rates = np.zeros((len(times), 3))
    rates[:, 1] = [drive.rate(float(moment)) for moment in times]
    return Gyroscope(times, rates)


def frames(scene: NDArray[np.uint8], camera: Camera, drive: Drive, count: int, fps: float) -> Iterator[Frame]:
    """``count`` frames of a camera in the middle of ``scene`` uint8 [H, W, 3], which should be wider than its view."""
    noise = np.random.default_rng(drive.seed)
    canvas = Image.fromarray(scene)
    left = (scene.shape[1] - camera.width) / 2
    top = (scene.shape[0] - camera.height) / 2
    to_middle = np.array([[1, 0, left], [0, 1, top], [0, 0, 1]], np.float64)
    for index in range(count):
        moment = index / fps
        back = to_middle @ homography(camera, rotation([0.0, drive.angle(moment), 0.0]))
        back /= back[2, 2]
        cut = canvas.transform(
            (camera.width, camera.height),
            Image.Transform.PERSPECTIVE,
            tuple(back.reshape(-1)[:8].tolist()),
            Image.Resampling.BILINEAR,
        )
        pixels = np.asarray(cut, np.float32)
        if drive.noise:
            pixels = pixels + noise.normal(0, drive.noise, pixels.shape).astype(np.float32)
        rgb = np.clip(pixels, 0, 255).astype(np.uint8)
        yield Frame(index, moment, Picture(rgb, (camera.width, camera.height), "VIDEO"))


@dataclass(frozen=True, slots=True)
class FleetRun:
    """Several vehicles at once: ``frames_s`` of all together, what each saw, and the seconds that it took."""

    frames_s: float
    seconds: float
    seen: tuple[tuple[Seen, ...], ...]


def run_fleet(
    watcher: Watcher,
    films: Sequence[Sequence[Frame]],
    drives: Sequence[Drive],
    camera: Camera,
    options: StreamOptions,
    question: str,
    max_tokens: int = 16,
) -> FleetRun:
    """Every vehicle in a thread of its own, as fast as they come; frames are made before the clock runs."""
    seen: list[tuple[Seen, ...]] = [()] * len(films)
    failures: list[BaseException] = []

    def drive(number: int) -> None:
        try:
            imu = gyroscope(drives[number], len(films[number]) / options.fps + 1)
            eye = watcher.eye(options, camera=camera, gyroscope=imu)
            name = f"agv-{number}"
            seen[number] = tuple(watcher.watch(films[number], eye, question, max_tokens=max_tokens, camera=name))
        except BaseException as error:  # noqa: BLE001 - raised again where the fleet is waited for
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(len(films))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise failures[0]
    return FleetRun(sum(len(film) for film in films) / seconds, seconds, tuple(seen))
