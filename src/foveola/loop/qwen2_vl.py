"""A checkpoint of the Qwen2-VL family as a pupil of ``learn/distil``: batches of pictures of one size.

The answers of all classes are scored in one row per picture: they share the picture and the question, and each sees
itself only (``foveola.tiny`` packs its lessons the same way).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from foveola.artifact import Checkpoint
from foveola.exchange import Invalid, Unsupported
from foveola.family import family_of
from foveola.learn.distil.pupil import Pupil
from foveola.tiny.model import MERGE, PATCH, final_norm, read_layers, see, to_patches, vision_rope
from foveola.tiny.tokens import load_tokenizer, token_id
from foveola.tiny.train import star_mask
from foveola.tiny.turns import Packer
from foveola.weights.loading import load

FAMILY = "qwen2_vl"
SIZE = (112, 112)
QUESTION = "What is the defect?"


class Qwen2VL(Pupil):
    """``question`` is asked about every picture; each of ``classes`` is an answer."""

    def __init__(
        self, model: Any, tokenizer: PreTrainedTokenizerFast, classes: Sequence[str], question: str = QUESTION,
        size: tuple[int, int] = SIZE,
    ) -> None:  # fmt: skip
        step = PATCH * MERGE
        if size[0] % step or size[1] % step:
            raise Invalid(
                f"pictures of {size[0]} x {size[1]} pixels do not divide into tokens of {step}.", field="size"
            )
        self.classes, self.size = tuple(classes), size
        self._patches = (size[0] // PATCH, size[1] // PATCH)
        self.grid = (self._patches[0] // MERGE, self._patches[1] // MERGE)
        self.model, self.tokenizer, self.question = model, tokenizer, question
        self.packer, self._end = Packer(tokenizer), token_id(tokenizer, "<|im_end|>")
        self.width = int(model.config.text_config.hidden_size)
        self._rope = vision_rope(model, self._patches)
        self._pack()
        model.requires_grad_(False)

    @classmethod
    def open(
        cls, checkpoint: Checkpoint, classes: Sequence[str], question: str = QUESTION, size: tuple[int, int] = SIZE
    ) -> Qwen2VL:
        """The model of a checkpoint, in memory. Raises ``Unsupported`` for another family."""
        if checkpoint.config.get("model_type") != FAMILY:
            raise Unsupported(
                f"{checkpoint.name} is of the family {checkpoint.config.get('model_type')!r}; a repair is made of "
                f"{FAMILY} only, in whose vision tower pictures of one size can go through together."
            )
        model = load(checkpoint, family_of(checkpoint.config))
        return cls(model, load_tokenizer(checkpoint.path), classes, question, size)

    @property
    def tower(self) -> nn.Module:
        """The vision tower with its merger."""
        tower: nn.Module = self.model.model.visual
        return tower

    def twin(self) -> Qwen2VL:
        """A deep copy."""
        return Qwen2VL(copy.deepcopy(self.model), self.tokenizer, self.classes, self.question, self.size)

    def see(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Features [B, n, width] of pictures uint8 [B, H, W, 3]."""
        patches = torch.from_numpy(np.stack([to_patches(one) for one in pixels]))
        return see(self.model, patches, self._rope)[1]

    def score(self, features: Tensor) -> Tensor:
        """Log-likelihood of each class's answer to the question, its end included [B, C]."""
        out = self._read(features, self._ids, self._positions, self._mask)
        table = self.model.model.language_model.embed_tokens.weight
        likely = F.linear(out[:, self._slots], table).log_softmax(-1)
        batch = features.shape[0]
        said = likely.gather(-1, self._said[None, :, None].expand(batch, -1, 1))[..., 0]
        return said.new_zeros(batch, len(self.classes)).index_add(1, self._owner, said)

    def _read(self, features: Tensor, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Last states [B, L, H] of rows of ``ids`` [L] or [B, L] whose picture has ``features`` [B, n, H]."""
        batch, count = features.shape[:2]
        x = self.model.model.language_model.embed_tokens(ids)
        x = x[None].expand(batch, -1, -1) if x.ndim == 2 else x
        at = self.packer.picture_at
        x = torch.cat([x[:, :at], features, x[:, at + count :]], 1)
        *_, last = read_layers(self.model, x, positions[:, None].expand(-1, batch, -1), mask)
        return final_norm(self.model, last)

    def _pack(self) -> None:
        ids, positions, after = self.packer.prefix(self._patches)
        asked = self.packer.question(self.question)
        ids, chunks = [*ids, *asked], [positions, _row(len(asked), after)]
        after += len(asked)
        segments, last = [0] * len(ids), len(ids) - 1
        slots: list[int] = []
        said: list[int] = []
        owner: list[int] = []
        for number, name in enumerate(self.classes):
            answer = [*self.packer.encode(name), self._end]
            slots += [last, *range(len(ids), len(ids) + len(answer) - 1)]
            said += answer
            owner += [number] * len(answer)
            ids += answer[:-1]
            segments += [number + 1] * (len(answer) - 1)
            chunks.append(_row(len(answer) - 1, after))
        self._ids, self._positions = torch.tensor(ids), torch.from_numpy(np.concatenate(chunks, 1))
        self._mask = star_mask(torch.tensor([segments]))
        self._slots, self._said, self._owner = torch.tensor(slots), torch.tensor(said), torch.tensor(owner)

    @torch.no_grad()
    def answer(self, pixels: NDArray[np.uint8], question: str, most: int = 24) -> list[str]:
        """What the model says greedily to ``question`` about each picture, at most ``most`` tokens."""
        features = self.see(pixels)
        ids, positions, after = self.packer.prefix(self._patches)
        asked = self.packer.question(question)
        positions = np.concatenate([positions, _row(len(asked), after)], 1)
        after += len(asked)
        rows = torch.tensor([*ids, *asked]).expand(len(pixels), -1)
        over = torch.zeros(len(pixels), dtype=torch.bool)
        start = rows.shape[1]
        for _ in range(most):
            mask = torch.ones(1, 1, rows.shape[1], rows.shape[1], dtype=torch.bool).tril()
            out = self._read(features, rows, torch.from_numpy(positions), mask)[:, -1]
            following = F.linear(out, self.model.model.language_model.embed_tokens.weight).argmax(-1)
            rows = torch.cat([rows, following[:, None]], 1)
            positions = np.concatenate([positions, _row(1, after)], 1)
            after += 1
            over |= following == self._end
            if bool(over.all()):
                break
        return [self._text(row) for row in rows[:, start:].tolist()]

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids[: ids.index(self._end)] if self._end in ids else ids))


def _row(length: int, start: int) -> NDArray[np.int64]:
    """Positions [3, length] of text from ``start`` on."""
    return np.tile(np.arange(length) + start, (3, 1))
