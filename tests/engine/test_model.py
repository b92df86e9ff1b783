"""The engine on real graphs of a random model: equal to transformers, in chunks, in batches, in flat memory."""

from __future__ import annotations

import io
import itertools
import os
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from PIL import Image

from foveola.artifact import Bundle, write_bundle
from foveola.engine.engine import Engine
from foveola.engine.features import Chunk, Selected
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.engine.prepare import Preparation
from foveola.engine.runner import OrtRunner, _DecodeBinding
from foveola.engine.slots import Move
from foveola.exchange import BadImage, Damaged, Invalid, OverBudget, Request, Sampling, Turn
from foveola.intake.geometry import Packed, patch_positions

pytestmark = pytest.mark.torch

ONE_THREAD = EngineOptions(threads=1)
SIZES = [(112, 112), (60, 150), (160, 90), (30, 30)]  # none so long that it is shown in tiles


def picture(width: int, height: int, seed: int = 0) -> bytes:
    """A picture with structure on several scales, as PNG."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 255, (4, 4, 3), np.uint8)).resize((width, height))
    noise = random.integers(0, 60, (height, width, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.asarray(small) // 2 + noise).save(stream, "PNG")
    return stream.getvalue()


def asked(text: str = "Which defect is this?", *, images: tuple[bytes, ...] = (), **sampling: Any) -> Request:
    return Request("r", (Turn("user", text, images),), Sampling(**({"max_tokens": 24} | sampling)))


@pytest.fixture(scope="module")
def bundle(random_bundle: Path) -> Bundle:
    return Bundle.open(random_bundle)


@pytest.fixture(scope="module")
def engine(bundle: Bundle) -> Iterator[Engine]:
    engine = Engine.open(bundle, ONE_THREAD)
    yield engine
    engine.close(5)


@pytest.fixture(scope="module")
def reference(random_bundle: Path) -> Any:
    from transformers import AutoTokenizer, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    folder = random_bundle.parent / "checkpoint"
    processor = Qwen2VLImageProcessorPil.from_pretrained(folder, min_pixels=56 * 56, max_pixels=112 * 112)
    return (
        Qwen2VLForConditionalGeneration.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
        processor,
    )


def generated(reference: Any, request: Request) -> tuple[str, int]:
    """Text and prompt length of transformers' own greedy generation for the same request."""
    import torch

    model, tokenizer, processor = reference
    (turn,) = request.turns
    content = [*({"type": "image"} for _ in turn.images), {"type": "text", "text": turn.text}]
    messages = [{"role": "user", "content": content if turn.images else turn.text}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    inputs: dict[str, Any] = {}
    if turn.images:
        pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data in turn.images]
        inputs = dict(processor(images=pictures, return_tensors="pt"))
        for grid in inputs["image_grid_thw"]:
            prompt = prompt.replace("<|image_pad|>", "<|mark|>" * (int(grid.prod()) // 4), 1)
        prompt = prompt.replace("<|mark|>", "<|image_pad|>")
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
    if turn.images:
        inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).long()
    with torch.no_grad():
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=request.sampling.max_tokens,
            do_sample=False,
            **inputs,
        )
    return tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True), ids.shape[1]


@pytest.mark.parametrize("sizes", [[size] for size in SIZES] + [SIZES[:2], []])
def test_greedy_answers_are_those_of_transformers(engine: Engine, reference: Any, sizes: list[tuple[int, int]]) -> None:
    images = tuple(picture(*size, seed) for seed, size in enumerate(sizes))
    request = asked("Which defect is this? 划痕", images=images)
    text, usage = answer_once(engine, request)
    wanted, prompt_tokens = generated(reference, request)
    assert text == wanted
    assert usage.prompt_tokens == prompt_tokens
    assert usage.visual_tokens == sum(use.tokens for use in usage.images)


def test_pieces_add_up_and_usage_matches_the_count(engine: Engine, bundle: Bundle) -> None:
    request = asked(images=(picture(112, 112), picture(50, 120)))
    pieces = list(engine.pieces(request))
    text, usage = answer_once(engine, request)
    assert "".join(piece.text for piece in pieces) == text
    assert sum(piece.tokens for piece in pieces) == usage.completion_tokens
    assert sum(piece.logprob for piece in pieces) < 0
    counts = Preparation.open(bundle).count(request)
    assert (counts.prompt_tokens, counts.visual_tokens) == (usage.prompt_tokens, usage.visual_tokens)
    assert counts.images == usage.images


def test_evidence_is_a_share_of_attention_per_picture(engine: Engine) -> None:
    _, usage = answer_once(engine, asked(images=(picture(112, 112), picture(50, 120))))
    assert [rows * columns for rows, columns in (evidence.grid for evidence in usage.evidence)] == [
        use.tokens for use in usage.images
    ]
    for evidence in usage.evidence:
        assert len(evidence.weights) == evidence.grid[0] * evidence.grid[1]
        assert min(evidence.weights) >= 0
        assert sum(evidence.weights) == pytest.approx(evidence.mass, abs=1e-5)
    assert 0 < sum(evidence.mass for evidence in usage.evidence) < 1


def test_different_pictures_give_different_answers(engine: Engine) -> None:
    texts = {answer_once(engine, asked(images=(picture(112, 112, seed),)))[0] for seed in range(4)}
    assert len(texts) > 1


def test_sampling_repeats_with_its_seed(engine: Engine) -> None:
    def draw(seed: int) -> str:
        return answer_once(engine, asked(images=(picture(112, 112),), temperature=1.5, top_p=0.9, seed=seed))[0]

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_a_prompt_in_chunks_is_the_prompt_at_once(bundle: Bundle) -> None:
    runner = OrtRunner(bundle, ONE_THREAD)
    ids = np.random.default_rng(0).integers(8, 900, 50)
    positions = np.tile(np.arange(50), (3, 1))
    none = np.arange(0)
    whole, attention = runner.prefill(0, Chunk(ids, positions, 0, none, None))
    whole, attention = whole.copy(), attention.copy()
    for cuts in ([0, 20, 50], [0, 1, 2, 33, 50], [0, 49, 50]):
        for start, end in itertools.pairwise(cuts):
            logits, evidence = runner.prefill(0, Chunk(ids[start:end], positions[:, start:end], start, none, None))
        assert np.abs(logits - whole).max() < 1e-4
        assert np.abs(evidence - attention).max() < 1e-5
    assert attention.sum() == pytest.approx(1, abs=1e-5)


def test_a_step_is_the_prefill_of_one_token(bundle: Bundle) -> None:
    runner = OrtRunner(bundle, ONE_THREAD)
    ids = np.arange(20, 40)
    positions = np.tile(np.arange(20), (3, 1))
    none = np.arange(0)
    whole = runner.prefill(0, Chunk(ids, positions, 0, none, None))[0].copy()
    runner.prefill(0, Chunk(ids[:17], positions[:, :17], 0, none, None))
    for at in (17, 18, 19):
        logits = runner.decode([int(ids[at])], [at], [at])
    assert np.abs(logits[0] - whole).max() < 1e-4


def test_what_a_step_is_bound_to_is_kept_by_the_engine(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = OrtRunner(bundle, ONE_THREAD)
    owners: list[weakref.ref[np.ndarray[Any, Any]]] = []

    def copied(array: np.ndarray[Any, Any]) -> Any:  # so that the binding itself keeps nothing
        owners.append(weakref.ref(array if array.base is None else array.base))
        return ort.OrtValue.ortvalue_from_numpy(array.copy())

    monkeypatch.setattr("foveola.engine.runner._value", copied)
    binding = _DecodeBinding(runner, 1)
    assert len(owners) > 6
    assert [place for place, owner in enumerate(owners) if owner() is None] == []
    del binding


def test_rows_of_a_batch_do_not_disturb_one_another(bundle: Bundle) -> None:
    """Lengths differ, and a row moves between two steps."""
    runner = OrtRunner(bundle, EngineOptions(threads=1, slots=3))
    random = np.random.default_rng(1)
    none = np.arange(0)
    prompts = [random.integers(8, 900, length) for length in (5, 31, 17)]

    def alone(prompt: np.ndarray, token: int) -> np.ndarray:
        ids = np.append(prompt, token)
        return runner.prefill(0, Chunk(ids, np.tile(np.arange(len(ids)), (3, 1)), 0, none, None))[0].copy()

    wanted = [alone(prompt, 100 + row) for row, prompt in enumerate(prompts)]
    for row, prompt in enumerate(prompts):
        runner.prefill(row, Chunk(prompt, np.tile(np.arange(len(prompt)), (3, 1)), 0, none, None))
    lengths = [len(prompt) for prompt in prompts]
    logits = runner.decode([100, 101, 102], lengths, lengths)
    assert np.abs(logits - np.stack(wanted)).max() < 1e-4
    runner.move(Move(source=2, target=0), lengths[2])
    logits = runner.decode([102, 101], [lengths[2], lengths[1]], [lengths[2], lengths[1]])
    assert np.abs(logits - np.stack([wanted[2], wanted[1]])).max() < 1e-4


def test_a_row_is_never_written_beyond_its_end(bundle: Bundle) -> None:
    runner = OrtRunner(bundle, ONE_THREAD)
    with pytest.raises(IndexError, match="1025 tokens do not fit a KV row of 1024"):
        runner.decode([9], [1024], [1024])
    ids = np.zeros(1025, np.int64)
    with pytest.raises(IndexError, match="1025 tokens do not fit"):
        runner.prefill(0, Chunk(ids, np.zeros((3, 1025), np.int64), 0, ids[:0], None))


def test_two_slots_answer_as_one_does(bundle: Bundle, engine: Engine) -> None:
    requests = [asked(f"Question {number}?", images=(picture(112, 60 + 10 * number, number),)) for number in range(4)]
    alone = [answer_once(engine, request)[0] for request in requests]
    both = Engine.open(bundle, EngineOptions(threads=1, slots=2))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda request: answer_once(both, request)[0], requests))
    both.close(5)
    assert together == alone


def test_the_seam_between_vision_and_language_can_drop_tokens(bundle: Bundle) -> None:
    def every_other(seen: Selected, grids: tuple[tuple[int, int], ...]) -> Selected:
        return Selected(seen.features[::2], seen.kept[::2])

    engine = Engine.open(bundle, ONE_THREAD, select=every_other)
    text, usage = answer_once(engine, asked(images=(picture(112, 112),)))
    engine.close(5)
    assert text
    (evidence,) = usage.evidence
    assert not any(evidence.weights[1::2])
    assert all(evidence.weights[0::2])


def test_what_is_wrong_with_a_request_is_told_before_the_first_piece(engine: Engine) -> None:
    with pytest.raises(BadImage):
        next(engine.pieces(asked(images=(picture(112, 112)[:200],))))
    with pytest.raises(OverBudget, match="1024 tokens of this model's context"):
        next(engine.pieces(asked("word " * 700, max_tokens=1024)))
    with pytest.raises(Invalid, match="max_tokens is 1025; expected a whole number from 1 to 1024"):
        next(engine.pieces(asked(max_tokens=1025)))
    assert answer_once(engine, asked())[0]


@pytest.mark.parametrize("graph", ["vision.onnx", "embed.onnx", "decoder.onnx"])
def test_a_graph_that_does_not_load_is_named(bundle: Bundle, tmp_path: Path, graph: str) -> None:
    def copy(folder: Path) -> None:
        for name in bundle.files:
            (folder / name).write_bytes(b"no graph" if name == graph else bundle.read(name))

    broken = write_bundle(tmp_path / "broken", name="broken", files=copy)
    with pytest.raises(Damaged) as caught:
        Engine.open(broken, ONE_THREAD)
    assert caught.value.message.startswith(f"{graph} cannot be loaded by ONNX Runtime")
    assert str(tmp_path) not in caught.value.message


def test_graphs_that_are_not_as_described_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    def copy(folder: Path) -> None:
        for name in bundle.files:
            data = bundle.read(name)
            (folder / name).write_bytes(data.replace(b'"head_dim": 32', b'"head_dim": 16'))

    with pytest.raises(Damaged, match="The graphs do not run as model.json describes them"):
        Engine.open(write_bundle(tmp_path / "broken", name="broken", files=copy), ONE_THREAD)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


reads_proc = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")


@reads_proc
def test_a_large_run_gives_its_scratch_memory_back(bundle: Bundle) -> None:
    """The attention of 2304 patches needs over 20 MiB per head for a moment."""
    runner = OrtRunner(bundle, ONE_THREAD)
    grid = (48, 48)
    packed = Packed(np.zeros((2304, 588), np.float32), patch_positions(grid, 2), np.zeros(2304, np.int64), (grid,), ())
    before = resident_mib()
    assert runner.encode(packed).features.shape == (576, 64)
    assert resident_mib() - before < 16


@pytest.mark.slow
@reads_proc
def test_memory_is_flat_over_distinct_pictures(bundle: Bundle) -> None:
    """Every picture has another size, so every shape that is kept somewhere would show. The caches are small: full
    before the first measurement."""
    engine = Engine.open(bundle, EngineOptions(prefix_cache_mib=1, feature_cache_mib=1, picture_cache_mib=1))

    def ask(number: int) -> None:
        answer_once(engine, asked(images=(picture(40 + number % 173, 40 + number % 191, number),), max_tokens=2))

    for number in range(100):
        ask(number)
    before = resident_mib()
    for number in range(100, 400):
        ask(number)
    grown = resident_mib() - before
    engine.close(1.0)
    assert grown < 8
