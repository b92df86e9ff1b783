from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage, Invalid
from foveola.stream.sources import NoCamera, open_source


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for at, name in enumerate(["b.png", "a.jpg", "c.BMP"]):
        Image.new("RGB", (20 + at, 10), (at * 40, 0, 0)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    frames = list(open_source(str(tmp_path), fps=4))
    assert [frame.name for frame in frames] == ["a.jpg", "b.png", "c.BMP"]
    assert [frame.time_s for frame in frames] == [0, 0.25, 0.5]
    assert frames[1].picture.original == (20, 10)


def test_a_broken_picture_is_told_by_its_name(tmp_path: Path) -> None:
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    frames = open_source(str(tmp_path), fps=4)
    assert next(frames).name == "a.png"
    with pytest.raises(BadImage, match=r"^b.png: "):
        next(frames)


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="holds no pictures"):
        open_source(str(tmp_path), fps=1)
    with pytest.raises(Invalid, match="nothing is neither a folder nor a video file"):
        open_source(str(tmp_path / "nothing"), fps=1)
    with pytest.raises(Invalid, match="an address that is no rtsp"):
        open_source("http://example.org/a.mp4", fps=1)


def test_a_video_file(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="the camera door is not open: no OpenCV")
    file = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"MJPG"), 5.0, (64, 48))
    for level in (0, 120, 240):
        writer.write(np.full((48, 64, 3), (0, 0, level), np.uint8))  # blue, green, red
    writer.release()
    frames = list(open_source(str(file), fps=1))
    assert [frame.time_s for frame in frames] == [0, 0.2, 0.4]
    red, green, blue = frames[2].picture.rgb.mean((0, 1))
    assert red > 200 > 40 > max(green, blue)
    text = tmp_path / "film.txt"
    text.write_text("no film")
    with pytest.raises(NoCamera, match="film.txt is no video that OpenCV reads"):
        open_source(str(text), fps=1)


def test_a_camera_that_does_not_answer() -> None:
    pytest.importorskip("cv2", reason="the camera door is not open: no OpenCV")
    with pytest.raises(NoCamera, match="The camera does not answer"):
        open_source("rtsp://127.0.0.1:9/none", fps=1)
