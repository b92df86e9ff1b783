"""Training a visual prompt inside of the model: its rows before the picture, everything else frozen.

Prompt tuning (Lester, Al-Rfou, Constant, EMNLP 2021) at the place where the engine puts the rows: pictures go through
the bundle's own vision graph, so that training sees the features that serving will; tokens and positions are laid out
by the same code; the gradient comes from the checkpoint's decoder in torch. Pictures stay where this runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import torch
from torch import Tensor

from foveola.artifact import Bundle
from foveola.artifact.prompt import ROWS
from foveola.exchange import Invalid, Turn, Unsupported
from foveola.intake import Limits, PromptFormat, decode
from foveola.intake.geometries import geometry_of
from foveola.intake.prompt_rows import make_room
from foveola.learn.federate.codec import Floats

NO_TARGET = -100


class Record(NamedTuple):
    """What a site knows about one picture: its encoded file, a question, and the right answer."""

    picture: bytes
    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """``steps`` of Adam at ``rate`` are the local rounds of one update; ``batch`` records each, in order."""

    steps: int = 10
    rate: float = 0.02
    batch: int = 8

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1 or not self.rate > 0:
            raise Invalid("steps and batch are at least 1, rate is above 0.")


class _Lesson(NamedTuple):
    """``embeds`` [S, E] with room for the rows from ``at`` on, ``positions`` [A, S], and the token that each place has
    to say next [S]."""

    embeds: Tensor
    positions: Tensor
    targets: Tensor
    at: int


class PromptTuning:
    """A ``node.Training``. ``model`` is the checkpoint of which ``bundle`` was made, in torch (``AutoModelFor…``)."""

    def __init__(
        self, model: Any, bundle: Bundle, records: Sequence[Record], options: TuningOptions | None = None
    ) -> None:
        """Pictures are looked at once, here. Raises what decoding does, ``Unsupported`` for a bundle that leaves visual
        tokens out, ``Invalid`` without records."""
        if not records:
            raise Invalid("There are no records to train on; name at least one picture with its answer.")
        self._model = model.eval().requires_grad_(False)
        self._options = options or TuningOptions()
        self._format, self._geometry = PromptFormat.from_bundle(bundle), geometry_of(bundle.model)
        if self._geometry is None or bundle.model.get("select") is not None:
            raise Unsupported("A visual prompt is trained on a bundle that takes pictures and keeps all their tokens.")
        self._vision = ort.InferenceSession(bundle.read(bundle.model["graphs"]["vision"]))
        self._lessons = [self._lesson(record) for record in records]
        self._done = 0

    @property
    def examples(self) -> int:
        """Records of this site."""
        return len(self._lessons)

    def __call__(self, prompt: Floats) -> Floats:
        """The prompt float32 ``[ROWS, E]`` after the local rounds of one update."""
        rows = torch.from_numpy(prompt.copy()).requires_grad_()
        optimiser = torch.optim.Adam([rows], lr=self._options.rate)
        for _ in range(self._options.steps):
            optimiser.zero_grad()
            self._loss(rows, self._next_batch()).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        trained: Floats = rows.detach().numpy()
        return trained

    def loss(self, prompt: Floats) -> float:
        """Cross-entropy per token of the answers of all records."""
        with torch.no_grad():
            return float(self._loss(torch.from_numpy(prompt), self._lessons))

    def _next_batch(self) -> list[_Lesson]:
        count = min(self._options.batch, len(self._lessons))
        chosen = [self._lessons[(self._done + n) % len(self._lessons)] for n in range(count)]
        self._done += count
        return chosen

    def _loss(self, rows: Tensor, lessons: Sequence[_Lesson]) -> Tensor:
        # Padded on the right: attention is causal, so no token that counts sees the filling.
        longest = max(len(lesson.targets) for lesson in lessons)
        width, axes = lessons[0].embeds.shape[1], len(lessons[0].positions)
        embeds = torch.zeros(len(lessons), longest, width)
        positions = torch.zeros(axes, len(lessons), longest, dtype=torch.int64)
        targets = torch.full((len(lessons), longest), NO_TARGET)
        for number, lesson in enumerate(lessons):
            size = len(lesson.targets)
            embeds[number, :size] = lesson.embeds
            positions[:, number, :size] = lesson.positions
            targets[number, :size] = lesson.targets
        places = torch.tensor([lesson.at for lesson in lessons])[:, None] + torch.arange(len(rows))
        embeds = embeds.index_put((torch.arange(len(lessons))[:, None], places), rows.expand(len(lessons), -1, -1))
        own = positions if axes > 1 else positions[0]
        told = self._model.model.language_model(inputs_embeds=embeds, position_ids=own, use_cache=False)[0]
        wanted = targets != NO_TARGET
        return torch.nn.functional.cross_entropy(self._model.lm_head(told[wanted]), targets[wanted])

    def _lesson(self, record: Record) -> _Lesson:
        assert self._geometry is not None
        picture = decode(record.picture, Limits())
        views = self._geometry.fit([picture.original])
        tokens = self._format.show(self._format.draft([Turn("user", record.question, (record.picture,))]), views)
        positions, following = self._geometry.positions(tokens.ids, views, image_token_id=self._format.image_token_id)
        ids, positions, visual, at = make_room(tokens.ids, positions, tokens.visual, ROWS, self._format.pad_id)
        answer = [*self._format.tokenizer.encode(record.answer, add_special_tokens=False).ids, self._format.eos_ids[0]]
        told = following + ROWS + np.arange(len(answer) - 1)
        whole = torch.from_numpy(np.concatenate([ids, answer[:-1]]).astype(np.int64))
        targets = torch.full((len(whole),), NO_TARGET)
        targets[len(ids) - 1 :] = torch.tensor(answer)
        (features,) = self._vision.run(["features"], self._geometry.pack([picture], views).feeds())
        with torch.no_grad():
            embeds = self._model.get_input_embeddings()(whole).float()
        embeds[torch.from_numpy(visual)] = torch.from_numpy(features)
        places = np.concatenate([positions, np.broadcast_to(told, (len(positions), len(told)))], axis=1)
        return _Lesson(embeds, torch.from_numpy(places), targets, at)
