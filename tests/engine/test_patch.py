"""Other weights while it serves: equal to the model that they came from, no reply of both, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveola.artifact import Bundle
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.engine.patch_file import read_state_dict
from foveola.exchange import Damaged, Invalid
from tests.engine.test_model import asked, generated, picture

pytestmark = pytest.mark.torch

REQUESTS = [
    asked(f"Which defect is it, {number}?", images=(picture(112, 60 + 10 * number, number),)) for number in range(3)
]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another checkpoint of the same shape."""
    pytest.importorskip("torch", reason="the workshop is not installed")
    from tests.checkpoints import random_checkpoint

    return random_checkpoint(tmp_path_factory.mktemp("other") / "checkpoint", seed=5)


@pytest.fixture(scope="module")
def wanted(other: Path) -> list[str]:
    """What transformers answers with the other weights."""
    from transformers import AutoTokenizer, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil.from_pretrained(other, min_pixels=56 * 56, max_pixels=112 * 112)
    model = Qwen2VLForConditionalGeneration.from_pretrained(other).eval()
    reference = (model, AutoTokenizer.from_pretrained(other), processor)
    return [generated(reference, request)[0] for request in REQUESTS]


@pytest.fixture(scope="module")
def weights(other: Path) -> dict[str, np.ndarray[Any, Any]]:
    return read_state_dict(other / "model.safetensors")


@pytest.fixture
def engine(random_bundle: Path) -> Iterator[Engine]:
    engine = Engine.open(Bundle.open(random_bundle), EngineOptions(threads=1))
    yield engine
    engine.close(5)


def answers(engine: Engine) -> list[str]:
    return [answer_once(engine, request)[0] for request in REQUESTS]


def vision_of(weights: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Relative to the tower, whatever the file's prefix."""
    return {name.partition("visual.")[2]: value for name, value in weights.items() if "visual." in name}


def test_the_whole_model_becomes_another_and_comes_back(
    engine: Engine, weights: dict[str, Any], wanted: list[str]
) -> None:
    before, text = engine.model_hash, answers(engine)
    done = engine.replace_submodule(module_path="", new_state_dict=weights, strict=False)
    assert answers(engine) == wanted != text
    assert (done.before, done.model_hash) == (before, engine.model_hash)
    assert engine.model_hash != before
    assert done.graphs == ("vision", "embed", "decoder")
    back = engine.rollback()
    assert (back.before, back.model_hash) == (done.model_hash, before)
    assert answers(engine) == text
    with pytest.raises(Invalid, match="There is no patch to take back"):
        engine.rollback()


def test_the_tower_alone(engine: Engine, weights: dict[str, Any]) -> None:
    text = answers(engine)
    version = engine._scheduler._lanes[-1].runner.version
    done = engine.replace_submodule(module_path="visual", new_state_dict=vision_of(weights), strict=True)
    assert done.graphs == ("vision",)
    assert done.tensors == len(vision_of(weights))
    patched = engine._scheduler._lanes[-1].runner.version
    assert patched.language == version.language
    assert patched.vision != version.vision
    changed = answers(engine)
    assert changed != text  # nothing of the old features was found again
    assert [answer_once(engine, request)[1].model_hash for request in REQUESTS] == [done.model_hash] * 3
    assert done.probe["features_rms_ratio"] > 0
    engine.rollback()
    assert answers(engine) == text


def test_one_layer_by_its_path(engine: Engine, weights: dict[str, Any]) -> None:
    tower = vision_of(weights)
    part = {key.removeprefix("blocks.1.mlp."): value for key, value in tower.items() if key.startswith("blocks.1.mlp.")}
    done = engine.replace_submodule(module_path="model.visual.blocks.1.mlp", new_state_dict=part)
    assert done.tensors == len(part) == 4
    again = engine.replace_submodule(module_path="visual.blocks.1.mlp", new_state_dict=part)
    assert again.model_hash == done.model_hash  # the same weights have the same name
    assert engine.rollback().model_hash == done.before  # what was sent twice took no place


def test_under_load_nobody_fails_and_no_reply_is_of_both(engine: Engine, weights: dict[str, Any]) -> None:
    tower = vision_of(weights)
    texts = {engine.model_hash: answers(engine)}
    engine.replace_submodule("visual", tower)
    texts[engine.model_hash] = answers(engine)
    engine.rollback()
    assert len(texts) == 2

    def ask(number: int) -> tuple[int, str, str]:
        text, usage = answer_once(engine, REQUESTS[number % 3])
        return number % 3, text, usage.model_hash

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask, number) for number in range(60)]
        engine.replace_submodule("visual", tower)
        asking += [pool.submit(ask, number) for number in range(30)]
        asking[70].result()  # somebody has been answered with the new weights, others are on their way
        engine.rollback()
        asking += [pool.submit(ask, number) for number in range(30)]
        replies = [future.result() for future in asking]
    assert all(texts[model_hash][which] == text for which, text, model_hash in replies)
    assert {model_hash for _, _, model_hash in replies} == set(texts)


def test_what_does_not_fit_changes_nothing(engine: Engine, weights: dict[str, Any]) -> None:
    before, text = engine.model_hash, answers(engine)
    tower = vision_of(weights)
    name = "blocks.0.norm1.weight"

    def refused(state: dict[str, Any], message: str, path: str = "visual", *, strict: bool = True) -> None:
        with pytest.raises(Invalid, match=message) as caught:
            engine.replace_submodule(path, state, strict=strict)
        assert "0x" not in caught.value.message
        assert engine.model_hash == before

    refused(tower, "module_path is 'vision'; this model has no such part. It has lm_head", "vision")
    refused(
        {k: v for k, v in tower.items() if k != name},
        r"1 parameters are missing \(model.visual.blocks.0.norm1.weight\)",
    )
    refused({**tower, "blocks.9.norm1.weight": np.zeros(64)}, r"1 are not the module's \(blocks.9.norm1.weight\)")
    refused({**tower, name: np.zeros(63)}, r"the new weights fill \[63\], the graph has \[64\]")
    refused({**tower, name: np.full(64, np.nan)}, "holds values that are no finite numbers")
    refused({**tower, name: np.full(64, 1e300)}, "holds values that are beyond what float32 holds")
    refused({**tower, name: np.full(64, "x")}, "expected numbers")
    refused({"other": np.zeros(1)}, "holds none of the .* parameters of visual", strict=False)
    refused(
        {key: np.zeros_like(value) for key, value in tower.items()}, "The new weights fail the probe: The features are"
    )
    refused({key: value * 1e18 for key, value in tower.items()}, "The new weights fail the probe")
    q = next(key for key in weights if "q_proj.weight" in key)
    refused(
        {q: weights[q]}, "it lies in one matrix with .*q_proj.weight, and they are replaced together", "", strict=False
    )
    assert answers(engine) == text


def test_without_strict_a_part_of_a_module_is_enough(engine: Engine, weights: dict[str, Any]) -> None:
    tower = vision_of(weights)
    some = {key: value for key, value in tower.items() if "merger" in key}
    done = engine.replace_submodule("visual", {**some, "unknown": np.zeros(1)}, strict=False)
    assert done.tensors == len(some)


def test_torch_tensors_are_taken_as_they_are(engine: Engine, weights: dict[str, Any]) -> None:
    import torch

    tower = vision_of(weights)
    done = engine.replace_submodule("visual", tower)
    engine.rollback()
    tensors = {key: torch.nn.Parameter(torch.from_numpy(value)) for key, value in tower.items()}
    assert engine.replace_submodule("visual", tensors).model_hash == done.model_hash


def test_files_of_weights(tmp_path: Path, weights: dict[str, Any]) -> None:
    import torch
    from safetensors.torch import save_file

    name, array = next(iter(weights.items()))
    wide = torch.from_numpy(array)
    save_file({"a": wide, "b": wide.half(), "c": wide.bfloat16()}, tmp_path / "w.safetensors")
    read = read_state_dict(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(read["a"], array)
    np.testing.assert_array_equal(read["b"], array.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(read["c"], wide.bfloat16().float().numpy())
    save_file({"d": torch.zeros(3, dtype=torch.int8)}, tmp_path / "i.safetensors")
    with pytest.raises(Invalid, match="d is stored as I8; expected F32, F16, BF16 or F64"):
        read_state_dict(tmp_path / "i.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:-5])
    with pytest.raises(Damaged, match="cut.safetensors is truncated"):
        read_state_dict(tmp_path / "cut.safetensors")
    with pytest.raises(Invalid, match="w.bin is no .safetensors file"):
        read_state_dict(tmp_path / "w.bin")
    assert name in weights
