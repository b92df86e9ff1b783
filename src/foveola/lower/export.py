"""From a loaded model to three ONNX graphs with fixed names: vision, embedding, decoder.

The wrappers (``tower``, ``embedding``, ``decoder``) are traced with ``torch.onnx.export(dynamo=True)``. Every size
that a caller may choose is dynamic: batch, chunk, slot length, patches.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import nn
from torch.export import Dim

from foveola.exchange import Invalid
from foveola.family import Family
from foveola.family.base import Config, DecoderShape
from foveola.lower.decoder import Block, DecoderGraph
from foveola.lower.dense import PackedWeights, fold_patch_kernel
from foveola.lower.export_tower import export_tower, is_plain
from foveola.lower.nbits import QEmbedding
from foveola.lower.tower import TowerGraph
from foveola.lower.tracing import traced

VISION = ("pixel_values", "position_ids", "segment_ids")
SELECTED = ("kept", "counts")
"""What the vision graph gives besides features where it has a place of selection; it takes ``keep`` then."""
EMBED = ("input_ids",)
KEY_BIAS = "key_bias"
"""What the decoder takes besides where visual tokens may stand for several."""
DECODER = ("inputs_embeds", "position_ids", "seqlens_k", "total_sequence_length", "logit_index")


def cache_names(layers: int, when: str) -> list[str]:
    """``past.0.key, past.0.value, past.1.key, …`` for ``when`` in past, present."""
    return [f"{when}.{index}.{part}" for index in range(layers) for part in ("key", "value")]


def export_vision(
    model: nn.Module, family: Family, config: Config, packed: PackedWeights, select_after: int | None = None
) -> ir.Model:
    """pixel_values f32 [N, C*P*P], position_ids i64 [N, 2], segment_ids i64 [N] -> features f32 [M, H].

    With ``select_after`` also keep i64 [N], how many visual tokens the picture of each patch keeps, and -> kept i64
    [M], which they are, counts f32 [M], how many each stands for.
    """
    shape = family.tower_shape(config)
    if not is_plain(shape):
        return export_tower(model, family, config, packed)
    graph = TowerGraph(model, family.parts.vision, family.tower, shape, packed, select_after)
    if select_after is not None and not 0 <= select_after <= len(graph.blocks):
        raise Invalid(
            f"select_after is {select_after}; the vision tower has {len(graph.blocks)} blocks, "
            f"expected 0 to {len(graph.blocks)}.",
            field="select_after",
        )
    width = fold_patch_kernel(model.get_submodule(f"{family.parts.vision}.{family.tower.patch}")).shape[1]
    merged = shape.merge_size**2  # patches that become one feature
    count = 4 * merged
    example = (torch.zeros(count, width), torch.zeros(count, 2, dtype=torch.long), torch.zeros(count, dtype=torch.long))
    patches = merged * Dim("features")
    dynamic = ({0: patches},) * len(VISION)
    sizes: dict[str, list[int | str | None]] = {
        "pixel_values": ["patches", width],
        "position_ids": ["patches", 2],
        "segment_ids": ["patches"],
    }
    if select_after is None:
        results: dict[str, list[int | str | None]] = {"features": ["features", None]}
        return traced(
            graph,
            example,
            dynamic,
            inputs=VISION,
            outputs=("features",),
            dimensions=sizes,
            results=results,
            model=model,
        )
    return traced(
        graph,
        (*example, torch.full((count,), 2)),
        (*dynamic, {0: patches}),
        inputs=(*VISION, "keep"),
        outputs=("features", *SELECTED),
        dimensions={**sizes, "keep": ["patches"]},
        results={"features": ["kept", None], "kept": ["kept"], "counts": ["kept"]},
        model=model,
    )


class Widened(nn.Module):
    """An embedding with zeros behind it, where features of DeepStack would stand."""

    def __init__(self, table: nn.Module, deep: int) -> None:
        super().__init__()
        self.table = table
        self.deep = deep

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[B, S] -> [B, S, (1 + deep) * H]."""
        rows: torch.Tensor = self.table(input_ids)
        return nn.functional.pad(rows, (0, self.deep * rows.shape[-1]))


def export_embed(model: nn.Module, family: Family, table: QEmbedding | None, deep: int = 0) -> ir.Model:
    """input_ids i64 [B, S] -> inputs_embeds f32 [B, S, (1 + deep) * H]."""
    graph = table if table is not None else model.get_submodule(family.parts.embedding)
    if deep:
        graph = Widened(graph, deep)
    return traced(
        graph,
        (torch.zeros(2, 3, dtype=torch.long),),
        ({0: Dim("batch"), 1: Dim("chunk")},),
        inputs=EMBED,
        outputs=("inputs_embeds",),
        dimensions={"input_ids": ["batch", "chunk"]},
        results={"inputs_embeds": ["batch", "chunk", None]},
        model=model,
    )


def _decoder_example(
    shape: DecoderShape, held: Sequence[int], weighs_keys: bool
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Inputs that a decoder is traced with, and which of their axes are dynamic; ``held`` are the key/value heads of
    every layer."""
    batch, chunk, slot = Dim("batch"), Dim("chunk"), Dim("slot")
    example: tuple[object, ...] = (
        torch.zeros(2, 3, shape.embedding),
        torch.zeros(shape.axes, 2, 3, dtype=torch.long),
        torch.full((2,), 6, dtype=torch.int32),
        torch.tensor(7, dtype=torch.int32),
        torch.zeros(2, dtype=torch.long),
        [torch.zeros(2, groups, 11, shape.head_dim) for groups in held for _ in ("key", "value")],
    )
    dynamic: tuple[object, ...] = (
        {0: batch, 1: chunk},
        {1: batch, 2: chunk},
        {0: batch},
        {},
        {0: Dim("wanted")},
        [{0: batch, 2: slot}] * (2 * shape.layers),
    )
    if weighs_keys:
        example, dynamic = (*example, torch.zeros(2, 13)), (*dynamic, {0: batch, 1: Dim("keys")})
    return example, dynamic


def export_decoder(
    model: nn.Module,
    family: Family,
    config: Config,
    packed: PackedWeights,
    evidence_layer: int | None,
    *,
    weighs_keys: bool = False,
    places: int | None = None,
) -> ir.Model:
    """Inputs ``DECODER`` and past -> logits f32 [B, R, V], evidence f32 [B, total], present.

    Without ``evidence_layer`` no evidence. With ``places`` a token's position is its place in the slot, of which there
    are at most so many; ``position_ids`` are not read. With ``weighs_keys`` also key_bias f32 [B, at least total],
    added to the attention to each key.
    """
    shape = family.decoder_shape(config)
    parts, names = family.parts, family.decoder
    graph = DecoderGraph(model, parts.decoder, parts.head, names, shape, packed, evidence_layer, places)
    held = [block.kv_heads for block in graph.blocks if isinstance(block, Block)]  # key/value heads of every layer
    example, dynamic = _decoder_example(shape, held, weighs_keys)
    past, present = cache_names(shape.layers, "past"), cache_names(shape.layers, "present")

    def caches_of(names: list[str], length: str) -> dict[str, list[int | str | None]]:
        return {name: ["batch", held[index // 2], length, shape.head_dim] for index, name in enumerate(names)}

    return traced(
        graph,
        example,
        dynamic,
        inputs=(*DECODER, *past, *([KEY_BIAS] if weighs_keys else [])),
        outputs=("logits", *(() if evidence_layer is None else ("evidence",)), *present),
        dimensions={
            "inputs_embeds": ["batch", "chunk", shape.embedding],
            "position_ids": [shape.axes, "batch", "chunk"],
            "seqlens_k": ["batch"],
            "total_sequence_length": [],
            "logit_index": ["wanted"],
            **caches_of(past, "slot"),
            KEY_BIAS: ["batch", "keys"],
        },
        results={
            "logits": ["batch", "wanted", shape.vocabulary],
            "evidence": ["batch", "total"],
            # present is as long as the slot where the buffer is shared, as the text where it is not
            **caches_of(present, "slot_or_total"),
        },
        model=model,
    )
