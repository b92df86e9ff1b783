"""Calibration samples on disk, and as a model takes them.

A file of samples is JSON Lines; each line is one of::

    {"text": "plain text, every token of which counts as an answer"}
    {"prompt": "Which defect is this?", "answer": "a scratch", "image": "pictures/17.png"}

``image`` (relative to the file) may be left out. Prompts go through the checkpoint's own chat template.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoImageProcessor, AutoTokenizer

from foveola.artifact import Checkpoint
from foveola.compress.example import Example, text_example
from foveola.exchange import Invalid, Refusal, Unsupported
from foveola.family import Family
from foveola.intake import decode
from foveola.weights.loading import no_progress_bars

_KEYS = ("text", "prompt", "answer", "image")
_PATCHED = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Geometries whose image processor gives ``image_grid_thw``."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the file, which stands ``where``: ``text`` alone, or ``prompt`` and ``answer``, perhaps ``image``."""

    text: str | None = None
    prompt: str | None = None
    answer: str | None = None
    image: Path | None = None
    where: str = "a sample"


def parse_samples(path: Path) -> list[Sample]:
    """The samples of the file ``path``. Raises ``Invalid`` naming the line that is wrong."""
    found = []
    for number, raw in enumerate(path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        where = f"line {number} of {path.name}"
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            raise Invalid(f"{where} is no UTF-8; save the file in that encoding.", field="samples") from None
        if line.strip():
            found.append(_sample(line, where, path.parent))
    if not found:
        raise Invalid(f"{path.name} holds no samples; write one JSON object a line.", field="samples")
    return found


def _sample(line: str, where: str, folder: Path) -> Sample:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise Invalid(f"{where} is no JSON object of texts; expected {', '.join(_KEYS)}.", field="samples")
    if unknown := sorted(set(entry) - set(_KEYS)):
        raise Invalid(f"{where} has {unknown[0]!r}; expected {', '.join(_KEYS)}.", field="samples")
    if ("text" in entry) == ("prompt" in entry) or ("prompt" in entry) != ("answer" in entry):
        raise Invalid(f"{where} has neither text alone nor prompt with answer; give one of them.", field="samples")
    for key, value in entry.items():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Invalid(
                f"{key} of {where} holds half a character (a lone surrogate); write it whole.", field="samples"
            ) from None
        if key != "prompt" and not value.strip():
            raise Invalid(f"{key} of {where} is empty; write what it says, or leave the line out.", field="samples")
    image = folder / entry["image"] if "image" in entry else None
    if image is not None and not image.is_file():
        raise Invalid(f"{where} names the picture {image.name}, which does not exist.", field="samples")
    return Sample(entry.get("text"), entry.get("prompt"), entry.get("answer"), image, where)


def read_examples(path: Path, checkpoint: Checkpoint, family: Family, *, longest: int = 512) -> list[Example]:
    """The samples of ``path`` as ``checkpoint`` takes them; texts are cut after ``longest`` tokens.

    Raises ``Invalid`` for a file that is wrong, ``Unsupported`` for pictures where the family's are not prepared here.
    """
    reader = _Reader(checkpoint, family, longest)
    return [reader.example(sample) for sample in parse_samples(path)]


def check_count(examples: Sequence[Example], held_out: int) -> None:
    """Raises ``Invalid`` where one in ``held_out`` is put aside and too few are left for it."""
    if len(examples) < 2 * held_out:
        raise Invalid(
            f"there are {len(examples)} samples, and one in {held_out} is held out; give at least {2 * held_out}, "
            "better 128.",
            field="samples",
        )


class _Reader:
    def __init__(self, checkpoint: Checkpoint, family: Family, longest: int) -> None:
        self._config, self._family, self._longest = checkpoint.config, family, longest
        self._path = checkpoint.path
        self._tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint.path, local_files_only=True)
        self._template = checkpoint.chat_template()
        self._processor: Any = None

    def example(self, sample: Sample) -> Example:
        if sample.text is not None:
            ids = self._encode(sample.text)[: self._longest]
            if len(ids) < 2:
                raise Invalid(
                    f"text of {sample.where} is one token, and there is nothing to predict; write more.",
                    field="samples",
                )
            return text_example(torch.tensor(ids))
        pictures = self._picture(sample.image, sample.where) if sample.image else {}
        asked = self._encode(self._prompt(str(sample.prompt), pictures))
        said = self._encode(str(sample.answer))
        return answered(asked, [*said, self._end()], pictures, int(self._config.get("image_token_id", -1)))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _end(self) -> int:
        end = self._tokenizer.eos_token_id
        if end is None:
            raise Invalid("the checkpoint's tokenizer has no end of text; set eos_token in tokenizer_config.json.")
        return int(end)

    def _prompt(self, question: str, pictures: Mapping[str, Tensor]) -> str:
        if self._template is None:
            return question
        content: Any = question
        if pictures:
            content = [{"type": "image"}, {"type": "text", "text": question}]
        shown: str = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": content}],
            tokenize=False,
            add_generation_prompt=True,
            chat_template=self._template,
        )
        if not pictures:
            return shown
        token = self._tokenizer.convert_ids_to_tokens(int(self._config["image_token_id"]))
        merge = int(self._config["vision_config"].get("spatial_merge_size", 2))
        count = int(pictures["image_grid_thw"].prod()) // merge**2
        return shown.replace(token, token * count, 1)

    def _picture(self, image: Path, where: str) -> dict[str, Tensor]:
        if self._family.geometry not in _PATCHED:
            raise Unsupported(
                f"calibration pictures are prepared for {', '.join(_PATCHED)}, and this checkpoint is of "
                f"{self._family.model_type}. Calibrate on text, or give examples of your own in Python."
            )
        if self._processor is None:
            with no_progress_bars():
                processors: Any = AutoImageProcessor
                self._processor = processors.from_pretrained(self._path, local_files_only=True)
        try:
            rgb = decode(image.read_bytes()).rgb
        except Refusal as refusal:
            raise Invalid(
                f"{where}: the picture {image.name} cannot be used. {refusal.message}", field="samples"
            ) from None
        made = self._processor(images=[rgb], return_tensors="pt")
        return {"pixel_values": made["pixel_values"].float(), "image_grid_thw": made["image_grid_thw"]}


def answered(asked: Sequence[int], said: Sequence[int], pictures: Mapping[str, Tensor], image_id: int) -> Example:
    """A prompt's tokens and its answer's, with the inputs of its pictures (none: an empty mapping)."""
    ids = torch.tensor([[*asked, *said]])
    at = torch.zeros_like(ids, dtype=torch.bool)
    at[0, len(asked) - 1 : -1] = True
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids), **pictures}
    is_vision = ids == image_id
    if pictures:
        inputs["mm_token_type_ids"] = is_vision.int()
    return Example(inputs, is_vision, at, torch.tensor(said))
