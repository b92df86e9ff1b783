"""A checkpoint becomes a bundle that says what the checkpoint says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import onnxruntime as ort  # noqa: E402

from foveola.artifact import Bundle  # noqa: E402
from foveola.exchange import Damaged, Invalid, Unsupported  # noqa: E402
from foveola.lower.compile import compile_checkpoint  # noqa: E402
from foveola.lower.options import CompileOptions  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402

pytestmark = pytest.mark.torch
IMAGE, START, END = 6, 3, 4


def test_the_bundle_is_whole_and_knows_where_it_comes_from(compiled: Callable[[str], Bundle]) -> None:
    bundle = Bundle.open(compiled("int4").path)
    assert set(bundle.files) == {
        "vision.onnx", "embed.onnx", "decoder.onnx", "model.json", "tokenizer.json", "model_card.md",
    }  # fmt: skip
    rounded, exported, proven = bundle.lineage
    assert (rounded.step, exported.step, proven.step) == ("lower.round", "lower.export", "lower.parity")
    assert rounded.options["decoder"] == "int4/32@4"
    before, after = rounded.before["weight_bytes"], rounded.after["weight_bytes"]
    assert isinstance(before, int) and isinstance(after, int) and after < before / 3
    assert exported.after["opset"] == 23
    strict = [error for name, error in proven.after.items() if "level_4" not in name]
    assert len(strict) == 5 and all(isinstance(error, float) and error < 1e-4 for error in strict)
    assert isinstance(proven.after["decoder_logits_at_level_4_error"], float)


def test_the_edge_learns_the_model_from_data(compiled: Callable[[str], Bundle], checkpoint: Path) -> None:
    model = compiled("fp32").model
    assert model["family"] == model["geometry"] == "qwen2_vl"
    assert model["tokens"] == {
        "image": "<|image_pad|>",
        "vision_start": "<|vision_start|>",
        "vision_end": "<|vision_end|>",
        "eos": ["<|im_end|>"],
        "pad": "<|endoftext|>",
        "prefix": [],
    }
    assert model["prompt"] == {"variables": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}}
    assert (model["text"]["position_axes"], model["text"]["embedding_size"]) == (3, 64)
    assert model["profile"] == "ort"
    assert model["text"]["max_length"] == 2048  # the model's own bound, below the default of 4096
    assert model["vision"]["max_pixels"] == 448 * 448
    assert model["evidence_layer"] == 1
    assert model["chat_template"] == (checkpoint / "chat_template.jinja").read_text(encoding="utf-8")
    assert model["graphs"] == {"vision": "vision.onnx", "embed": "embed.onnx", "decoder": "decoder.onnx"}


class Graphs:
    """A plain loop over the three graphs of a bundle: nothing of the engine."""

    def __init__(self, bundle: Bundle) -> None:
        def opened(role: str) -> ort.InferenceSession:
            return ort.InferenceSession(str(bundle.file(f"{role}.onnx")), providers=["CPUExecutionProvider"])

        self.vision, self.embed, self.decoder = opened("vision"), opened("embed"), opened("decoder")
        text = bundle.model["text"]
        self.cache = [f"{layer}.{kind}" for layer in range(text["num_hidden_layers"]) for kind in ("key", "value")]
        self.empty = np.zeros((1, text["num_key_value_heads"], 0, text["head_dim"]), np.float32)

    def embeds(self, ids: np.ndarray[Any, Any], features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        (embeds,) = self.embed.run(["inputs_embeds"], {"input_ids": ids})
        embeds[ids == IMAGE] = features
        return np.asarray(embeds)

    def greedy(self, embeds: np.ndarray[Any, Any], positions: np.ndarray[Any, Any], count: int) -> list[int]:
        """``positions`` [3, 1, S]; text goes on one after the largest."""
        past = {f"past.{name}": self.empty for name in self.cache}
        said: list[int] = []
        total = 0
        while len(said) < count:
            chunk = embeds.shape[1]
            total += chunk
            out = self.decoder.run(
                ["logits", *(f"present.{name}" for name in self.cache)],
                {
                    "inputs_embeds": embeds,
                    "position_ids": positions,
                    "seqlens_k": np.array([total - 1], np.int32),
                    "total_sequence_length": np.array(total, np.int32),
                    "logit_index": np.array([chunk - 1]),
                    **past,
                },
            )
            past = {f"past.{name}": value for name, value in zip(self.cache, out[1:], strict=True)}
            said.append(int(out[0][0, -1].argmax()))
            positions = np.full((3, 1, 1), positions.max() + 1)
            (embeds,) = self.embed.run(["inputs_embeds"], {"input_ids": np.array([[said[-1]]])})
        return said


def test_the_graphs_say_what_transformers_says_about_two_pictures(
    compiled: Callable[[str], Bundle], model: Any, checkpoint: Path
) -> None:
    from PIL import Image
    from transformers import Qwen2VLImageProcessorPil
    from transformers.vision_utils import get_vision_position_ids

    rng = np.random.default_rng(3)
    shown = [Image.fromarray(rng.integers(0, 255, (h, w, 3), dtype=np.uint8)) for h, w in ((84, 140), (112, 56))]
    seen = Qwen2VLImageProcessorPil.from_pretrained(checkpoint)(shown, return_tensors="pt")
    thw = seen["image_grid_thw"]
    tokens = (thw.prod(-1) // 4).tolist()
    ids = [1, 40, *[START, *[IMAGE] * tokens[0], END], 300, 41, *[START, *[IMAGE] * tokens[1], END], 500, 42, 43]
    input_ids = torch.tensor([ids])
    kinds = (input_ids == IMAGE).int()
    wanted = model.generate(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        pixel_values=seen["pixel_values"],
        image_grid_thw=thw,
        mm_token_type_ids=kinds,
        max_new_tokens=32,
        min_new_tokens=32,
        do_sample=False,
    )[0, len(ids) :].tolist()

    graphs = Graphs(compiled("fp32"))
    one_frame = seen["pixel_values"].view(-1, 3, 2, 196)[:, :, 0].reshape(-1, 588)
    (features,) = graphs.vision.run(
        ["features"],
        {
            "pixel_values": one_frame.numpy(),
            "position_ids": get_vision_position_ids(thw, 2).numpy(),
            "segment_ids": np.repeat(np.arange(2), thw.prod(-1).numpy()),
        },
    )
    positions, _ = model.model.get_rope_index(input_ids, image_grid_thw=thw, mm_token_type_ids=kinds)
    embeds = graphs.embeds(input_ids.numpy(), features)
    assert graphs.greedy(embeds, positions.numpy(), 32) == wanted
    assert len(set(wanted)) > 4  # a model that repeats itself would prove little
    blind = graphs.greedy(graphs.embeds(input_ids.numpy(), np.zeros_like(features)), positions.numpy(), 32)
    assert blind != wanted


@pytest.mark.slow
def test_formats_can_differ_from_module_to_module(checkpoint: Path, tmp_path: Path) -> None:
    options = CompileOptions.of_precision(
        "int4",
        block=64,
        accuracy_level=1,
        vision=Format(4, 32, 1),
        head="fp16",
        embedding="fp16",
        overrides={"*.layers.0.self_attn.q_proj": Format(8, 64, 1), "*.layers.1.*": "fp32"},
    )
    bundle = compile_checkpoint(checkpoint, tmp_path / "mixed", options)
    import onnx_ir as ir

    from foveola.lower.inspect import stored_weights

    decoder = stored_weights(ir.load(bundle.file("decoder.onnx")))
    assert decoder == {"int8/64@1": 64 * 64, "int4/64@1": 2 * 32 * 64 + 64 * 64 + 3 * 160 * 64}
    vision = stored_weights(ir.load(bundle.file("vision.onnx")))
    assert set(vision) == {"int4/32@1"}
    assert bundle.files["embed.onnx"].bytes < 2 * 1000 * 64 + 1000
    assert not [name for name in bundle.lineage[-1].after if "level_4" in name]


def copied(checkpoint: Path, to: Path) -> Path:
    return Path(shutil.copytree(checkpoint, to))


def edited(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def refused(checkpoint: Path, out: Path, error: type[Exception], options: CompileOptions | None = None) -> str:
    with pytest.raises(error) as caught:
        compile_checkpoint(checkpoint, out, options)
    assert not out.exists()
    return str(caught.value)


def test_a_family_without_a_record(checkpoint: Path, tmp_path: Path) -> None:
    broken = copied(checkpoint, tmp_path / "broken")
    edited(broken / "config.json", model_type="florence2")
    told = refused(broken, tmp_path / "out", Unsupported)
    assert "model_type 'florence2'; supported are: " in told
    assert "qwen2_vl" in told


def test_no_chat_template(checkpoint: Path, tmp_path: Path) -> None:
    broken = copied(checkpoint, tmp_path / "broken")
    (broken / "chat_template.jinja").unlink()
    assert refused(broken, tmp_path / "out", Damaged) == (
        "chat_template.jinja is missing, and tokenizer_config.json has no chat_template either."
    )


def test_a_tokenizer_of_another_model(checkpoint: Path, tmp_path: Path) -> None:
    broken = copied(checkpoint, tmp_path / "broken")
    edited(broken / "config.json", image_token_id=151655)
    assert refused(broken, tmp_path / "out", Damaged) == (
        "tokenizer.json has no token 151655, which config.json names; they belong together."
    )


def test_weights_that_do_not_fill_the_model(checkpoint: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    broken = copied(checkpoint, tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    name = next(key for key in sorted(weights) if "blocks.1.mlp.fc1" in key)
    del weights[name]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    message = refused(broken, tmp_path / "out", Damaged)
    assert message.startswith("model.safetensors lacks 1 tensors that config.json asks for, ")
    assert "blocks.1.mlp.fc1" in message


def test_a_name_that_cannot_be(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        compile_checkpoint(checkpoint, tmp_path / "out", name="my model")
    assert caught.value.message == (
        "the bundle's name 'my model' is no name: 1 to 128 letters, digits, dots, dashes, underscores; "
        "a letter or digit first. Give another with --name."
    )


@pytest.mark.slow
def test_the_same_checkpoint_compiles_to_the_same_bytes(
    compiled: Callable[[str], Bundle], checkpoint: Path, tmp_path: Path
) -> None:
    again = compile_checkpoint(checkpoint, tmp_path / "again", CompileOptions.of_precision("int4"))
    assert again.model_hash == compiled("int4").model_hash


def test_a_config_of_another_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    broken = copied(checkpoint, tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["intermediate_size"] = 128
    edited(broken / "config.json", **config)
    message = refused(broken, tmp_path / "out", Damaged)
    assert message.startswith("model.safetensors has 6 tensors of other sizes than config.json says, ")
    assert message.endswith("The config.json belongs to another checkpoint.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CompileOptions(evidence_layer=2), "evidence_layer is 2; the decoder has layers 0 to 1."),
        (CompileOptions(text_length=3000), "seq_len is 3000; this model reads at most 2048 tokens."),
    ],
)
def test_options_that_do_not_fit_the_model(
    options: CompileOptions, message: str, checkpoint: Path, tmp_path: Path
) -> None:
    assert refused(checkpoint, tmp_path / "out", Invalid, options) == message


def test_a_pattern_that_matches_nothing(checkpoint: Path, tmp_path: Path) -> None:
    options = CompileOptions(overrides={"*.vision_tower.*": Format(4)})
    assert "the pattern '*.vision_tower.*' matches no module" in refused(checkpoint, tmp_path / "out", Invalid, options)


def test_a_picture_size_becomes_a_limit_that_does_not_shrink_it(checkpoint: Path) -> None:
    from foveola.artifact import Checkpoint
    from foveola.family import family_of
    from foveola.lower.compile import model_section

    opened = Checkpoint.open(checkpoint)
    section = model_section(opened, family_of(opened.config), CompileOptions(image_px=(384, 384)))
    assert section["vision"]["max_pixels"] == 392 * 392
    tiny = model_section(opened, family_of(opened.config), CompileOptions(image_px=(28, 28)))
    assert (tiny["vision"]["min_pixels"], tiny["vision"]["max_pixels"]) == (784, 784)


def test_what_is_there_is_not_overwritten(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="exists and is not empty"):
        compile_checkpoint(checkpoint, tmp_path)
    assert (tmp_path / "kept.txt").read_text() == "mine"
