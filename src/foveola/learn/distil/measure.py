"""What a repair is judged by: accuracy by class, average precision of boxes, alignment of two lines, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveola.learn.distil.boxes import overlaps
from foveola.learn.distil.losses import expected_calibration_error

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Marks:
    """Of one model on one set of pictures. ``right`` and ``count`` are by class."""

    right: tuple[int, ...]
    count: tuple[int, ...]
    calibration_error: float

    @property
    def accuracy(self) -> float:
        """Of all pictures together."""
        return sum(self.right) / max(1, sum(self.count))

    def of(self, label: int) -> float:
        """Accuracy of one class; NaN where there is no picture of it."""
        return self.right[label] / self.count[label] if self.count[label] else float("nan")

    def mean_of(self, labels: Sequence[int]) -> float:
        """The mean accuracy of these classes, each counting alike; those without a picture do not count."""
        known = [self.of(label) for label in labels if self.count[label]]
        return float(np.mean(known)) if known else float("nan")


def marks(scores: Tensor, labels: Sequence[int]) -> Marks:
    """From scores [N, C] and the true classes of the pictures."""
    truth = torch.tensor(list(labels), dtype=torch.long)
    said = scores.argmax(-1) if len(truth) else truth
    classes = scores.shape[1]
    count = torch.bincount(truth, minlength=classes)
    right = torch.bincount(truth[said == truth], minlength=classes)
    error = expected_calibration_error(scores.softmax(-1), truth)
    return Marks(tuple(right.tolist()), tuple(count.tolist()), error)


def average_precision(found: Sequence[Floats], truth: Sequence[Floats], label: int, *, iou: float = 0.5) -> float:
    """AP of a class over pictures: the area under the precision envelope at every recall (VOC 2010 on).

    ``found``: per picture [m, 6] class, confidence, box; ``truth``: [n, 5] class, box. A true box is found once; the
    surer one counts. NaN where the class does not occur.
    """
    taken = [np.zeros(int((one[:, 0] == label).sum()), bool) for one in truth]
    wanted = sum(len(one) for one in taken)
    if not wanted:
        return float("nan")
    claims = [(box[1], picture, box[2:]) for picture, one in enumerate(found) for box in one if int(box[0]) == label]
    claims.sort(key=lambda claim: -claim[0])
    hits = np.zeros(len(claims))
    for place, (_, picture, box) in enumerate(claims):
        real = truth[picture][truth[picture][:, 0] == label][:, 1:]
        if not len(real):
            continue
        close = overlaps(box, real)
        best = int(close.argmax())
        if close[best] >= iou and not taken[picture][best]:
            taken[picture][best] = True
            hits[place] = 1
    rank = np.cumsum(hits)
    recall, precision = rank / wanted, rank / np.arange(1, len(claims) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))


def alignment_error(before: Tensor, before_labels: Sequence[int], after: Tensor, after_labels: Sequence[int]) -> float:
    """How far one line's pictures lie from another's, class by class, in the model's features [N, W].

    The mean distance of a class's two centres over the mean distance of two classes' centres: 0 where both lines are
    one, 1 where a change of line is as much as a change of class. Classes that only one line has do not count.
    """
    ours, theirs = _centres(before, before_labels), _centres(after, after_labels)
    both = sorted(set(ours) & set(theirs))
    if len(both) < 2:
        return float("nan")
    moved = torch.stack([ours[label] - theirs[label] for label in both]).norm(dim=-1).mean()
    centres = torch.stack([ours[label] for label in both])
    apart = torch.pdist(centres).mean()
    return float(moved / apart.clamp(min=1e-9))


def _centres(features: Tensor, labels: Sequence[int]) -> dict[int, Tensor]:
    truth = torch.tensor(list(labels))
    return {label: features[truth == label].mean(0) for label in sorted(set(labels))}
