"""The embedded model's own tokenizer: byte-level BPE over its wordings, single characters for capitals and digits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from foveola.tiny import words

SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
VOCABULARY = 2048
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Lot codes are read character by character; words keep their leading space; Chinese goes by the character.
_PIECES = r"[A-Z0-9](?![a-z])| ?[A-Za-z]+|\s+|."


def _corpus(seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(150):
        for task in words.TASKS:
            for lang in ("en", "zh"):
                yield words.question(task, lang, rng, x=rng.choice(list(words.DEFECTS_ZH)), n="3")
    for _ in range(60):
        yield from ("user", "assistant", "system", "You are a helpful assistant.", "LOT EXP", "yes no pass fail")
        yield from words.DEFECTS_ZH
        yield from words.DEFECTS_ZH.values()
        yield from words.MATERIALS_ZH
        yield from words.MATERIALS_ZH.values()
        yield from words.CELLS + words.CELLS_ZH
        for lang in ("en", "zh"):
            yield words.describe(rng.choice(list(words.MATERIALS_ZH)), ["scratch", "pit"], [0, 4], lang)  # type: ignore[arg-type]


def train_tokenizer(directory: Path, seed: int = 0) -> PreTrainedTokenizerFast:
    """Trains on the wordings, writes the tokenizer's files to ``directory`` and returns it."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 8,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_corpus(seed), trainer)
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL[1:]),
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(directory)
    return tokenizer


def load_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """The tokenizer that ``train_tokenizer`` wrote."""
    return PreTrainedTokenizerFast.from_pretrained(directory)  # type: ignore[no-any-return]


def token_id(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    """The id of one special token."""
    return int(tokenizer.convert_tokens_to_ids(token))  # type: ignore[arg-type]
