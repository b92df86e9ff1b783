"""A model description, a tokenizer and a chat template as a bundle has them, small."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
)  # fmt: skip

# Qwen2-VL's own, as it is published with the model.
TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}"
    "<|im_end|>\n{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in "
    "content or 'image_url' in content %}{% set image_count.value = image_count.value + 1 %}{% if add_vision_id %}"
    "Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>{% elif content['type'] == "
    "'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}{% if add_vision_id %}Video "
    "{{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>{% elif 'text' in content %}"
    "{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% endif %}"
)

# The pattern of Qwen2's tokenizer: line breaks and blanks merge with their neighbours in their own ways.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CORPUS = [
    "What is wrong with this part? There is a scratch near the left edge.\n\nThe lot code is AB12.\n",
    "system\nYou are a helpful assistant.\nuser\nassistant\n", "这个零件有什么缺陷？左边有一条划痕。\n批号是多少？",
    "  two  spaces\n\n\nthree lines\t\ttabs", "<|im_start|> <|image_pad|> im_end vision_start",
]  # fmt: skip


@cache
def tokenizer_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 5, trainer)
    return str(tokenizer.to_str())


def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json())


def vision(**changes: Any) -> dict[str, Any]:
    return {
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "min_pixels": 56 * 56,
        "max_pixels": 28 * 28 * 256,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "resample": "bicubic",
        "max_patches": 4096,
        **changes,
    }


def model(**changes: Any) -> dict[str, Any]:
    return {
        "family": "qwen2_vl",
        "geometry": "qwen2_vl",
        "vision": vision(),
        "text": {"max_length": 1024},
        "tokens": {"image": "<|image_pad|>", "eos": ["<|im_end|>", "<|endoftext|>"], "pad": "<|endoftext|>"},
        "chat_template": TEMPLATE,
        "default_system": None,
        "graphs": {},
        **changes,
    }
