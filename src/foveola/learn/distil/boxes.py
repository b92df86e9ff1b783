"""Where the features say that a defect is: a small head on the visual tokens, and boxes made of what it says.

The model itself answers with text; the heads are evidence beside it. They learn with the tower, stay in the workshop,
and are no part of a bundle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveola.learn.distil.tail import Example

Floats = NDArray[np.float32]
_UNIT = 4.0  # tokens; boxes are told from the middle of a token in this unit, or they would be large numbers


_HIDDEN = 64
_RARE = 0.12  # of the tokens: where a class is before anything was learnt


class TokenHeads(nn.Module):
    """For features [B, n, width]: logits of what lies under a token [B, n, C] and its box [B, n, 4]. Every token sees
    its neighbours: one alone of 16 does not know how far a defect goes."""

    def __init__(self, width: int, classes: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid, self.classes = grid, classes
        self.enter = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.2), nn.Linear(width, _HIDDEN), nn.GELU())
        self.around = nn.Conv2d(_HIDDEN, _HIDDEN, 3, padding=1)
        self.leave = nn.Linear(_HIDDEN, classes + 4)
        nn.init.zeros_(self.leave.weight)
        with torch.no_grad():
            self.leave.bias.copy_(torch.tensor([math.log(_RARE / (1 - _RARE))] * classes + [0.0] * 4))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits [B, n, C], and boxes [B, n, 4] from the middle of the token in ``_UNIT``."""
        rows, columns = self.grid
        x = self.enter(features)
        x = x + F.gelu(self.around(x.transpose(1, 2).unflatten(2, (rows, columns)))).flatten(2).transpose(1, 2)
        out = self.leave(x)
        return out[..., : self.classes], out[..., self.classes :]

    def loss(self, features: Tensor, examples: Sequence[Example]) -> Tensor:
        """Over examples whose boxes are complete; 0 where there is none. Boxes by distance and by generalised overlap
        (Rezatofighi et al., CVPR 2019)."""
        known = [i for i, one in enumerate(examples) if one.located and one.boxes is not None]
        if not known:
            return features.sum() * 0
        targets = [token_targets(examples[i].boxes, self.grid, self.classes) for i in known]  # type: ignore[arg-type]
        under = torch.from_numpy(np.stack([one[0] for one in targets]))
        boxes = torch.from_numpy(np.stack([one[1] for one in targets]))
        said, placed = self(features[known])
        touched = under.sum(-1) > 0
        loss = 4 * F.binary_cross_entropy_with_logits(said, under)
        if bool(touched.any()):
            middles = torch.from_numpy(_middles(self.grid)).expand(len(known), -1, -1)[touched]
            apart = 1 - _generalised_overlap(middles + _UNIT * placed[touched], middles + _UNIT * boxes[touched])
            loss = loss + F.smooth_l1_loss(placed[touched], boxes[touched], beta=0.1) + apart.mean()
        return loss

    @torch.no_grad()
    def found(self, features: Tensor, scores: Tensor, most: int = 4) -> list[Floats]:
        """Per picture the boxes [m, 6]: class, confidence, x1, y1, x2, y2, for features [B, n, W] and scores [B, C].

        The confidence is what the token says times what the model's answer says of the class: of every class the best
        ``most`` boxes that do not overlap by more than half.
        """
        learning = self.training
        said, placed = self.eval()(features)
        self.train(learning)
        under = said.sigmoid() * scores.softmax(-1)[:, None, :]
        rows, columns = self.grid
        units = torch.tensor([columns, rows, columns, rows], dtype=torch.float32)
        boxes = ((placed * _UNIT + torch.from_numpy(_middles(self.grid))) / units).clamp(0, 1)
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


def _generalised_overlap(ours: Tensor, theirs: Tensor) -> Tensor:
    """[m] in -1..1 of boxes [m, 4]."""
    least, most = torch.minimum(ours, theirs), torch.maximum(ours, theirs)
    shared = (least[:, 2:] - most[:, :2]).clamp(min=0).prod(1)
    both = sum((one[:, 2:] - one[:, :2]).clamp(min=0).prod(1) for one in (ours, theirs)) - shared
    hull = (most[:, 2:] - least[:, :2]).clamp(min=1e-6).prod(1)
    return shared / both.clamp(min=1e-6) - (hull - both) / hull


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
    heads: TokenHeads, features: Tensor, examples: Sequence[Example], *, steps: int = 250, seed: int = 0
) -> list[float]:
    """Teach the heads alone, on features [N, n, W] of ``examples`` that do not change, every class as often; the
    losses."""
    known = [i for i, one in enumerate(examples) if one.located and one.boxes is not None]
    if not known:
        return []
    optimiser = torch.optim.AdamW(heads.parameters(), lr=2e-3, weight_decay=1e-2)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    labels = torch.tensor([max(examples[i].label, 0) for i in known])
    likely = 1 / torch.bincount(labels)[labels].float()
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        chosen = [known[i] for i in torch.multinomial(likely, 64, True, generator=draw).tolist()]
        loss = heads.loss(features[chosen], [examples[i] for i in chosen])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        slower.step()
        losses.append(float(loss.detach()))
    return losses
