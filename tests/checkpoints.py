"""A small random Qwen2-VL checkpoint, complete as from the hub: for every test that needs one, and for trials.

``python -m tests.checkpoints DIR`` writes one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_ENDINGS = ("amo", "eru", "iko", "osa", "uti", "ane", "ebi", "ilo", "opa", "ure", "avo", "egi", "ida", "oze", "uma")
_CORPUS = (
    "Which defect is on this part? Where is it? How many are there? Read the lot code.",
    "a scratch at the top left, a pit in the centre, a crack at the bottom right, no defect, pass, fail",
    "这是什么缺陷？在哪里？划痕 凹坑 裂纹 没有缺陷 合格 不合格 请读出批号 左上 中间 右下",
    # Words enough for a thousand merges, so that nearly every token that a random model says has a text.
    " ".join(a + b + c for a in ("", *"bdfgk") for b in ("al", "el", "or", "in", "us") for c in _ENDINGS),
)


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A byte-level BPE tokenizer of at most ``vocabulary`` entries with Qwen2-VL's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 20, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL[1:]),
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(folder)


def random_model(*, layers: int = 2, tied: bool = True, vocabulary: int = 1000, seed: int = 0) -> Any:
    """A random Qwen2-VL, 64 wide: vision 2 blocks of 2 heads, decoder ``layers`` of 2 heads and 1 KV head."""
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    torch.manual_seed(seed)
    ids = {token: index for index, token in enumerate(SPECIAL)}
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": vocabulary,
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_hidden_layers": layers,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 2048,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
            "bos_token_id": ids["<|endoftext|>"],
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={"depth": 2, "embed_dim": 64, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=tied,
    )
    model = Qwen2VLForConditionalGeneration(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed + 1)
    for name, parameter in model.named_parameters():
        # Livelier than the default 0.02: answers must depend on the picture and biases must matter.
        if parameter.ndim >= 2:
            fan_in = parameter[0].numel()
            scale = 0.5 if "embed_tokens" in name else 1.5 * fan_in**-0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        elif name.endswith("bias"):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
        else:
            parameter.copy_(1 + torch.randn(parameter.shape, generator=generator) * 0.1)
    model.generation_config.eos_token_id = ids["<|im_end|>"]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    return model


def random_checkpoint(folder: Path, **options: Any) -> Path:
    """Write a random checkpoint to ``folder`` (made where absent) and return it. Options as ``random_model``."""
    from transformers import Qwen2VLImageProcessorPil

    folder.mkdir(parents=True, exist_ok=True)
    model = random_model(**options)
    model.save_pretrained(folder)
    write_tokenizer(folder, int(options.get("vocabulary", 1000)))
    processor = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=448 * 448)
    processor.save_pretrained(folder)
    (folder / "model_card.md").write_text("# A random model\n\nIt knows nothing. For tests only.\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    written = random_checkpoint(Path(sys.argv[1]))
    print(json.dumps(sorted(path.name for path in written.iterdir())))
