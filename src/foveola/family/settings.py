"""What several families read from config.json in the same way: decoders of the Llama kind, tokens, preprocessing."""

from __future__ import annotations

from typing import Any

from foveola.exchange import Unsupported
from foveola.family.base import Config, DecoderShape, required

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)
MAX_TILES = 64
"""Square tiles of all pictures of one request together."""
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # PIL.Image.Resampling
# transformers' defaults of the configurations that checkpoints leave unsaid: real ones name a base model instead.
_LLAMA = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}
_TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {**_LLAMA, "max_position_embeddings": 2048, "eos_token_id": 2},
    "mistral": {
        **_LLAMA,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "eos_token_id": 2,
    },
}
_VISION_DEFAULTS: dict[str, dict[str, Any]] = {
    "clip_vision_model": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 32,
        "hidden_act": "quick_gelu",
    },
    "siglip_vision_model": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "image_size": 224,
        "patch_size": 16,
        "hidden_act": "gelu_pytorch_tanh",
    },
}


def text_config(config: Config) -> Config:
    """The decoder's settings: nested in newer checkpoints, flat in the first ones; defaults where they are silent."""
    text = config.get("text_config") or config
    return {**_TEXT_DEFAULTS.get(str(text.get("model_type")), {}), **text}


def vision_config(config: Config) -> Config:
    """The tower's settings, with defaults where they are silent."""
    vision = required(config, "vision_config")
    return {**_VISION_DEFAULTS.get(str(vision.get("model_type")), {}), **vision}


def decoder_shape(config: Config) -> DecoderShape:
    """A decoder of the Llama kind, whose positions count tokens."""
    text = text_config(config)
    heads = int(required(text, "num_attention_heads"))
    head_dim = int(text.get("head_dim") or int(required(text, "hidden_size")) // heads)
    return DecoderShape(
        hidden=int(required(text, "hidden_size")),
        layers=int(required(text, "num_hidden_layers")),
        heads=heads,
        kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocabulary=int(required(text, "vocab_size")),
        activation=str(text.get("hidden_act", "silu")),
        rotary_axes=(0,) * (head_dim // 2),
    )


def text_section(shape: DecoderShape, config: Config, max_length: int) -> dict[str, Any]:
    """model.json ``text``. A slot is no longer than the positions that the model can count, nor than what a token of
    a model with a sliding window sees: within it the two are the same."""
    text = text_config(config)
    longest = [max_length, int(text.get("max_position_embeddings", 32768))]
    window = text.get("sliding_window")
    if window and text.get("use_sliding_window", True):
        longest.append(int(window))
    return {
        "hidden_size": shape.hidden,
        "embedding_size": shape.embedding,
        "position_axes": shape.axes,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocabulary,
        "max_length": min(longest),
    }


def end_and_pad(config: Config, generation: Config) -> dict[str, int | list[int] | None]:
    """The tokens that end an answer, and the one that fills up: generation_config.json goes first."""
    text = text_config(config)
    ends = generation.get("eos_token_id", config.get("eos_token_id", text.get("eos_token_id")))
    listed = [int(one) for one in (ends if isinstance(ends, list) else [ends]) if one is not None]
    pad = generation.get("pad_token_id", config.get("pad_token_id", text.get("pad_token_id")))
    if pad is None or int(pad) < 0:  # -1 says that there is none
        pad = listed[0] if listed else None
    return {"eos": list(listed), "pad": None if pad is None else int(pad)}


def image_token(config: Config) -> int:
    """The id of the token that stands for a picture, under its newer or its older name."""
    index = config.get("image_token_id", config.get("image_token_index"))
    return int(required({"image_token_id": index}, "image_token_id"))


def evidence_layer(layers: int) -> int:
    """Two thirds up: low layers look everywhere, the last ones at the words that they are about to say."""
    return min(layers * 2 // 3, layers - 1)


def resampling(preprocessor: Config, default: int = 3) -> str:
    """The name of the resampling filter. Raises ``Unsupported`` for a number that is none of those known."""
    number = int(preprocessor.get("resample", default))
    if number not in _RESAMPLE:
        raise Unsupported(
            f"preprocessor_config.json has resample {number}; expected one of "
            f"{', '.join(f'{known} ({name})' for known, name in _RESAMPLE.items())}."
        )
    return _RESAMPLE[number]


def colours(
    preprocessor: Config, mean: tuple[float, ...] = CLIP_MEAN, std: tuple[float, ...] = CLIP_STD
) -> dict[str, list[float]]:
    """``image_mean`` and ``image_std`` of model.json."""
    return {
        "image_mean": [float(x) for x in preprocessor.get("image_mean") or mean],
        "image_std": [float(x) for x in preprocessor.get("image_std") or std],
    }


def used_blocks(vision: Config, layer: object) -> int | None:
    """How many blocks of a tower count when its features are those behind block ``layer`` (negative: from the end).

    Raises ``Unsupported`` for features of several layers.
    """
    if not isinstance(layer, int):
        raise Unsupported(
            f"config.json has vision_feature_layer {layer!r}; expected one layer. Features of several layers side by "
            "side are not supported."
        )
    depth = int(required(vision, "num_hidden_layers"))
    return layer if layer >= 0 else depth + 1 + layer


def token_ids(config: Config, generation: Config) -> dict[str, int | list[int] | None]:
    """Ids of the tokens that the edge needs, where all of them stand in the configuration."""
    return {"image": image_token(config), **end_and_pad(config, generation)}
