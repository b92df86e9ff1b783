"""Which visual tokens of a picture go on through the tower, and into the decoder: chosen inside the vision graph.

After some blocks of the tower every picture keeps its most telling visual tokens (``weights.visual_tokens`` has the
rule), and each of them stands from there on for the left-out ones that are most like it; what comes after costs less
in tower and decoder alike. No training is needed, and nothing but the picture itself counts.

Letters: N patches of all pictures, E width, D head size, M blocks kept, P their patches.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from foveola.weights.visual_tokens import Kept, choose


class Narrowed(NamedTuple):
    """What the tower goes on with: states ``[P, E]``, cosine and sine ``[1, P, D / 2]``, bias ``[1, 1, P, P]``."""

    x: Tensor
    cos: Tensor
    sin: Tensor
    bias: Tensor
    kept: Kept


class Selector(nn.Module):
    """The place of selection, behind ``after`` blocks of a tower.

    A block of patches that is kept goes on unchanged, but attention counts it as many: the logarithm of the number is
    added to the attention to it (Bolya et al. 2023, arXiv:2210.09461, equation 3). Averaging the left-out blocks into
    it as well moved the answers further (docs/decisions/0004).
    """

    def __init__(self, after: int, merge_size: int) -> None:
        super().__init__()
        self.after = after
        self.side = merge_size

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor, segment_ids: Tensor, keep: Tensor
    ) -> Narrowed:
        """[N, E], twice [1, N, D / 2], [N, 2], [N], [N]: ``keep`` is the number for the picture of each patch."""
        quad = self.side**2
        states = x.view(-1, quad, x.shape[-1]).mean(dim=1)
        places = position_ids.view(-1, quad, 2)[:, 0] // self.side
        kept = choose(states, places, segment_ids.view(-1, quad)[:, 0], keep.view(-1, quad)[:, 0])
        patches = (kept.index[:, None] * quad + torch.arange(quad)).view(-1)
        picture = segment_ids.index_select(0, patches)
        weight = kept.count.log()[:, None].expand(-1, quad).reshape(-1)
        bias = torch.where(picture[:, None] == picture[None], weight[None], torch.finfo(x.dtype).min)[None, None]
        cos, sin = cos.index_select(1, patches), sin.index_select(1, patches)
        return Narrowed(x.index_select(0, patches), cos, sin, bias, kept)
