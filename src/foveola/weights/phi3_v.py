"""Phi-3-vision as a module, by the names of its checkpoint's tensors: transformers' Phi-3 decoder and CLIP tower.

transformers has no class for this family, and the code that comes with the checkpoints is not run. ``forward`` is the
decoder's, over embeddings; ``get_image_features`` is the published arrangement of features ("sub_glb"): crops row by
row with ``sub_GN`` after every row, ``glb_GN``, the whole picture in the same way; all through the projection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel, Phi3Config, Phi3ForCausalLM, Phi3Model

from foveola.family.phi3_v import tower_config


class Phi3VConfig(Phi3Config):  # type: ignore[no-untyped-call]
    """config.json of Phi-3-vision: Phi-3's, with ``img_processor`` and ``embd_layer``."""

    model_type = "phi3_v"


class _Tower(nn.Module):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.vision_model = CLIPVisionModel(CLIPVisionConfig(**settings))


class ImageEmbedding(nn.Module):
    """Tower, separators and projection."""

    def __init__(self, config: Phi3VConfig) -> None:
        super().__init__()
        settings = tower_config(config.to_dict())
        width, hidden = 4 * int(settings["hidden_size"]), int(config.hidden_size)
        self.img_processor = _Tower(settings)
        self.glb_GN = nn.Parameter(torch.zeros(1, 1, width))
        self.sub_GN = nn.Parameter(torch.zeros(1, 1, 1, width))
        self.img_projection = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.side = int(settings["image_size"]) // int(settings["patch_size"])

    def forward(self, pixel_values: Tensor, grids: Sequence[tuple[int, int]]) -> list[Tensor]:
        """See ``Phi3VForCausalLM.get_image_features``."""
        found = []
        for tiles, (rows, columns) in zip(pixel_values, grids, strict=True):
            states = self.img_processor.vision_model(tiles[: 1 + rows * columns], output_hidden_states=True)
            whole, *crops = states.hidden_states[-2][:, 1:]
            canvas = self._in_twos(torch.stack(crops), rows, columns)
            parts = [self._lines(canvas), self.glb_GN[0], self._lines(self._in_twos(whole[None], 1, 1))]
            found.append(self.img_projection(torch.cat(parts)))
        return found

    def _in_twos(self, states: Tensor, rows: int, columns: int) -> Tensor:
        """[rows * columns, side**2, E] -> [rows * side / 2, columns * side / 2, 4 E]: 2 x 2 patches side by side."""
        canvas = torch.cat(
            [torch.cat(list(line), dim=1) for line in states.view(rows, columns, self.side, self.side, -1)], dim=0
        )
        return torch.cat([canvas[down::2, right::2] for down in (0, 1) for right in (0, 1)], dim=-1)

    def _lines(self, canvas: Tensor) -> Tensor:
        """[R, C, 4 E] -> [R * (C + 1), 4 E], each row ended by ``sub_GN``."""
        return torch.cat([canvas, self.sub_GN[0].expand(canvas.shape[0], 1, -1)], dim=1).flatten(0, 1)


class _Decoder(Phi3Model):  # type: ignore[no-untyped-call]
    config_class = Phi3VConfig

    def __init__(self, config: Phi3VConfig) -> None:
        super().__init__(config)
        self.vision_embed_tokens = ImageEmbedding(config)


class Phi3VForCausalLM(Phi3ForCausalLM):  # type: ignore[no-untyped-call]
    """The whole model."""

    config_class = Phi3VConfig

    def __init__(self, config: Phi3VConfig) -> None:
        super().__init__(config)
        self.model = _Decoder(config)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_image_features(self, pixel_values: Tensor, grids: Sequence[tuple[int, int]]) -> list[Tensor]:
        """pixel_values [pictures, 1 + crops, 3, S, S], the whole picture first; ``grids`` are (rows, columns) of crops.

        -> per picture features [tokens, H].
        """
        found: list[Tensor] = self.model.vision_embed_tokens(pixel_values, grids)
        return found
