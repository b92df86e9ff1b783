"""llm-compressor's AWQ, run in an environment of its own: ``python llmcompressor_awq.py MODEL TOKENS OUT GROUP``.

TOKENS is a JSON list of lists of token ids. Weights to 4 bits, asymmetric, in groups of GROUP; the head stays whole.
Two of its own things are turned off, because they need an accelerator that is not there or are not measured: pinned
memory, and the search for a device.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(model_path: str, tokens: str, out: str, group: int) -> None:
    """Quantise and save as compressed-tensors."""
    import llmcompressor.pipelines.cache as pipeline_cache
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pipeline_cache.IntermediatesCache.pin_memory = lambda self, *rest, **others: None
    model: Any = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32)
    tokenizer: Any = AutoTokenizer.from_pretrained(model_path)
    with open(tokens, encoding="utf-8") as stream:
        rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in json.load(stream)]
    weights = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": group}
    scheme = {"group_0": {"targets": ["Linear"], "weights": weights}}
    oneshot(
        model=model,
        processor=tokenizer,
        dataset=Dataset.from_list(rows),
        recipe=[
            AWQModifier(duo_scaling="both", n_grid=20),
            QuantizationModifier(config_groups=scheme, ignore=["lm_head"]),
        ],
        num_calibration_samples=len(rows),
        max_seq_length=max(len(row["input_ids"]) for row in rows),
    )
    model.save_pretrained(out, save_compressed=True)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
