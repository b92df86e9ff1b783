"""Visual prompts as an input of the engine: equal to torch with the same rows, apart from one another, hot-loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveola.artifact import Bundle
from foveola.artifact.prompt import ROWS, SEAL_FILE, VALUES_FILE, write_prompt
from foveola.engine.engine import Engine
from foveola.engine.features import Selected, place
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.engine.prefixes import names_of
from foveola.engine.prepare import Preparation
from foveola.engine.prompts import PromptShelf, VisualPrompt, laid_in, taken_out
from foveola.exchange import Damaged, Invalid, PromptUse, Request, Sampling, Turn, Unavailable
from foveola.intake.prompt_rows import make_room
from tests.engine.test_model import generated, picture, reference

__all__ = ["reference"]

WIDTH = 64
torch_only = pytest.mark.torch


def rows(seed: int, width: int = WIDTH, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal((ROWS, width))).astype(np.float32)


def asked(prompt: str = "", *, images: int = 1, text: str = "Which defect is this?", tokens: int = 12) -> Request:
    shown = tuple(picture(112, 112, seed) for seed in range(images))
    return Request("r", (Turn("user", text, shown),), Sampling(max_tokens=tokens), visual_prompt=prompt)


# -- the shelf ------------------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path: Path) -> PromptShelf:
    return PromptShelf(tmp_path, width=WIDTH, base="b" * 64)


def test_a_prompt_is_found_by_its_name_and_replaced_while_others_use_it(shelf: PromptShelf, tmp_path: Path) -> None:
    first = write_prompt(tmp_path / "plant-7", rows(1), name="p", base="b" * 64)
    held = shelf.get("plant-7")
    assert np.array_equal(held.rows, rows(1))
    assert held.use == PromptUse("plant-7", first.model_hash, ROWS)
    assert shelf.get("plant-7") is held  # not read again
    second = write_prompt(tmp_path / "plant-7", rows(2), name="p", replace=True)
    assert shelf.get("plant-7").use.hash == second.model_hash != first.model_hash
    assert np.array_equal(held.rows, rows(1))
    assert shelf.names() == ["plant-7"]
    shutil.rmtree(tmp_path / "plant-7")
    with pytest.raises(Invalid, match="no visual prompt of that name"):
        shelf.get("plant-7")


@pytest.mark.parametrize("name", ["nobody", "../x", ".", "..", "", ".hidden", "a/b", "x" * 65, "\0"])
def test_no_name_leaves_the_folder(shelf: PromptShelf, name: str) -> None:
    with pytest.raises(Invalid, match="no visual prompt of that name here; leave the field out") as caught:
        shelf.get(name)
    assert caught.value.field == "visual_prompt"


def test_a_damaged_replacement_does_not_take_the_place_of_what_is_there(shelf: PromptShelf, tmp_path: Path) -> None:
    write_prompt(tmp_path / "p", rows(1), name="p")
    good = shelf.get("p")
    write_prompt(tmp_path / "p", rows(2), name="p", replace=True)
    (tmp_path / "p" / VALUES_FILE).write_bytes(b"\0" * 4)
    assert shelf.get("p") is good
    assert shelf.get("p") is good
    last = write_prompt(tmp_path / "p", rows(3), name="p", replace=True)
    assert shelf.get("p").use.hash == last.model_hash


@pytest.mark.parametrize(
    ("width", "base", "message"),
    [
        (32, None, "Its rows have 32 numbers, and this model reads 64."),
        (WIDTH, "c" * 64, "It was trained for the bundle cccccccccccc, and bbbbbbbbbbbb is served."),
    ],
)
def test_a_prompt_for_another_model_is_refused(
    shelf: PromptShelf, tmp_path: Path, width: int, base: str | None, message: str
) -> None:
    write_prompt(tmp_path / "p", rows(1, width), name="p", base=base)
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            shelf.get("p")
        assert message in caught.value.message
        assert str(tmp_path) not in caught.value.message


def test_a_prompt_that_is_broken_from_the_start_is_told_as_the_servers_fault(
    shelf: PromptShelf, tmp_path: Path
) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / SEAL_FILE).write_text("no seal")
    with pytest.raises(Unavailable, match="The visual prompt p cannot be used here"):
        shelf.get("p")


def test_a_shelf_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="nothing is no directory; name one that holds prompts"):
        PromptShelf(tmp_path / "nothing", width=WIDTH, base="")


# -- where its rows stand -------------------------------------------------------------------------------------------


def test_rows_stand_before_the_first_picture_and_move_what_follows() -> None:
    ids = np.array([5, 9, 9, 9, 9, 6])
    positions = np.array([[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]])
    room = make_room(ids, positions, np.arange(1, 5), 3, filler=0)
    assert room.ids.tolist() == [5, 0, 0, 0, 9, 9, 9, 9, 6]
    assert room.visual.tolist() == [4, 5, 6, 7]
    assert room.positions.tolist() == [
        [0, 1, 2, 3, 4, 4, 4, 4, 6],
        [0, 1, 2, 3, 4, 4, 5, 5, 6],
        [0, 1, 2, 3, 4, 5, 4, 5, 6],
    ]


def test_rows_stay_in_place_where_the_first_tokens_of_the_picture_are_left_out() -> None:
    room = make_room(np.array([5, 9, 9, 9, 6]), np.arange(5)[None], np.arange(1, 4), 2, filler=0)
    seen = np.arange(4, dtype=np.float32).reshape(2, 2)
    selected = Selected(seen, np.array([1, 2]), np.array([2, 1], np.float32))
    prompt = VisualPrompt(np.full((2, 2), 7, np.float32), PromptUse("p", "h", 2), at=1)
    placed = place(room.ids, room.positions, room.visual, selected)
    whole = laid_in(placed, prompt)
    assert whole.ids.tolist() == [5, 0, 0, 9, 9, 6]
    assert whole.rows.tolist() == [1, 2, 3, 4]
    assert whole.features is not None
    assert whole.features.tolist() == [[7, 7], [7, 7], [0, 1], [2, 3]]
    assert whole.bias is not None and whole.bias[1:3].tolist() == [0, 0] and whole.bias[3] > 0
    back = taken_out(whole, prompt)
    assert back.rows.tolist() == placed.rows.tolist()
    assert np.array_equal(back.features, seen)


def test_tokens_under_another_prompt_have_other_names_and_those_before_it_the_same() -> None:
    room = make_room(np.array([5, 9, 9, 6]), np.arange(4)[None], np.arange(1, 3), 2, filler=0)
    placed = place(room.ids, room.positions, room.visual, Selected(np.ones((2, 2), np.float32), np.arange(2)))
    one, two = (
        names_of(laid_in(placed, VisualPrompt(np.full((2, 2), value, np.float32), PromptUse("p", "h", 2), at=1)))
        for value in (1.0, 2.0)
    )
    assert (one[:, 0] == two[:, 0]).all()
    assert (one[1, 1:3] != two[1, 1:3]).all()


# -- the engine -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prompts(random_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompts")
    for seed in range(3):
        write_prompt(folder / f"p{seed}", rows(seed), name="p", base=Bundle.open(random_bundle).model_hash)
    return folder


@pytest.fixture(scope="module")
def engine(random_bundle: Path, prompts: Path) -> Iterator[Engine]:
    engine = Engine.open(Bundle.open(random_bundle), EngineOptions(threads=1, slots=3), prompts_dir=prompts)
    yield engine
    engine.close(5)


def prompted(reference: Any, request: Request, values: np.ndarray) -> str:
    """Torch's greedy answer with ``values`` between the beginning of the picture and its tokens, without a cache."""
    import io

    import torch
    from PIL import Image

    model, tokenizer, processor = reference
    (turn,) = request.turns
    content = [*({"type": "image"} for _ in turn.images), {"type": "text", "text": turn.text}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in turn.images]
    inputs = dict(processor(images=pictures, return_tensors="pt"))
    for grid in inputs["image_grid_thw"]:
        text = text.replace("<|image_pad|>", "<|mark|>" * (int(grid.prod()) // 4), 1)
    ids = tokenizer(text.replace("<|mark|>", "<|image_pad|>"), return_tensors="pt", add_special_tokens=False).input_ids
    kinds = (ids == model.config.image_token_id).long()
    at = int(kinds[0].argmax())
    with torch.no_grad():
        positions, _ = model.model.get_rope_index(
            ids, mm_token_type_ids=kinds, image_grid_thw=inputs["image_grid_thw"], attention_mask=torch.ones_like(ids)
        )
        embeds = model.get_input_embeddings()(ids)
        embeds[kinds.bool()] = model.model.visual(
            inputs["pixel_values"], grid_thw=inputs["image_grid_thw"]
        ).pooler_output
        own = positions[:, :, at : at + 1] + torch.arange(ROWS)
        positions = torch.cat([positions[:, :, :at], own, positions[:, :, at:] + ROWS], dim=2)
        embeds = torch.cat([embeds[:, :at], torch.from_numpy(values)[None], embeds[:, at:]], dim=1)
        said: list[int] = []
        ends = model.generation_config.eos_token_id
        for _ in range(request.sampling.max_tokens):
            hidden = model.model.language_model(inputs_embeds=embeds, position_ids=positions, use_cache=False)[0]
            token = int(model.lm_head(hidden[:, -1]).argmax())
            if token in (ends if isinstance(ends, list) else [ends]):
                break
            said.append(token)
            embeds = torch.cat([embeds, model.get_input_embeddings()(torch.tensor([[token]]))], dim=1)
            positions = torch.cat([positions, positions.amax(dim=(0, 2), keepdim=True).expand(3, 1, 1) + 1], dim=2)
    return str(tokenizer.decode(said, skip_special_tokens=True))


@torch_only
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_greedy_answers_are_those_of_torch_with_the_same_rows(
    engine: Engine, reference: Any, seed: int, images: int
) -> None:
    request = asked(f"p{seed}", images=images)
    text, usage = answer_once(engine, request)
    assert text == prompted(reference, request, rows(seed))
    assert usage.visual_prompt is not None
    assert (usage.visual_prompt.name, usage.visual_prompt.tokens) == (f"p{seed}", ROWS)
    plain, without = answer_once(engine, asked(images=images))
    assert plain == generated(reference, asked(images=images))[0] != text
    assert without.visual_prompt is None
    assert usage.prompt_tokens == without.prompt_tokens + ROWS
    assert usage.visual_tokens == without.visual_tokens


@torch_only
def test_no_answer_knows_the_prompt_of_another(engine: Engine, random_bundle: Path, prompts: Path) -> None:
    """Three prompts and none, asked for together and again and again, so that every cache is tried: each answer is
    the one of an engine that has never heard of the others."""
    wanted = {}
    for name in ("", "p0", "p1", "p2"):
        alone = Engine.open(Bundle.open(random_bundle), EngineOptions(threads=1), prompts_dir=prompts)
        wanted[name] = answer_once(alone, asked(name))[0]
        alone.close(5)
    assert len(set(wanted.values())) == 4
    order = [list(wanted)[number % 4] for number in range(16)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: answer_once(engine, asked(name)), order))
    assert [text for text, _ in found] == [wanted[name] for name in order]
    again = answer_once(engine, asked("p1"))
    assert again[0] == wanted["p1"]
    assert again[1].cached_tokens == again[1].prompt_tokens - 1  # under its own prompt it is found


@torch_only
def test_in_chunks_a_prompt_answers_as_in_one(random_bundle: Path, prompts: Path, engine: Engine) -> None:
    options = EngineOptions(threads=1, prefill_chunk=7, prefill_alone=7, prefix_cache_mib=0)
    chunked = Engine.open(Bundle.open(random_bundle), options, prompts_dir=prompts)
    text, usage = answer_once(chunked, asked("p2", images=2))
    chunked.close(5)
    wanted, whole = answer_once(engine, asked("p2", images=2))
    assert text == wanted
    for one, other in zip(usage.evidence, whole.evidence, strict=True):
        assert one.weights == pytest.approx(other.weights, abs=1e-5)
        assert sum(one.weights) == pytest.approx(one.mass, abs=1e-5)


@torch_only
def test_a_model_that_leaves_visual_tokens_out_takes_a_prompt_too(selecting_bundle: Path, tmp_path: Path) -> None:
    write_prompt(tmp_path / "p", rows(1), name="p")
    engine = Engine.open(Bundle.open(selecting_bundle), EngineOptions(threads=1), prompts_dir=tmp_path)
    turn = asked().turns
    few = [
        answer_once(engine, Request("r", turn, Sampling(max_tokens=8), visual_tokens=4, visual_prompt=name))
        for name in ("", "p")
    ]
    engine.close(5)
    assert few[1][1].prompt_tokens == few[0][1].prompt_tokens + ROWS
    assert few[1][1].visual_tokens == 4
    assert few[1][0] != few[0][0]


@torch_only
def test_what_is_counted_beforehand_is_what_it_costs(engine: Engine, random_bundle: Path, prompts: Path) -> None:
    preparation = Preparation.open(Bundle.open(random_bundle), prompts_dir=prompts)
    counts = preparation.count(asked("p0"))
    _, usage = answer_once(engine, asked("p0"))
    assert (counts.prompt_tokens, counts.visual_tokens) == (usage.prompt_tokens, usage.visual_tokens)
    full = asked("p0", tokens=1024 - counts.prompt_tokens + 8)
    assert preparation.count(full).prompt_tokens < counts.prompt_tokens  # the picture made room for the rows


@torch_only
def test_what_a_prompt_cannot_do_is_told(engine: Engine, random_bundle: Path) -> None:
    with pytest.raises(Invalid, match="visual_prompt is for questions about a picture") as caught:
        answer_once(engine, asked("p0", images=0))
    assert caught.value.field == "visual_prompt"
    with pytest.raises(Invalid, match="no visual prompt of that name"):
        answer_once(engine, asked("p9"))
    bare = Engine.open(Bundle.open(random_bundle), EngineOptions(threads=1))
    with pytest.raises(Invalid, match="this engine has none; leave the field out, or set `prompts_dir`"):
        answer_once(bare, asked("p0"))
    bare.close(5)
    assert answer_once(engine, asked("p0"))[0]
