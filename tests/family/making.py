"""Small random checkpoints of every family, complete as from the hub, made by transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXT: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
CLIP: dict[str, Any] = {
    "model_type": "clip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
    "projection_dim": 64,
}
QWEN_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip
QWEN_IDS = {
    "image_token_id": 5,
    "video_token_id": 6,
    "vision_start_token_id": 3,
    "vision_end_token_id": 4,
}
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As published with llava-hf's and SmolVLM's checkpoints: they take lists of parts only.
LLAVA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}"
    "{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
SMOLVLM_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CORPUS = (
    "Which defect is on this part? Where is it? How many are there? Read the lot code.",
    "a scratch at the top left, a pit in the centre, a crack at the bottom right, no defect, pass, fail",
    "这是什么缺陷？在哪里？划痕 凹坑 裂纹 没有缺陷 合格 不合格",
)


def byte_level(special: tuple[str, ...], vocabulary: int) -> Any:
    """A byte-level BPE tokenizer of ``vocabulary`` entries, the special ones first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 20, trainer)
    return tokenizer


def sentence_piece(special: tuple[str, ...], vocabulary: int) -> Any:
    """A BPE tokenizer with byte fallback that spells blanks as ``▁`` and begins prompts with ``special[1]`` (Llama)."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token=special[0]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    pieces = [*special, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=pieces, show_progress=False)
    tokenizer.train_from_iterator(_CORPUS * 20, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [entry for entry in data["added_tokens"] if entry["content"] in special]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    begin = special[1]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))]
    )
    return tokenizer


def save_tokenizer(folder: Path, tokenizer: Any, special: tuple[str, ...], template: str, **named: str) -> None:
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, additional_special_tokens=list(special), **named)
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)


def enlivened(model: Any, seed: int) -> Any:
    """``model`` with weights livelier than the usual ones: answers must depend on the picture, and biases matter.

    The head says none of the first 263 tokens (control tokens, and bytes, whose invalid sequences are a matter of
    taste).
    """
    import torch

    model = model.eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim >= 2:
            # Tables of positions and experts are stacks of rows, the rest are matrices.
            fan_in = parameter.shape[-1] if "experts" in name else parameter[0].numel()
            scale = 0.5 if "embed" in name and "patch" not in name else 1.5 * fan_in**-0.5
            parameter.copy_(noise * scale)
        elif name.endswith("bias") or "token" in name or "newline" in name or "class" in name:
            parameter.copy_(noise * 0.1)
        else:
            parameter.copy_(1 + noise * 0.1)
    head = model.get_output_embeddings()
    head.weight = torch.nn.Parameter(head.weight.clone(), requires_grad=False)
    head.weight[:263] = 0
    return model


def qwen2_5_vl(folder: Path) -> None:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessorPil

    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": rope, "eos_token_id": 2, "pad_token_id": 0},
        vision_config={
            "depth": 3, "hidden_size": 64, "out_hidden_size": 64, "intermediate_size": 96, "num_heads": 4,
            "window_size": 56, "fullatt_block_indexes": [1],
        },
        tie_word_embeddings=False,
        **QWEN_IDS,
    )  # fmt: skip
    model = enlivened(Qwen2_5_VLForConditionalGeneration(config), 1)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 0
    model.save_pretrained(folder)
    save_tokenizer(folder, byte_level(QWEN_TOKENS, 400), QWEN_TOKENS[1:], QWEN_TEMPLATE, eos_token="<|im_end|>")
    Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=224 * 224).save_pretrained(folder)


def _qwen3(folder: Path, experts: bool) -> None:
    import transformers
    from transformers import Qwen2VLImageProcessorPil

    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0, "mrope_interleaved": True}
    text = {**TEXT, "head_dim": 16, "rope_parameters": rope, "eos_token_id": 2, "pad_token_id": 0}
    if experts:
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "num_hidden_layers": 3}
    name = "Qwen3VLMoe" if experts else "Qwen3VL"
    config = getattr(transformers, f"{name}Config")(
        text_config=text,
        vision_config={
            "depth": 3, "hidden_size": 64, "out_hidden_size": 64, "intermediate_size": 96, "num_heads": 4,
            "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1],
        },
        tie_word_embeddings=False,
        **QWEN_IDS,
    )  # fmt: skip
    model = enlivened(getattr(transformers, f"{name}ForConditionalGeneration")(config), 2)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 0
    model.save_pretrained(folder)
    save_tokenizer(folder, byte_level(QWEN_TOKENS, 400), QWEN_TOKENS[1:], QWEN_TEMPLATE, eos_token="<|im_end|>")
    half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    Qwen2VLImageProcessorPil(patch_size=16, min_pixels=64 * 64, max_pixels=256 * 256, **half).save_pretrained(folder)


def qwen3_vl(folder: Path) -> None:
    _qwen3(folder, experts=False)


def qwen3_vl_moe(folder: Path) -> None:
    _qwen3(folder, experts=True)


LLAVA_TOKENS = ("<unk>", "<s>", "</s>", "<image>", "<pad>")


def _llava(folder: Path, name: str, processor: Any, **settings: Any) -> None:
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vision_config=CLIP,
        text_config={"model_type": "llama", **TEXT, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 4},
        image_token_index=3,
        image_seq_length=16,
        **settings,
    )
    model = enlivened(getattr(transformers, f"{name}ForConditionalGeneration")(config), 3)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 4
    model.save_pretrained(folder)
    tokenizer = sentence_piece(LLAVA_TOKENS, 400)
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    save_tokenizer(folder, tokenizer, ("<image>",), LLAVA_TEMPLATE, **named)
    processor.save_pretrained(folder)


def llava(folder: Path) -> None:
    from transformers import CLIPImageProcessorPil

    size = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
    _llava(folder, "Llava", CLIPImageProcessorPil(**size))


def llava_next(folder: Path) -> None:
    from transformers import LlavaNextImageProcessorPil

    pinpoints = [[56, 112], [112, 56], [112, 112], [168, 56], [56, 168]]
    size = {"size": {"shortest_edge": 56}, "crop_size": {"height": 56, "width": 56}}
    processor = LlavaNextImageProcessorPil(**size, image_grid_pinpoints=pinpoints)
    _llava(folder, "LlavaNext", processor, image_grid_pinpoints=pinpoints)


IDEFICS_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<fake_token_around_image>", "<image>", "<end_of_utterance>",
    "<global-img>", *(f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)),
)  # fmt: skip


def _idefics(folder: Path, name: str) -> None:
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vision_config={
            "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 64, "patch_size": 16,
        },
        text_config={"model_type": "llama", **TEXT, "bos_token_id": 1, "eos_token_id": 5, "pad_token_id": 2},
        image_token_id=4,
        scale_factor=2,
        pad_token_id=2,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = enlivened(getattr(transformers, f"{name}ForConditionalGeneration")(config), 4)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 5, 2
    model.save_pretrained(folder)
    named = {"bos_token": "<|im_start|>", "eos_token": "<end_of_utterance>", "pad_token": "<|im_end|>"}
    save_tokenizer(folder, byte_level(IDEFICS_TOKENS, 400), IDEFICS_TOKENS[3:], SMOLVLM_TEMPLATE, **named)
    processor = getattr(transformers, f"{name}ImageProcessorPil")
    processor(size={"longest_edge": 256}, max_image_size={"longest_edge": 64}).save_pretrained(folder)


def idefics3(folder: Path) -> None:
    _idefics(folder, "Idefics3")


def smolvlm(folder: Path) -> None:
    _idefics(folder, "SmolVLM")


def llama(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    special = QWEN_TOKENS[:3]
    config = LlamaConfig(**TEXT, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    model = enlivened(LlamaForCausalLM(config), 5)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 0
    model.save_pretrained(folder)
    save_tokenizer(folder, byte_level(special, 400), special[1:], CHAT_TEMPLATE, eos_token="<|im_end|>")


PHI3_TOKENS = (
    "<unk>", "<s>", "<|endoftext|>", "<|image|>", "<|assistant|>", "<|end|>", "<|user|>", "<|system|>",
)  # fmt: skip
PHI3_TEMPLATE = (
    "{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def phi3_v(folder: Path) -> None:
    """In the layout of the published checkpoints: an old config, two shards, blanks that control tokens swallow."""
    from foveola.weights.phi3_v import Phi3VConfig, Phi3VForCausalLM

    settings = {
        **TEXT,
        "num_key_value_heads": 4,
        "max_position_embeddings": 4096,
        "original_max_position_embeddings": 1024,
        "rope_scaling": {"type": "su", "short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [2.0] * 8},
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "image_token_id": 3,
        "img_processor": {
            "name": "clip_vision_model",
            "model_name": "openai/clip-vit-large-patch14-336",
            "vision_config": {key: value for key, value in CLIP.items() if key != "model_type"},
        },
        "embd_layer": {"embedding_cls": "image", "hd_transform_order": "sub_glb", "projection_cls": "mlp"},
    }
    model = enlivened(Phi3VForCausalLM(Phi3VConfig(**settings)), 6)
    model.save_pretrained(folder, max_shard_size="600KB")
    config = json.dumps({"model_type": "phi3_v", "architectures": ["Phi3VForCausalLM"], **settings})
    (folder / "config.json").write_text(config, encoding="utf-8")
    generation = json.dumps({"eos_token_id": [2, 5], "pad_token_id": 2})
    (folder / "generation_config.json").write_text(generation, encoding="utf-8")
    tokenizer = sentence_piece(PHI3_TOKENS, 400)
    data = json.loads(tokenizer.to_str())
    for entry in data["added_tokens"]:
        entry["rstrip"] = entry["content"] in PHI3_TOKENS[4:]
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    written = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": PHI3_TEMPLATE, **named})
    (folder / "tokenizer_config.json").write_text(written, encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps({"num_crops": 4}), encoding="utf-8")


INTERNVL_TOKENS = (*QWEN_TOKENS[:3], "<img>", "</img>", "<IMG_CONTEXT>")
INTERNVL_TEMPLATE = QWEN_TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", "<IMG_CONTEXT>\n")


def internvl(folder: Path) -> None:
    from transformers import GotOcr2ImageProcessorPil, InternVLConfig, InternVLForConditionalGeneration

    config = InternVLConfig(
        vision_config={
            "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": [56, 56], "patch_size": [14, 14], "norm_type": "layer_norm", "attention_bias": True,
        },
        text_config={"model_type": "qwen2", **TEXT, "eos_token_id": 2, "pad_token_id": 0},
        image_token_id=5,
        image_seq_length=4,
        downsample_ratio=0.5,
    )  # fmt: skip
    model = enlivened(InternVLForConditionalGeneration(config), 7)
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 2, 0
    model.save_pretrained(folder)
    tokenizer = byte_level(INTERNVL_TOKENS, 400)
    save_tokenizer(folder, tokenizer, INTERNVL_TOKENS[1:], INTERNVL_TEMPLATE, eos_token="<|im_end|>")
    GotOcr2ImageProcessorPil(size={"height": 56, "width": 56}, max_patches=6).save_pretrained(folder)


MAKERS: dict[str, Callable[[Path], None]] = {
    make.__name__: make
    for make in (
        qwen2_5_vl,
        qwen3_vl,
        qwen3_vl_moe,
        llava,
        llava_next,
        idefics3,
        smolvlm,
        phi3_v,
        internvl,
        llama,
    )
}


def checkpoint(folder: Path, model_type: str) -> Path:
    """A random checkpoint of the family in ``folder``, made where absent."""
    folder.mkdir(parents=True, exist_ok=True)
    MAKERS[model_type](folder)
    return folder
