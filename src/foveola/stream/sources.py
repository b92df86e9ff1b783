"""Where frames come from: a folder of pictures, a video file, a camera's RTSP stream.

Folders need nothing beyond the edge; video and RTSP need OpenCV (the extra ``camera``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveola.exchange import Invalid, Refusal
from foveola.intake import Limits, decode
from foveola.intake.image import Picture

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})
PATIENCE = 30  # frames that may fail one after the other before a camera is given up


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One picture of a stream, ``time_s`` after its beginning."""

    index: int
    time_s: float
    picture: Picture
    name: str = ""


class NoCamera(Refusal):
    """A video or a camera cannot be read here; the message says why."""

    code = "no_camera"


def open_source(source: str, fps: float, limits: Limits | None = None) -> Iterator[Frame]:
    """The frames of ``source``: a folder, a video file, or an ``rtsp://`` address. Raises ``Invalid``, ``NoCamera``.

    A folder's pictures come in the order of their names, ``fps`` a second; a picture that is none ends the stream with
    its refusal.
    """
    if "://" in source:
        if not source.startswith(("rtsp://", "rtsps://")):
            raise Invalid("The source is an address that is no rtsp:// one; name a camera, a folder or a video.")
        return video_frames(source, live=True)
    path = Path(source)
    if path.is_dir():
        return folder_frames(path, fps, limits or Limits())
    if path.is_file():
        return video_frames(str(path), live=False)
    raise Invalid(f"{path.name} is neither a folder nor a video file; name one that exists.", field="source")


def folder_frames(folder: Path, fps: float, limits: Limits) -> Iterator[Frame]:
    """The pictures of a folder. Raises ``Invalid`` at once where there is none."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise Invalid(f"{folder.name} holds no pictures ({', '.join(sorted(SUFFIXES))}).", field="source")

    def frames() -> Iterator[Frame]:
        for index, path in enumerate(paths):
            try:
                picture = decode(path.read_bytes(), limits)
            except Refusal as refusal:
                raise type(refusal)(f"{path.name}: {refusal.message}", field=refusal.field) from None
            yield Frame(index, index / fps, picture, path.name)

    return frames()


def video_frames(address: str, *, live: bool, clock: Callable[[], float] = time.monotonic) -> Iterator[Frame]:
    """Frames that OpenCV reads. A live source has the clock's time, a file that of its frame rate."""
    cv2 = _opencv()
    capture = cv2.VideoCapture(address)
    if not capture.isOpened():
        capture.release()
        what = "The camera does not answer" if live else f"{Path(address).name} is no video that OpenCV reads"
        raise NoCamera(f"{what}; try it with a player, and name another.", field="source")
    fps = capture.get(cv2.CAP_PROP_FPS) or 25.0

    def frames() -> Iterator[Frame]:
        began, index, failed = clock(), 0, 0
        try:
            while failed < (PATIENCE if live else 1):
                good, pixels = capture.read()
                if not good:
                    failed += 1
                    continue
                failed = 0
                rgb = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
                picture = Picture(rgb, (rgb.shape[1], rgb.shape[0]), "VIDEO")
                yield Frame(index, clock() - began if live else index / fps, picture)
                index += 1
        finally:
            capture.release()
        if live:
            raise NoCamera("The camera stopped sending frames; look at it and at the network.", field="source")

    return frames()


def _opencv() -> Any:
    try:
        import cv2
    except ModuleNotFoundError:
        raise NoCamera(
            "Video and RTSP need OpenCV: pip install 'foveola[camera]'. A folder of pictures needs nothing."
        ) from None
    return cv2
