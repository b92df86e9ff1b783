"""What is computed and what is reused, with a vision graph that only counts and means."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from foveola.intake.geometries import geometry_of
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture
from foveola.stream.eye import Eye
from foveola.stream.fleet import Drive, frames, gyroscope
from foveola.stream.motion import Camera
from foveola.stream.options import StreamOptions
from foveola.stream.scene import SIDE, Answered, bilinear, cell_change, sketch_of

SIZE = (224, 168)  # 8 x 6 cells of 28 pixels
MODEL = {
    "family": "qwen2_vl",
    "geometry": "qwen2_vl",
    "vision": {
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "min_pixels": 28 * 28,
        "max_pixels": 28 * 28 * 64,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "resample": "bicubic",
        "max_patches": 1024,
    },
}


class Encode:
    """Features of a cell: the mean of its pixels, and of its position; counts patches."""

    def __init__(self) -> None:
        self.patches: list[int] = []

    def __call__(self, packed: Packed) -> NDArray[np.float32]:
        self.patches.append(len(packed.pixel_values))
        cells = packed.pixel_values.reshape(len(packed.pixel_values) // 4, 4, -1)
        features = np.stack([cells.mean((1, 2)) + 2, cells.std((1, 2)) + 2, np.ones(len(cells))], -1)
        return features.astype(np.float32)


def noise(seed: int = 0, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    """A scene that is smooth enough to be recognised after a turn."""
    coarse = np.random.default_rng(seed).integers(40, 215, (size[1] // 12, size[0] // 12, 3)).astype(np.uint8)
    from PIL import Image

    return np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))


def picture(rgb: NDArray[np.uint8]) -> Picture:
    return Picture(rgb, (rgb.shape[1], rgb.shape[0]), "PNG")


def grainy(rgb: NDArray[np.uint8], seed: int, sigma: float = 3.0) -> Picture:
    grain = np.random.default_rng(seed).normal(0, sigma, rgb.shape)
    return picture(np.clip(rgb + grain, 0, 255).astype(np.uint8))


def eye(encode: Encode, camera: Camera | None = None, drive: Drive | None = None, **options: object) -> Eye:
    geometry = geometry_of(MODEL)
    assert geometry is not None
    settings = StreamOptions(**{"audit_share": 0.0, **options})  # type: ignore[arg-type]
    imu = gyroscope(drive or Drive(0.0), 10.0)
    return Eye(geometry, encode, settings, camera=camera, gyroscope=imu)


def test_a_still_scene_is_computed_once_in_spite_of_the_sensors_noise() -> None:
    encode, scene = Encode(), noise()
    one = eye(encode)
    glances = [one.look(grainy(scene, at), at / 10) for at in range(20)]
    assert [glance.mode for glance in glances] == ["full"] + ["reused"] * 19
    assert len(encode.patches) == 1
    assert glances[-1].reused == glances[-1].cells == 48
    assert glances[-1].features.features is glances[0].features.features


def test_a_scratch_is_seen() -> None:
    encode, scene = Encode(), noise()
    one = eye(encode)
    one.look(grainy(scene, 0), 0.0)
    scratched = scene.copy()
    scratched[80:84, 60:100] = 0
    assert one.look(grainy(scratched, 1), 0.1).mode == "full"
    assert len(encode.patches) == 2


def test_a_slow_change_cannot_creep_in() -> None:
    encode, scene = Encode(), noise()
    one = eye(encode, epsilon=3.0)
    modes = [
        one.look(picture(np.clip(scene.astype(int) + step, 0, 255).astype(np.uint8)), step / 10).mode
        for step in range(9)
    ]
    assert modes == ["full", "reused", "reused", "reused", "full", "reused", "reused", "reused", "full"]


def test_where_the_model_looked_less_may_change() -> None:
    encode, scene = Encode(), noise()
    one = eye(encode, attended=0.5, attended_strictness=2.0)
    one.look(picture(scene), 0.0)
    attention = [0.0] * 48
    attention[0] = 1.0
    one.answered(Answered("?", "a scratch", tuple(attention)))
    elsewhere, there = scene.astype(int), scene.astype(int)
    elsewhere[140:, 196:] += 2
    there[:28, :28] += 2
    assert one.look(picture(elsewhere.astype(np.uint8)), 0.1).mode == "reused"
    assert one.look(picture(there.astype(np.uint8)), 0.2).mode == "full"


def test_what_was_there_some_frames_ago_is_known_again() -> None:
    encode, empty, part = Encode(), noise(1), noise(2)
    one = eye(encode, max_window=3)
    modes = [one.look(grainy(scene, at), at / 10).mode for at, scene in enumerate([empty, part, empty, part, empty])]
    assert modes == ["full", "full", "reused", "reused", "reused"]
    for at in range(5, 9):
        one.look(grainy(part, at), at / 10)
    assert one.look(grainy(empty, 9), 0.9).mode == "full"  # it has left the window


def test_audits_compute_and_tell_the_error() -> None:
    encode, scene = Encode(), noise()
    one = eye(encode, audit_share=0.5, seed=3)
    glances = [one.look(grainy(scene, at), at / 10) for at in range(40)]
    audits = [glance for glance in glances if glance.mode == "audit"]
    assert 8 <= len(audits) <= 32
    assert len(encode.patches) == 1 + len(audits)
    for glance in audits:
        assert glance.error is not None
        assert 0 <= glance.error < 1e-3
        assert glance.answered is None  # it is asked again
    again = eye(Encode(), audit_share=0.5, seed=3)
    assert [again.look(grainy(scene, at), at / 10).mode for at in range(40)] == [glance.mode for glance in glances]


def test_everything_is_refreshed_after_so_many_frames() -> None:
    scene = noise()
    one = eye(Encode(), refresh_frames=4)
    modes = [one.look(picture(scene), at / 10).mode for at in range(9)]
    assert modes == ["full", "reused", "reused", "reused", "refresh", "reused", "reused", "reused", "refresh"]


def test_without_reuse_every_frame_is_computed() -> None:
    encode, scene = Encode(), noise()
    one = eye(encode, reuse=False)
    assert {one.look(picture(scene), at / 10).mode for at in range(4)} == {"full"}
    assert len(encode.patches) == 4


def test_a_known_answer_comes_with_the_features_it_was_given_to() -> None:
    scene, other = noise(), noise(5)
    one = eye(Encode())
    assert one.look(picture(scene), 0.0).answered is None
    one.answered(Answered("what?", "a scratch"))
    known = one.look(picture(scene), 0.1).answered
    assert known is not None
    assert (known.question, known.text) == ("what?", "a scratch")
    assert one.look(picture(other), 0.2).answered is None
    back = one.look(picture(scene), 0.3).answered
    assert back is not None
    assert back.text == "a scratch"


def test_another_size_is_another_scene() -> None:
    encode = Encode()
    one = eye(encode)
    one.look(picture(noise()), 0.0)
    assert one.look(picture(noise(0, (168, 224))), 0.1).mode == "full"
    assert one.look(picture(noise(0, (168, 224))), 0.2).mode == "reused"


@pytest.mark.parametrize("partial", [False, True])
def test_a_turning_camera(partial: bool) -> None:
    scene = noise(7, (640, 200))
    camera, drive = Camera.of_angle(60, *SIZE), Drive(omega=0.3, noise=1.0)
    encode = Encode()
    one = eye(encode, camera, drive, partial=partial, epsilon=12.0, tolerance=2.0)
    glances = [one.look(frame.picture, frame.time_s) for frame in frames(scene, camera, drive, 6, fps=10)]
    assert glances[0].mode == "full"
    assert glances[1].omega == pytest.approx(0.3, abs=0.02)
    assert glances[1].phi > 2
    if not partial:  # something comes into view at the edge, so all is computed
        assert {glance.mode for glance in glances} == {"full"}
        return
    assert [glance.mode for glance in glances[1:]] == ["partial"] * 5
    assert all(
        4 * (glance.cells - glance.reused) == count for glance, count in zip(glances, encode.patches, strict=True)
    )
    assert min(glance.reused for glance in glances[1:]) > 24
    exact = Encode()
    geometry = geometry_of(MODEL)
    assert geometry is not None
    last = glances[-1]
    truth = exact(geometry.pack([last.picture], [last.view]))
    moved = np.abs(last.features.features - truth).mean()
    unmoved = np.abs(glances[0].features.features - truth).mean()
    assert moved < unmoved / 2  # features went along with the camera


def test_the_described_window_shrinks_with_motion() -> None:
    scene, camera = noise(7, (640, 200)), Camera.of_angle(60, *SIZE)
    for omega, window in ((0.2, 8), (1.0, 3)):
        drive = Drive(omega=omega, period_s=1000)
        one = eye(Encode(), camera, drive, window="described")
        assert {one.look(frame.picture, frame.time_s).window for frame in frames(scene, camera, drive, 3, 10)} == {
            window
        }


def test_sketches_and_samples() -> None:
    rgb = np.zeros((56, 84, 3), np.uint8)
    rgb[:28, 28:56] = 100
    sketch = sketch_of(rgb, (2, 3))
    assert sketch.shape == (2 * SIDE, 3 * SIDE)
    assert cell_change(sketch, np.zeros_like(sketch)).tolist() == [[0, 100, 0], [0, 0, 0]]
    values = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    places = np.array([[0.0, 0.0], [1.0, 1.5], [2.5, 9.0]])
    assert bilinear(values, places)[:, 0].tolist() == [0.0, 5.5, 11.0]
