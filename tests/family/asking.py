"""What transformers answers to a picture and a question: its processors, its templates, its greedy generation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """A picture with structure on several scales."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 255, (4, 4, 3), np.uint8)).resize((width, height))
    return Image.fromarray(np.asarray(small) // 2 + random.integers(0, 60, (height, width, 3), np.uint8))


def answered(folder: Path, model: Any, pictures: list[Image.Image], question: str, tokens: int) -> tuple[str, int]:
    """Text of ``tokens`` greedy tokens and the length of the prompt, for the checkpoint in ``folder``."""
    import torch

    tokenizer, inputs = tokenizer_of(folder), asked(folder, model, pictures, question)
    length = inputs["attention_mask"].shape[1]
    with torch.no_grad():
        out = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, use_cache=True)
    new = out[0] if "inputs_embeds" in inputs else out[0, length:]
    return tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False), length


def tokenizer_of(folder: Path) -> Any:
    """transformers' tokenizer of the checkpoint in ``folder``."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(folder)


def asked(folder: Path, model: Any, pictures: list[Image.Image], question: str) -> dict[str, Any]:
    """What the family's own processor makes of pictures and a question: the inputs of ``generate``."""
    ask = _WAYS.get(model.config.model_type, _with_processor)
    inputs: dict[str, Any] = ask(folder, model, tokenizer_of(folder), pictures, question)
    return inputs


def processor_of(folder: Path, tokenizer: Any) -> Any:
    """The family's processor, put together from its parts (their Auto classes want more packages than it needs)."""
    import transformers

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = config["model_type"]
    images, whole, settings = {
        "llava": ("CLIPImageProcessorPil", "LlavaProcessor", {"num_additional_image_tokens": 1}),
        "llava_next": ("LlavaNextImageProcessorPil", "LlavaNextProcessor", {"num_additional_image_tokens": 1}),
        "idefics3": ("Idefics3ImageProcessorPil", "Idefics3Processor", {"image_seq_len": 4}),
        "smolvlm": ("SmolVLMImageProcessorPil", "Idefics3Processor", {"image_seq_len": 4}),
    }[kind]
    if kind.startswith("llava"):
        settings |= {"patch_size": 14, "vision_feature_select_strategy": "default"}
    image_processor = getattr(transformers, images).from_pretrained(folder)
    return getattr(transformers, whole)(
        image_processor=image_processor, tokenizer=tokenizer, chat_template=tokenizer.chat_template, **settings
    )


def _messages(pictures: list[Image.Image], question: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*({"type": "image"} for _ in pictures), {"type": "text", "text": question}]}]


def _with_processor(folder: Path, model: Any, tokenizer: Any, pictures: Any, question: str) -> dict[str, Any]:
    processor = processor_of(folder, tokenizer)
    prompt = tokenizer.apply_chat_template(_messages(pictures, question), tokenize=False, add_generation_prompt=True)
    return dict(processor(images=pictures or None, text=prompt, return_tensors="pt"))


def _packed(folder: Path, model: Any, tokenizer: Any, pictures: Any, question: str) -> dict[str, Any]:
    """Qwen-VL: as its processor does, which only its package for videos keeps from being made here."""
    import torch
    from transformers import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(_messages(pictures, question), tokenize=False, add_generation_prompt=True)
    inputs: dict[str, Any] = dict(processor(images=pictures, return_tensors="pt")) if pictures else {}
    for grid in inputs.get("image_grid_thw", ()):
        prompt = prompt.replace("<|image_pad|>", "<|mark|>" * (int(grid.prod()) // 4), 1)
    ids = tokenizer(prompt.replace("<|mark|>", "<|image_pad|>"), return_tensors="pt", add_special_tokens=False)
    ids = ids["input_ids"]
    if pictures:
        inputs["mm_token_type_ids"] = (ids == model.config.image_token_id).long()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **inputs}


def _internvl(folder: Path, model: Any, tokenizer: Any, pictures: Any, question: str) -> dict[str, Any]:
    import torch
    from transformers import GotOcr2ImageProcessorPil

    processor = GotOcr2ImageProcessorPil.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(_messages(pictures, question), tokenize=False, add_generation_prompt=True)
    inputs: dict[str, Any] = {}
    if pictures:
        made = processor(images=pictures, crop_to_patches=True, return_tensors="pt")
        for count in made.pop("num_patches"):
            tokens = "<|mark|>" * (int(count) * model.config.image_seq_length)
            prompt = prompt.replace("<IMG_CONTEXT>", f"<img>{tokens}</img>", 1)
        inputs = dict(made)
    ids = tokenizer(prompt.replace("<|mark|>", "<IMG_CONTEXT>"), return_tensors="pt", add_special_tokens=False)
    return {"input_ids": ids["input_ids"], "attention_mask": torch.ones_like(ids["input_ids"]), **inputs}


def _text(folder: Path, model: Any, tokenizer: Any, pictures: Any, question: str) -> dict[str, Any]:
    import torch

    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _phi3(folder: Path, model: Any, tokenizer: Any, pictures: Any, question: str) -> dict[str, Any]:
    """As the published processor: text between pictures is encoded on its own, each with what begins a prompt."""
    import torch

    content = "".join(f"<|image_{number + 1}|>\n" for number in range(len(pictures))) + question
    messages = [{"role": "user", "content": content}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    for number in range(len(pictures)):
        prompt = prompt.replace(f"<|image_{number + 1}|>", "|||")
    crops = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))["num_crops"]
    shown = [hd_transform(one, crops, 56) for one in pictures]
    features: list[Any] = []
    if shown:
        most = max(len(tiles) for tiles, _ in shown)
        tiles = torch.stack([torch.nn.functional.pad(t, (0, 0) * 3 + (0, most - len(t))) for t, _ in shown])
        features = model.get_image_features(tiles, [grid for _, grid in shown])
    embeds = []
    for index, chunk in enumerate(prompt.split("|||")):
        if index:
            embeds.append(features[index - 1])
        embeds.append(model.model.embed_tokens(torch.tensor(tokenizer(chunk)["input_ids"])))
    whole = torch.cat(embeds)[None]
    return {"inputs_embeds": whole, "attention_mask": torch.ones(whole.shape[:2], dtype=torch.long)}


def hd_transform(image: Image.Image, crops: int, tile: int) -> tuple[Any, tuple[int, int]]:
    """Phi-3-vision's published preprocessing, by PIL and torch: tiles [1 + n, 3, tile, tile], (rows, columns)."""
    import torch

    tall = image.width < image.height
    if tall:
        image = image.transpose(Image.Transpose.TRANSPOSE)
    ratio = image.width / image.height
    scale = 1
    while scale * np.ceil(scale / ratio) <= crops:
        scale += 1
    scale -= 1
    width = int(scale * tile)
    image = image.resize((width, int(width / ratio)), Image.Resampling.BILINEAR)
    height = int(np.ceil(image.height / tile) * tile)
    canvas = Image.new("RGB", (width, height), (255, 255, 255))
    canvas.paste(image, (0, int((height - image.height) / 2)))
    if tall:
        canvas = canvas.transpose(Image.Transpose.TRANSPOSE)
    pixels = torch.from_numpy(np.asarray(canvas).copy()).permute(2, 0, 1).float().div(255)
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]
    pixels = (pixels - mean) / std
    whole = torch.nn.functional.interpolate(pixels[None], size=(tile, tile), mode="bicubic")
    rows, columns = pixels.shape[1] // tile, pixels.shape[2] // tile
    cut = pixels.reshape(1, 3, rows, tile, columns, tile).permute(0, 2, 4, 1, 3, 5).reshape(-1, 3, tile, tile)
    return torch.cat([whole, cut]), (rows, columns)


_WAYS: dict[str, Any] = {
    "qwen2_vl": _packed,
    "qwen2_5_vl": _packed,
    "qwen3_vl": _packed,
    "qwen3_vl_moe": _packed,
    "internvl": _internvl,
    "phi3_v": _phi3,
    "llama": _text,
}
