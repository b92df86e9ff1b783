"""transformers on the same weights in fp32, used as its manual says: the rival that everybody has.

Greedy ``generate`` with SDPA attention and its own PIL image processor. Several requests at once become one padded
batch, which is how it is quickest; all of a batch wait for its slowest member.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoTokenizer, Qwen2VLImageProcessorPil
from transformers.generation.streamers import BaseStreamer

from foveola.bench.contender import CannotTakePart, Setup
from foveola.bench.sample import Block, Item, Sample

SERVED = ("qwen2_vl",)  # families whose image processor and prompt are known here


class Transformers:
    """A checkpoint in transformers, fp32 on the CPU."""

    def __init__(self, setup: Setup) -> None:
        """Load the checkpoint ``setup.source``. Raises ``CannotTakePart`` for a family that is not known here."""
        torch.set_num_threads(setup.threads)
        self._max_tokens = setup.max_tokens
        # The weights are cast to fp32 whatever they are stored in.
        loader: Any = AutoModelForImageTextToText
        self.model = loader.from_pretrained(setup.source, dtype=torch.float32, local_files_only=True).eval()
        if self.model.config.model_type not in SERVED:
            raise CannotTakePart(f"the family {self.model.config.model_type} is measured without transformers so far")
        self._tokenizer: Any = AutoTokenizer.from_pretrained(setup.source, local_files_only=True, padding_side="left")
        self._images: Any = Qwen2VLImageProcessorPil.from_pretrained(setup.source, local_files_only=True)
        self._image_id = int(self.model.config.image_token_id)
        self._image_token = self._tokenizer.convert_ids_to_tokens(self._image_id)
        self._ends = _end_ids(self.model.generation_config.eos_token_id)
        self._vision = _Stopwatch(self.model.model.visual)

    def run(self, items: Sequence[Item], concurrency: int) -> Block:
        """See ``Contender.run``: batches of ``concurrency``, one after the other."""
        started = time.perf_counter()
        samples: list[Sample] = []
        for at in range(0, len(items), concurrency):
            samples += self._batch(items[at : at + concurrency])
        return Block(tuple(samples), time.perf_counter() - started)

    def close(self) -> None:
        """Nothing is held that the end of the process does not free."""

    def _batch(self, items: Sequence[Item]) -> list[Sample]:
        started = time.perf_counter()
        pictures = [Image.open(io.BytesIO(item.image)).convert("RGB") for item in items]
        decoded = time.perf_counter()
        inputs = self.inputs(pictures, [item.text for item in items])
        prepared = time.perf_counter()
        clock = _TokenClock()
        with torch.inference_mode():
            ids = self.model.generate(**inputs, do_sample=False, max_new_tokens=self._max_tokens, streamer=clock)
        answers = ids[:, inputs["input_ids"].shape[1] :]
        texts = self._tokenizer.batch_decode(answers, skip_special_tokens=True)
        ended = time.perf_counter()
        before = {
            "decode_image": decoded - started,
            "preprocess": prepared - decoded,
            "vision": self._vision.seconds,
            "prefill": clock.tokens_at[0] - prepared - self._vision.seconds,
        }
        samples = []
        for text, answer in zip(texts, answers, strict=True):
            tokens = _length(answer.tolist(), self._ends)
            decode_s = clock.tokens_at[tokens - 1] - clock.tokens_at[0]
            samples.append(
                Sample(text, ended - started, clock.tokens_at[0] - started, tokens, {**before, "decode": decode_s})
            )
        return samples

    def inputs(self, pictures: list[Image.Image], texts: list[str]) -> dict[str, Any]:
        """What ``Qwen2VLProcessor`` makes of a picture and a question each (it cannot be built where torchvision is
        missing, for its video half)."""
        seen = self._images(images=pictures, return_tensors="pt")
        merged = self._images.merge_size**2
        prompts = []
        for text, grid in zip(texts, seen["image_grid_thw"], strict=True):
            turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}
            prompt = self._tokenizer.apply_chat_template([turn], tokenize=False, add_generation_prompt=True)
            prompts.append(prompt.replace(self._image_token, self._image_token * int(grid.prod() // merged), 1))
        told = self._tokenizer(prompts, padding=True, return_tensors="pt", add_special_tokens=False)
        return {
            "input_ids": told["input_ids"],
            "attention_mask": told["attention_mask"],
            "mm_token_type_ids": (told["input_ids"] == self._image_id).int(),
            "pixel_values": seen["pixel_values"],
            "image_grid_thw": seen["image_grid_thw"],
        }


class _TokenClock(BaseStreamer):
    """Notes when each step's tokens were there; the first call brings the prompt."""

    def __init__(self) -> None:
        self.tokens_at: list[float] = []
        self._prompt_seen = False

    def put(self, value: object) -> None:
        if self._prompt_seen:
            self.tokens_at.append(time.perf_counter())
        self._prompt_seen = True

    def end(self) -> None:
        """Nothing to do at the end of an answer."""


class _Stopwatch:
    """Seconds that the last call of a module took."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.seconds = 0.0
        self._began = 0.0
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end)

    def _begin(self, *_: object) -> None:
        self._began = time.perf_counter()

    def _end(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began


def _end_ids(given: int | list[int] | None) -> frozenset[int]:
    if given is None:
        return frozenset()
    return frozenset([given] if isinstance(given, int) else given)


def _length(tokens: list[int], ends: frozenset[int]) -> int:
    """Tokens of one answer of a batch, the one that ends it included; padding follows."""
    return next((place + 1 for place, token in enumerate(tokens) if token in ends), len(tokens))
