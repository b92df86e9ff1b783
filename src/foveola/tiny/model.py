"""The embedded model: a small Qwen2-VL of transformers' own classes, and a batched training path over its weights.

transformers walks over pictures one by one in the vision tower; here pictures of one size go through together.
``tests/tiny/test_model.py`` holds both paths against one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.vision_utils import get_vision_position_ids

from foveola.tiny.tokens import token_id

PATCH = 14
MERGE = 2
# Rows and columns of tokens that are told apart while training.
SPOTS = 20


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths and depths. ``max_position`` bounds the rotary table, not what is learned."""

    vision_width: int = 192
    vision_depth: int = 6
    vision_heads: int = 6
    width: int = 256
    inner: int = 768
    depth: int = 4
    heads: int = 4
    kv_heads: int = 2
    vocabulary: int = 2048
    max_position: int = 2048


def build_model(shape: Shape, tokenizer: PreTrainedTokenizerFast) -> Qwen2VLForConditionalGeneration:
    """A model with fresh weights: matrices at 1/sqrt(fan in), what feeds the residual stream scaled down by depth."""
    half = shape.width // shape.heads // 2
    # transformers gives the high frequencies to time, then rows, then columns. With the usual base and shares the phase
    # between two columns is 0.003 rad: nobody could tell left from right in a picture of eight tokens. Here neighbours
    # are at least 0.05 rad apart in every frequency, and a picture of 28 columns stays within one turn of most.
    side = (half - 2) // 2
    start, end = token_id(tokenizer, "<|endoftext|>"), token_id(tokenizer, "<|im_end|>")
    rope = {"rope_type": "default", "rope_theta": 20.0, "mrope_section": [half - 2 * side, side, side]}
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": shape.vocabulary, "hidden_size": shape.width, "intermediate_size": shape.inner,
            "num_hidden_layers": shape.depth, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "max_position_embeddings": shape.max_position,
            "rms_norm_eps": 1e-5, "rope_parameters": rope,
            "bos_token_id": start, "eos_token_id": end, "pad_token_id": start,
        },
        vision_config={
            "depth": shape.vision_depth, "embed_dim": shape.vision_width, "hidden_size": shape.width,
            "num_heads": shape.vision_heads, "patch_size": PATCH, "spatial_merge_size": MERGE,
            "temporal_patch_size": 2, "in_channels": 3,
        },
        image_token_id=token_id(tokenizer, "<|image_pad|>"),
        video_token_id=token_id(tokenizer, "<|video_pad|>"),
        vision_start_token_id=token_id(tokenizer, "<|vision_start|>"),
        vision_end_token_id=token_id(tokenizer, "<|vision_end|>"),
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2VLForConditionalGeneration(config)
    model.generation_config.eos_token_id = end
    model.generation_config.pad_token_id = start
    into_residual = ("o_proj.weight", "down_proj.weight", "attn.proj.weight", "fc2.weight")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_tokens" in name or "lm_head" in name:
                weight.normal_(0, 0.04)
            elif weight.ndim == 2:
                scale = 1 / math.sqrt(2 * shape.depth) if name.endswith(into_residual) else 1.0
                weight.normal_(0, scale / math.sqrt(weight.shape[1]))
    return model


def whiten_patches(model: Qwen2VLForConditionalGeneration, pictures: list[NDArray[np.uint8]]) -> None:
    """Sets the patch embedding to the whitened principal components of grey patches of ``pictures`` [H, W, 3]."""
    patches = np.concatenate([to_patches(p).reshape(-1, 3, PATCH * PATCH).mean(1) for p in pictures]).astype(np.float64)
    values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
    values, vectors = values[::-1], vectors[:, ::-1]
    weight = model.model.visual.patch_embed.proj.weight
    count = min(weight.shape[0], PATCH * PATCH)
    basis = (vectors[:, :count] / np.sqrt(values[:count] + 1e-3 * values[5])).T * 0.7
    with torch.no_grad():
        weight.normal_(0, 0.002)
        planes = torch.tensor(basis.copy(), dtype=torch.float32).view(count, 1, 1, PATCH, PATCH)
        weight[:count] += planes.expand(count, 3, 2, PATCH, PATCH) / 6


def to_patches(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 [H, W, 3] → float32 [N, 588] in -1..1: 2×2 merge blocks, channel-major, as the processor orders them,
    with one of the two equal frames."""
    height, width, _ = pixels.shape
    rows, columns = height // PATCH, width // PATCH
    x = (pixels.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)
    x = x.reshape(3, rows // 2, 2, PATCH, columns // 2, 2, PATCH)
    return x.transpose(1, 4, 2, 5, 0, 3, 6).reshape(rows * columns, 3 * PATCH * PATCH)


def merge_order(per_patch: NDArray[np.int64]) -> NDArray[np.int64]:
    """[rows, columns] → [N] in the order of ``to_patches``."""
    rows, columns = per_patch.shape
    return per_patch.reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).reshape(-1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def vision_rope(model: Qwen2VLForConditionalGeneration, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """cos, sin [N, head_dim] of the vision tower for one picture of ``grid`` = (rows, columns) patches."""
    positions = get_vision_position_ids(torch.tensor([[1, *grid]]), MERGE)
    cos, sin = model.model.visual.rotary_pos_emb(torch.zeros(1), positions)
    return cos, sin


def look(model: Qwen2VLForConditionalGeneration, patches: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """The vision tower's blocks, pictures of one size: patches [B, N, 588] → normed patch states [B, N, width]."""
    tower = model.model.visual
    weight = tower.patch_embed.proj.weight.sum(2).flatten(1)
    x = F.linear(patches, weight)
    cos, sin = rope
    for block in tower.blocks:
        batch, count, width = x.shape
        q, k, v = (
            block.attn.qkv(block.norm1(x))
            .view(batch, count, 3, block.attn.num_heads, -1)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        mixed = F.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v)
        x = x + block.attn.proj(mixed.transpose(1, 2).reshape(batch, count, width))
        x = x + block.mlp(block.norm2(x))
    return tower.merger.ln_q(x)  # type: ignore[no-any-return]


def merge(model: Qwen2VLForConditionalGeneration, states: Tensor) -> Tensor:
    """The tower's merger: normed patch states [B, N, width] → features of visual tokens [B, N/4, hidden]."""
    joined = states.view(states.shape[0], states.shape[1] // 4, -1)
    return model.model.visual.merger.mlp(joined)  # type: ignore[no-any-return]


def see(model: Qwen2VLForConditionalGeneration, patches: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """``look`` and ``merge``: patches [B, N, 588] → (normed patch states [B, N, width], features [B, N/4, hidden])."""
    states = look(model, patches, rope)
    return states, merge(model, states)


def read_layers(model: Qwen2VLForConditionalGeneration, x: Tensor, positions: Tensor, mask: Tensor) -> Iterator[Tensor]:
    """The decoder: embeddings [B, L, H], M-RoPE positions [3, B, L], boolean mask [B, 1, L, L] → the residual stream
    [B, L, H] after every layer."""
    decoder = model.model.language_model
    cos, sin = decoder.rotary_emb(x, positions)
    cos, sin = cos[:, None], sin[:, None]
    eps = decoder.config.rms_norm_eps
    batch, length, width = x.shape
    for layer in decoder.layers:
        attention = layer.self_attn
        h = F.rms_norm(x, (width,), layer.input_layernorm.weight, eps)
        q, k, v = (
            p(h).view(batch, length, -1, attention.head_dim).transpose(1, 2)
            for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
        groups = attention.num_key_value_groups
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        x = x + layer.mlp(F.rms_norm(x, (width,), layer.post_attention_layernorm.weight, eps))
        yield x


def gaze(
    model: Qwen2VLForConditionalGeneration, x: Tensor, positions: Tensor, mask: Tensor, slots: Tensor, layer: int
) -> Tensor:
    """Where two heads of a decoder ``layer`` look from ``slots`` [B, K]: logarithms of attention [B, 2, K, L], from the
    residual stream in front of the layer ``x`` [B, L, H]; positions and mask as in ``read_layers``. Where there is more
    than one group of keys, each has its own."""
    decoder = model.model.language_model
    inside = decoder.layers[layer]
    attention, size = inside.self_attn, inside.self_attn.head_dim
    h = F.rms_norm(x, x.shape[-1:], inside.input_layernorm.weight, decoder.config.rms_norm_eps)
    heads = [0, decoder.config.num_attention_heads // 2]
    groups = [head // attention.num_key_value_groups for head in heads]
    rows = torch.arange(size)
    of_q, of_k = (torch.cat([n * size + rows for n in numbers]) for numbers in (heads, groups))
    q, k = (
        F.linear(h, p.weight[of], p.bias[of]).view(*h.shape[:2], 2, size).transpose(1, 2)
        for p, of in ((attention.q_proj, of_q), (attention.k_proj, of_k))
    )
    cos, sin = (turn[:, None] for turn in decoder.rotary_emb(x, positions))
    q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
    q = q.gather(2, slots[:, None, :, None].expand(-1, 2, -1, size))
    allowed = mask.gather(2, slots[:, None, :, None].expand(-1, -1, -1, mask.shape[-1]))
    scores = (q @ k.transpose(2, 3) / math.sqrt(size)).masked_fill(~allowed, float("-inf"))
    return scores.log_softmax(-1)


def final_norm(model: Qwen2VLForConditionalGeneration, x: Tensor) -> Tensor:
    """The norm behind the decoder's last layer."""
    decoder = model.model.language_model
    return F.rms_norm(x, x.shape[-1:], decoder.norm.weight, decoder.config.rms_norm_eps)


def read(model: Qwen2VLForConditionalGeneration, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    """The decoder with its final norm: as ``read_layers``, the last states only [B, L, H]."""
    *_, last = read_layers(model, x, positions, mask)
    return final_norm(model, last)


class AuxiliaryHeads(nn.Module):
    """Heads that only training uses: what lies under each patch and token, its place in the code, the box it belongs
    to, the picture's class, the teacher's features; in the middle of the decoder the row and column of a token, its
    place in the code and the character before it; behind the layer that looks for an answer the box that it tells."""

    def __init__(self, shape: Shape, under: int, classes: int, places: int, before: int, teacher: int) -> None:
        super().__init__()
        self.under = under
        self.patch = nn.Linear(shape.vision_width, under)
        self.token = nn.Linear(shape.width, 2 * under)
        self.place = nn.Linear(shape.width, 2 * places)
        self.box = nn.Linear(shape.width, 4)
        self.picture = nn.Linear(shape.width, classes)
        self.teacher = nn.Linear(shape.width, teacher)
        self.spot = nn.Linear(shape.width, 2 * SPOTS)
        self.order = nn.Linear(shape.width, 2 * places)
        self.told = nn.Linear(shape.width, 4)
        self.before = nn.Linear(shape.width, 2 * before)
