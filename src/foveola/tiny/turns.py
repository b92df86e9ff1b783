"""From a scene to question–answer turns, and from turns to the tensors of one training row (star packing).

Every turn of a row sees the picture and itself only, and its positions start anew behind the picture, so that one
row trains several conversations at the cost of one picture.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from foveola.tiny import words
from foveola.tiny.scenes import Box, Scene
from foveola.tiny.tokens import token_id
from foveola.tiny.words import Lang

Turns = list[tuple[str, str]]


class Asked(NamedTuple):
    """A turn; where its answer is seen: the boxes that each token of the answer looks at (none: nobody knows), or one
    entry for all of them; and what each token, or all of them, tells of a place: its box, NaN for edges that it does
    not tell."""

    question: str
    answer: str
    seen: tuple[tuple[Box, ...], ...] = ()
    told: tuple[Box, ...] = ()


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


def asked_about(scene: Scene, rng: random.Random, count: int, *, thin: float = 0.0) -> list[Asked]:
    """``count`` turns of fitting tasks in both languages; a label's code always comes first. A share ``thin`` of the
    questions lack words (``words.thinned``)."""
    if scene.code:
        tasks = _label_tasks(scene)
        first = ["code"]
    elif scene.reading:
        return [Asked(*one_turn("reading", scene, lang, rng)) for lang in ("en", "zh")]
    else:
        tasks = _defect_tasks(scene)
        first = ["defect"] + (["where", "box"] if scene.located and len(scene.defects) == 1 else [])
    names, weights = zip(*tasks, strict=True)
    chosen = first + rng.choices(names, weights, k=max(0, count - len(first)))
    turns = []
    for task in chosen:
        question, answer = one_turn(task, scene, rng.choice(("en", "zh")), rng)
        if thin and rng.random() < thin:
            question = words.thinned(question, rng)
        if task == "box" and scene.defects:
            turns.append(Asked(question, answer, *_edge_by_edge(answer, scene.defects[0].box)))
            continue
        told = (scene.defects[0].box,) if task == "where" and len(scene.defects) == 1 else ()
        turns.append(Asked(question, answer, _seen(task, scene, answer), told))
    return turns


def turns_for(scene: Scene, rng: random.Random, count: int) -> Turns:
    """``asked_about`` without where the answers are seen."""
    return [(turn.question, turn.answer) for turn in asked_about(scene, rng, count)]


_ABOUT_DEFECTS = ("defect", "where", "verdict", "clean", "describe")
_EDGE = 0.02


def _edge_by_edge(answer: str, box: Box) -> tuple[tuple[tuple[Box, ...], ...], tuple[Box, ...]]:
    """What each character of the answer ``(x1,y1),(x2,y2)`` looks at and tells: digits look along their edge of the
    box, and tell where it lies."""
    edges = [_along(box, edge) for edge in range(4)]
    seen, told, edge = [], [], 0
    for character in answer:
        of_edge = character.isdigit()
        seen.append(edges[edge] if of_edge else ())
        told.append(tuple(v if of_edge and i == edge else float("nan") for i, v in enumerate(box)))
        edge += character == ","
    return tuple(seen), tuple(told)  # type: ignore[arg-type]


def _along(box: Box, edge: int) -> tuple[Box, ...]:
    """An edge of ``box`` (0 left, 1 top, 2 right, 3 bottom) in five thin pieces, so that every token shows a fifth of
    one; half of their thickness lies on either side."""
    across, along = edge % 2, 1 - edge % 2
    start, step = box[along], (box[along + 2] - box[along]) / 5
    pieces = []
    for number in range(5):
        piece = [0.0] * 4
        piece[across], piece[across + 2] = box[edge] - _EDGE / 2, box[edge] + _EDGE / 2
        piece[along], piece[along + 2] = start + number * step, start + (number + 1) * step
        pieces.append((piece[0], piece[1], piece[2], piece[3]))
    return tuple(pieces)


def _seen(task: str, scene: Scene, answer: str) -> tuple[tuple[Box, ...], ...]:
    if task == "code":
        return tuple((box,) for _, _, box in scene.characters)
    if task == "char":
        return (tuple(box for character, _, box in scene.characters if character == answer),)
    if task in _ABOUT_DEFECTS and scene.located and scene.defects:
        return (tuple(d.box for d in scene.defects),)
    return ()


def halves_in(boxes: tuple[Box, ...], rows: int, columns: int) -> NDArray[np.bool_]:
    """Which left and right halves of ``rows`` x ``columns`` visual tokens show a fifth of a box or are covered by it to
    a fifth [n, 2]."""
    y, x = np.mgrid[0:rows, 0 : 2 * columns]
    shown = np.zeros((rows, 2 * columns), bool)
    for x1, y1, x2, y2 in boxes:
        wide = np.minimum((x + 1) / (2 * columns), x2) - np.maximum(x / (2 * columns), x1)
        high = np.minimum((y + 1) / rows, y2) - np.maximum(y / rows, y1)
        least = 0.2 * min((x2 - x1) * (y2 - y1), 1 / (2 * rows * columns))
        shown |= wide.clip(0) * high.clip(0) > least
    return shown.reshape(-1, 2)


@dataclass(frozen=True, slots=True)
class Row:
    """One packed training row: ids, segments (0 picture, 1.. turns, -1 padding) [L], positions [3, L], and for every
    answer token the slot that predicts it, its id [K], the halves of visual tokens that show it [K, n, 2] (none:
    unknown), and the edges of a box that it tells [K, 4] (NaN: not)."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    positions: NDArray[np.int64]
    slots: NDArray[np.int64]
    targets: NDArray[np.int64]
    seen: NDArray[np.bool_]
    told: NDArray[np.float32]


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

    def pack(self, grid: tuple[int, int], turns: Sequence[tuple[str, str] | Asked]) -> Row:
        """One row of ``turns`` behind a picture of ``grid`` (rows, columns) patches."""
        ids, positions, after = self.prefix(grid)
        segments = [0] * len(ids)
        chunks, slots, targets = [positions], [], []
        seen: list[NDArray[np.bool_]] = []
        told: list[NDArray[np.float32]] = [np.zeros((0, 4), np.float32)]
        for number, turn in enumerate((Asked(*turn) for turn in turns), 1):
            asked, said = self.question(turn.question), [*self.encode(turn.answer), self._end]
            line = (asked + said)[:-1]
            slots += [len(ids) + len(asked) - 1 + i for i in range(len(said))]
            targets += said
            seen += _shown(turn, len(said), grid[0] // 2, grid[1] // 2)
            told.append(_told(turn, len(said)))
            ids += line
            segments += [number] * len(line)
            chunks.append(np.tile(np.arange(len(line)) + after, (3, 1)))
        ids_, segments_, slots_, targets_ = (np.asarray(x, np.int64) for x in (ids, segments, slots, targets))
        shown = np.stack(seen) if seen else np.zeros((0, grid[0] * grid[1] // 4, 2), bool)
        return Row(ids_, segments_, np.concatenate(chunks, 1), slots_, targets_, shown, np.concatenate(told))


def _told(turn: Asked, count: int) -> NDArray[np.float32]:
    """For each of ``count`` answer tokens, of which the last is the end, what it tells of a place [count, 4]."""
    found = np.full((count, 4), np.nan, np.float32)
    if len(turn.told) == 1:
        found[:] = turn.told[0]
    elif len(turn.told) == count - 1:
        found[:-1] = turn.told
    return found


def _shown(turn: Asked, count: int, rows: int, columns: int) -> list[NDArray[np.bool_]]:
    """For each of ``count`` answer tokens, of which the last is the end, the halves of visual tokens that show it."""
    nothing = np.zeros((rows * columns, 2), bool)
    if len(turn.seen) == count - 1:
        return [*(halves_in(boxes, rows, columns) for boxes in turn.seen), nothing]
    if len(turn.seen) == 1:
        return [halves_in(turn.seen[0], rows, columns)] * (count - 1) + [nothing]
    return [nothing] * count
