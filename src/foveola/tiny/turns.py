"""From a scene to question–answer turns, and from turns to the tensors of one training row (star packing).

Every turn of a row sees the picture and itself only, and its positions start anew behind the picture, so that one
row trains several conversations at the cost of one picture.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from foveola.tiny import words
from foveola.tiny.scenes import Scene
from foveola.tiny.tokens import token_id
from foveola.tiny.words import Lang

Turns = list[tuple[str, str]]


def _defect_tasks(scene: Scene) -> list[tuple[str, float]]:
    """Which tasks fit the scene, with their weights."""
    tasks = [("defect", 1.3), ("verdict", 0.6), ("has", 0.7), ("clean", 0.5), ("material", 0.25), ("describe", 0.35)]
    if scene.located:
        tasks += [("where", 1.3), ("count", 0.7)]
        if len(scene.defects) <= 1:
            tasks.append(("box", 1.5 if scene.defects else 0.1))
    return tasks


def _label_tasks(scene: Scene) -> list[tuple[str, float]]:
    tasks = [("code", 1.0), ("char", 0.9), ("length", 0.3), ("material", 0.1)]
    return tasks + ([("expiry", 1.2)] if scene.expiry else [])


def _answer(task: str, scene: Scene, lang: Lang, rng: random.Random) -> tuple[str, dict[str, str]]:
    """The right answer, and what fills the question."""
    names, cells = list(scene.names), [d.cell for d in scene.defects]
    if task == "defect":
        return words.say_defects(names, lang), {}
    if task == "where":
        return (words.say_cells(cells, lang) if cells else words.say_defects([], lang)), {}
    if task == "box":
        return (words.say_box(scene.defects[0].box) if scene.defects else words.say_defects([], lang)), {}
    if task == "count":
        return str(len(scene.defects)), {}
    if task == "verdict":
        return words.say_verdict(not names, lang), {}
    if task == "clean":
        return words.say_yes(bool(names), lang), {}
    if task == "material":
        return words.say_material(scene.material, lang), {}
    if task == "describe":
        return words.describe(scene.material, names, cells if scene.located else [], lang), {}
    if task == "has":
        others = [n for n in words.DEFECTS_ZH if n not in names and n != words.CLEAN]
        asked = rng.choice(names) if names and rng.random() < 0.5 else rng.choice(others)
        shown = asked if lang == "en" else words.DEFECTS_ZH[asked]
        if lang == "en" and not asked.endswith("s") and rng.random() < 0.6:
            shown = ("an " if asked[0] in "aeiou" else "a ") + asked
        return words.say_yes(asked in names, lang), {"x": shown}
    if task == "code":
        return scene.code, {}
    if task == "char":
        n = rng.randrange(len(scene.code))
        return scene.code[n], {"n": str(n + 1)}
    if task == "length":
        return str(len(scene.code)), {}
    if task == "expiry":
        return scene.expiry, {}
    return scene.reading, {}


_NAMES_THE_CODE = ("lot", "batch", "serial", "code", "批", "码", "序列")


def one_turn(task: str, scene: Scene, lang: Lang, rng: random.Random, split: words.Split = "train") -> tuple[str, str]:
    """A question about ``scene`` and its answer."""
    answer, given = _answer(task, scene, lang, rng)
    question = words.question(task, lang, rng, split=split, **given)
    while task == "code" and scene.expiry and not any(w in question.lower() for w in _NAMES_THE_CODE):
        question = words.question(task, lang, rng, split=split, **given)
    return question, answer


def turns_for(scene: Scene, rng: random.Random, count: int) -> Turns:
    """``count`` turns of fitting tasks in both languages; a label's code always comes first."""
    if scene.code:
        tasks = _label_tasks(scene)
        first = ["code"]
    elif scene.reading:
        return [one_turn("reading", scene, lang, rng) for lang in ("en", "zh")]
    else:
        tasks = _defect_tasks(scene)
        first = ["defect"] + (["where", "box"] if scene.located and len(scene.defects) == 1 else [])
    names, weights = zip(*tasks, strict=True)
    chosen = first + rng.choices(names, weights, k=max(0, count - len(first)))
    return [one_turn(t, scene, rng.choice(("en", "zh")), rng) for t in chosen]


@dataclass(frozen=True, slots=True)
class Row:
    """One packed training row: ids, segments (0 picture, 1.. turns, -1 padding) [L], positions [3, L], and for every
    answer token the slot that predicts it and its id [K]."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    targets: NDArray[np.int64]


class Packer:
    """Packs turns behind a picture of a given grid in the chat format of the tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._before = self.encode("<|im_start|>user\n<|vision_start|>")
        self._after = self.encode("<|vision_end|>")
        self._middle = self.encode("<|im_end|>\n<|im_start|>assistant\n")
        self._image, self._end, self.pad = (
            token_id(tokenizer, t) for t in ("<|image_pad|>", "<|im_end|>", "<|endoftext|>")
        )
        self.picture_at = len(self._before)

    def encode(self, text: str) -> list[int]:
        """Token ids without additions."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return found

    def prefix(self, grid: tuple[int, int]) -> tuple[list[int], NDArray[np.int64], int]:
        """Ids up to the end of the picture, their M-RoPE positions [3, n], and the position after."""
        rows, columns = grid[0] // 2, grid[1] // 2
        start = len(self._before)
        ids = self._before + [self._image] * (rows * columns) + self._after
        row, column = np.divmod(np.arange(rows * columns), columns)
        picture = np.stack([np.zeros_like(row), row, column]) + start
        after = start + max(rows, columns)
        tail = np.tile(np.arange(len(self._after)) + after, (3, 1))
        head = np.tile(np.arange(start), (3, 1))
        return ids, np.concatenate([head, picture, tail], 1), after + len(self._after)

    def question(self, text: str) -> list[int]:
        """The ids of a question up to where the answer begins."""
        return self.encode(text) + self._middle

    def pack(self, grid: tuple[int, int], turns: Turns) -> Row:
        """One row of ``turns`` behind a picture of ``grid`` (rows, columns) patches."""
        ids, positions, after = self.prefix(grid)
        segments = [0] * len(ids)
        chunks, slots, targets = [positions], [], []
        for number, (question, answer) in enumerate(turns, 1):
            asked, said = self.question(question), [*self.encode(answer), self._end]
            turn = (asked + said)[:-1]
            slots += [len(ids) + len(asked) - 1 + i for i in range(len(said))]
            targets += said
            ids += turn
            segments += [number] * len(turn)
            chunks.append(np.tile(np.arange(len(turn)) + after, (3, 1)))
        ids_, segments_, slots_, targets_ = (np.asarray(x, np.int64) for x in (ids, segments, slots, targets))
        return Row(ids_, segments_, np.concatenate(chunks, 1), slots_, targets_)
