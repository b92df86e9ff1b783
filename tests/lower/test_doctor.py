from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foveola.cli import main
from foveola.lower.doctor import examine
from tests.intake.models import TEMPLATE, tokenizer_json

CONFIG: dict[str, Any] = {
    "model_type": "llava",
    "image_token_index": 5,
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 56, "patch_size": 14,
    },
    "text_config": {"model_type": "llama", "vocab_size": 480, "hidden_size": 64, "num_attention_heads": 4,
                    "num_hidden_layers": 2, "eos_token_id": 2, "max_position_embeddings": 2048},
}  # fmt: skip


HUGE = '{"model": {"type": "BPE", "vocab": {"a": 1000000000}, "merges": []}}'
WORDS_ONLY = "{% for m in messages %}{{ m.content if m.content is string else m.content[1].text }}{% endfor %}"


def checkpoint(folder: Path, config: dict[str, Any] = CONFIG, **files: str | None) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(24))
    written: dict[str, str | None] = {
        "config.json": json.dumps(config), "tokenizer.json": tokenizer_json(), "chat_template.jinja": TEMPLATE, **files,
    }  # fmt: skip
    for name, text in written.items():
        if text is not None:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_supported_checkpoint(tmp_path: Path) -> None:
    said = {check.what: (check.verdict, check.says) for check in examine(checkpoint(tmp_path))}
    assert all(verdict != "bad" for verdict, _ in said.values())
    assert said["family"] == ("good", "llava, read as LlavaForConditionalGeneration")
    assert said["files"][1] == "1 safetensors file, 1 tensors, 0.0 M parameters"
    assert said["vision"][1].startswith("square tiles of 56 px, 4 heads of 16")
    assert "640 x 480 px: 16 tokens, 1920 x 1080 px: 16 tokens" in said["pictures"][1]
    assert said["prompt"][1] == "picture token '<|image_pad|>', answers end with <|im_end|>"


def test_the_command_says_so_to_people_and_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = checkpoint(tmp_path)
    assert main(["doctor", str(folder)]) == 0
    assert f"supported: foveola compile --model {folder.name}" in capsys.readouterr().out
    assert main(["doctor", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["supported"] is True
    assert {"what", "verdict", "says"} == set(report["checks"][0])


@pytest.mark.parametrize(
    ("config", "files", "what", "says"),
    [
        ({**CONFIG, "model_type": "florence9"}, {}, "family", "config.json says model_type 'florence9'"),
        ({**CONFIG, "vision_feature_layer": [1, 2]}, {}, "vision", "Features of several layers side by side"),
        ({**CONFIG, "image_token_index": 999}, {}, "prompt", "tokenizer.json has no token 999"),
        (CONFIG, {"chat_template.jinja": None}, "prompt", "there is no chat template"),
        (CONFIG, {"preprocessor_config.json": '{"resample": 9}'}, "pictures", "has resample 9; expected one of"),
        (CONFIG, {"tokenizer.json": None}, "prompt", "tokenizer.json is missing"),
        (CONFIG, {"tokenizer.json": '{"model": {}}'}, "prompt", "tokenizer.json is no tokenizer that this version"),
        (CONFIG, {"tokenizer.json": HUGE}, "prompt", "tokenizer.json numbers a token 1000000000; no model has"),
        (CONFIG, {"generation_config.json": '{"eos_token_id": -5}'}, "prompt", "tokenizer.json has no token -5"),
        (CONFIG, {"chat_template.jinja": "{{ 1 / 0 }}"}, "prompt", "refuses these turns: it ends in ZeroDivisionError"),
        (CONFIG, {"chat_template.jinja": "{% if %}"}, "prompt", "The checkpoint's chat_template is no valid template"),
        (CONFIG, {"chat_template.jinja": WORDS_ONLY}, "prompt", "The checkpoint's chat_template writes 0 image tokens"),
        (
            {key: value for key, value in CONFIG.items() if key != "vision_config"},
            {},
            "vision",
            "lacks 'vision_config'",
        ),
    ],
)
def test_what_stands_in_the_way_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], files: Any, what: str, says: str
) -> None:
    folder = checkpoint(tmp_path, config, **files)
    bad = [check for check in examine(folder) if check.verdict == "bad"]
    assert any(check.what == what and says in check.says for check in bad)
    assert main(["doctor", str(folder)]) == 1
    assert "not supported as it is" in capsys.readouterr().out


def with_entry(place: str, value: Any) -> dict[str, Any]:
    """``CONFIG`` with another value at a dotted place."""
    *outer, last = place.split(".")
    changed = json.loads(json.dumps(CONFIG))
    inside = changed
    for key in outer:
        inside = inside[key]
    inside[last] = value
    return dict(changed)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        ("text_config", "x", "config.json: text_config is 'x'"),
        ("text_config.num_hidden_layers", [], "config.json: text_config"),
        ("text_config.hidden_size", "many", "config.json: text_config"),
        ("text_config.head_dim", 10**9, "config.json: text_config.head_dim is 1000000000; no model has more than"),
        ("text_config.num_hidden_layers", 10**30, "num_hidden_layers is a number of more than 18 digits; no model has"),
        ("text_config.num_attention_heads", 0, "or an entry beside or inside it, is not what this family has"),
        ("text_config.num_hidden_layers", -1, "makes the model's layers -1; it must be 1 at least"),
        ("text_config.eos_token_id", {}, "config.json: "),
        ("vision_config", [], "config.json: vision_config is []"),
        ("vision_config.patch_size", "x", "config.json: vision_config"),
        ("image_token_index", [], "config.json: image_token_i"),
    ],
)
def test_nonsense_in_the_config_is_told_and_never_raised(tmp_path: Path, place: str, value: Any, says: str) -> None:
    bad = [check.says for check in examine(checkpoint(tmp_path, with_entry(place, value))) if check.verdict == "bad"]
    assert bad
    assert any(says in text for text in bad)


def test_a_picture_in_more_tiles_than_can_be_tried(tmp_path: Path) -> None:
    config = {"model_type": "phi3_v", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
              "vocab_size": 480, "eos_token_id": 2, "img_processor": {"image_dim_out": 1024}}  # fmt: skip
    checks = examine(checkpoint(tmp_path, config, **{"preprocessor_config.json": '{"num_crops": 1e300}'}))
    said = "preprocessor_config.json makes num_crops a number of more than 18 digits; it must be 1024 at most."
    assert any(check.says.startswith(said) for check in checks)


@pytest.mark.parametrize("text", ['{"resample": "x"}', '{"image_mean": "x"}', '{"size": 3, "crop_size": []}'])
def test_nonsense_in_the_preprocessor_s_file_too(tmp_path: Path, text: str) -> None:
    checks = examine(checkpoint(tmp_path, CONFIG, **{"preprocessor_config.json": text}))
    said = [check.says for check in checks if check.verdict == "bad"]
    assert said == [] or any(text.startswith("preprocessor_config.json: ") for text in said)


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path)
    (folder / "chat_template.jinja").write_bytes(b"\xa3\xff")
    bad = [check.says for check in examine(folder) if check.verdict == "bad"]
    assert bad == ["chat_template.jinja is not UTF-8 text; it is damaged. Copy the checkpoint whole."]


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    (only,) = examine(tmp_path / "nothing")
    assert (only.what, only.verdict) == ("files", "bad")
    assert "is no directory; a checkpoint is one with config.json in it" in only.says


def test_notes_on_code_and_quantised_weights(tmp_path: Path) -> None:
    config = {**CONFIG, "auto_map": {"AutoModel": "x.Y"}, "quantization_config": {"quant_method": "awq"}}
    notes = [check.says for check in examine(checkpoint(tmp_path, config)) if check.what == "weights"]
    assert notes == [
        "the weights are quantised already (awq)",
        "the code that comes with it (AutoModel) is never run",
    ]


def test_it_loads_no_torch(tmp_path: Path) -> None:
    code = "import sys, foveola.lower.doctor; print(sorted({'torch', 'transformers', 'onnx_ir'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
