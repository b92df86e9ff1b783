"""Where the features say that a defect is: two linear heads on every visual token, and boxes made of what they say.

The model itself answers with text; the heads are evidence beside it. They learn with the tower, stay in the workshop,
and are no part of a bundle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveola.learn.distil.tail import Example

Floats = NDArray[np.float32]
_UNIT = 4.0  # tokens; boxes are told from the middle of a token in this unit, or they would be large numbers


class TokenHeads(nn.Module):
    """For features [B, n, width]: logits of what lies under a token [B, n, C] and its box [B, n, 4]."""

    def __init__(self, width: int, classes: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.under = nn.Linear(width, classes)
        self.box = nn.Linear(width, 4)
        nn.init.zeros_(self.under.weight)
        nn.init.constant_(self.under.bias, -2.0)
        nn.init.zeros_(self.box.weight)
        nn.init.zeros_(self.box.bias)

    def loss(self, features: Tensor, examples: Sequence[Example]) -> Tensor:
        """Over examples whose boxes are complete; 0 where there is none."""
        known = [i for i, one in enumerate(examples) if one.located and one.boxes is not None]
        if not known:
            return features.sum() * 0
        seen = features[known]
        targets = [token_targets(examples[i].boxes, self.grid, self.under.out_features) for i in known]  # type: ignore[arg-type]
        under = torch.from_numpy(np.stack([one[0] for one in targets]))
        boxes = torch.from_numpy(np.stack([one[1] for one in targets]))
        touched = under.sum(-1) > 0
        loss = F.binary_cross_entropy_with_logits(self.under(seen), under)
        if bool(touched.any()):
            loss = loss + F.smooth_l1_loss(self.box(seen)[touched], boxes[touched], beta=0.1)
        return loss

    @torch.no_grad()
    def found(self, features: Tensor, scores: Tensor, most: int = 4) -> list[Floats]:
        """Per picture the boxes [m, 6]: class, confidence, x1, y1, x2, y2, for features [B, n, W] and scores [B, C].

        The confidence is what the token says times what the model's answer says of the class: of every class the best
        ``most`` boxes that do not overlap by more than half.
        """
        under = self.under(features).sigmoid() * scores.softmax(-1)[:, None, :]
        rows, columns = self.grid
        units = torch.tensor([columns, rows, columns, rows], dtype=torch.float32)
        boxes = ((self.box(features) * _UNIT + torch.from_numpy(_middles(self.grid))) / units).clamp(0, 1)
        return [_distinct(u, b, most) for u, b in zip(under.numpy(), boxes.numpy(), strict=True)]


def token_targets(boxes: Floats, grid: tuple[int, int], classes: int) -> tuple[Floats, Floats]:
    """What lies under each token [n, C], and the box [n, 4] of the defect whose middle is nearest, from the token."""
    rows, columns = grid
    middle = _middles(grid)
    under = np.zeros((rows * columns, classes), np.float32)
    wanted = np.zeros((rows * columns, 4), np.float32)
    nearest = np.full(rows * columns, np.inf)
    for label, *corners in boxes:
        box = np.asarray(corners, np.float32) * (columns, rows, columns, rows)
        x, y = middle[:, 0], middle[:, 1]
        inside = (x + 0.5 > box[0]) & (x - 0.5 < box[2]) & (y + 0.5 > box[1]) & (y - 0.5 < box[3])
        under[inside, int(label)] = 1.0
        away = np.hypot(x - (box[0] + box[2]) / 2, y - (box[1] + box[3]) / 2)
        mine = inside & (away < nearest)
        wanted[mine] = ((box - middle) / _UNIT)[mine]
        nearest[mine] = away[mine]
    return under, wanted


def _middles(grid: tuple[int, int]) -> Floats:
    y, x = np.mgrid[0 : grid[0], 0 : grid[1]]
    return np.stack([x, y, x, y], -1).reshape(-1, 4).astype(np.float32) + np.float32(0.5)


def overlaps(box: Floats, others: Floats) -> Floats:
    """Intersection over union [m] of ``box`` [4] with ``others`` [m, 4]."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    area = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    ious: Floats = (shared / np.maximum(area, 1e-9)).astype(np.float32)
    return ious


def _distinct(under: Floats, boxes: Floats, most: int) -> Floats:
    kept: list[Floats] = []
    for label in range(under.shape[1]):
        mine: list[int] = []
        for token in np.argsort(-under[:, label], kind="stable"):
            if len(mine) == most:
                break
            if not mine or overlaps(boxes[token], boxes[mine]).max() < 0.5:
                mine.append(int(token))
        kept += [np.array([label, under[t, label], *boxes[t]], np.float32) for t in mine]
    return np.stack(kept)


def fit_heads(
    heads: TokenHeads, features: Tensor, examples: Sequence[Example], *, steps: int = 300, seed: int = 0
) -> list[float]:
    """Teach the heads alone, on features [N, n, W] of ``examples`` that do not change; the losses."""
    optimiser = torch.optim.AdamW(heads.parameters(), lr=1e-2, weight_decay=1e-3)
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps if len(examples) else 0):
        chosen = torch.randint(len(examples), (64,), generator=draw).tolist()
        loss = heads.loss(features[chosen], [examples[i] for i in chosen])
        if not loss.requires_grad:
            break
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses
