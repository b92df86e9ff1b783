from __future__ import annotations

import subprocess
import sys

import pytest

from foveola.exchange import Unsupported
from foveola.family import family_of, supported


def test_a_checkpoint_is_recognised_by_its_model_type() -> None:
    family = family_of({"model_type": "qwen2_vl"})
    assert family.model_type == "qwen2_vl"
    assert family.model_class == "Qwen2VLForConditionalGeneration"
    assert "qwen2_vl" in supported()


@pytest.mark.parametrize("config", [{"model_type": "florence9"}, {"model_type": ["qwen2_vl"]}, {}])
def test_an_unknown_family_is_refused_with_a_list_of_the_known_ones(config: dict[str, object]) -> None:
    with pytest.raises(Unsupported) as caught:
        family_of(config)
    came = f"model_type {config['model_type']!r}" if config else "no model_type"
    assert caught.value.message == (
        f"config.json says {came}; supported are: {', '.join(supported())}. "
        "Use a checkpoint of one of these, or add a record to foveola.family."
    )


def test_records_are_data_and_load_no_torch() -> None:
    code = "import sys, foveola.family; print(sorted({'torch', 'transformers', 'onnx_ir'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_family_that_people_use_is_there() -> None:
    assert set(supported()) == {
        "idefics3", "internvl", "llama", "llava", "llava_next", "mistral", "phi3_v", "qwen2_5_vl", "qwen2_vl",
        "qwen3_vl", "qwen3_vl_moe", "smolvlm",
    }  # fmt: skip
