"""From a loaded model to three ONNX graphs with fixed names: vision, embedding, decoder.

The wrappers (``tower``, ``embedding``, ``decoder``) are traced with ``torch.onnx.export(dynamo=True)``. Every size
that a caller may choose is dynamic: batch, chunk, slot length, patches.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir
import torch
from torch import nn
from torch.export import Dim

from foveola.family import Family
from foveola.family.base import Config
from foveola.lower import operators
from foveola.lower.decoder import Block, DecoderGraph
from foveola.lower.dense import Dense, PackedWeights, fold_patch_kernel
from foveola.lower.narrow import expand_at_load
from foveola.lower.nbits import QEmbedding
from foveola.lower.tidy import tidy
from foveola.lower.tower import TowerGraph

VISION = ("pixel_values", "position_ids", "segment_ids")
EMBED = ("input_ids",)
DECODER = ("inputs_embeds", "position_ids", "seqlens_k", "total_sequence_length", "logit_index")


def cache_names(layers: int, when: str) -> list[str]:
    """``past.0.key, past.0.value, past.1.key, …`` for ``when`` in past, present."""
    return [f"{when}.{index}.{part}" for index in range(layers) for part in ("key", "value")]


def export_vision(model: nn.Module, family: Family, config: Config, packed: PackedWeights) -> ir.Model:
    """pixel_values f32 [N, C*P*P], position_ids i64 [N, 2], segment_ids i64 [N] -> features f32 [M, H]."""
    graph = TowerGraph(model, family.parts.vision, family.tower, family.tower_shape(config), packed)
    width = fold_patch_kernel(model.get_submodule(f"{family.parts.vision}.{family.tower.patch}")).shape[1]
    merged = family.tower_shape(config).merge_size ** 2  # patches that become one feature
    example = (
        torch.zeros(4 * merged, width),
        torch.zeros(4 * merged, 2, dtype=torch.long),
        torch.zeros(4 * merged, dtype=torch.long),
    )
    patches = merged * Dim("features")
    return _traced(
        graph,
        example,
        ({0: patches}, {0: patches}, {0: patches}),
        inputs=VISION,
        outputs=("features",),
        dimensions={"pixel_values": ["patches", width], "position_ids": ["patches", 2], "segment_ids": ["patches"]},
        results={"features": ["features", None]},
    )


def export_embed(model: nn.Module, family: Family, table: QEmbedding | None) -> ir.Model:
    """input_ids i64 [B, S] -> inputs_embeds f32 [B, S, H]."""
    graph = table if table is not None else model.get_submodule(family.parts.embedding)
    return _traced(
        graph,
        (torch.zeros(2, 3, dtype=torch.long),),
        ({0: Dim("batch"), 1: Dim("chunk")},),
        inputs=EMBED,
        outputs=("inputs_embeds",),
        dimensions={"input_ids": ["batch", "chunk"]},
        results={"inputs_embeds": ["batch", "chunk", None]},
    )


def export_decoder(
    model: nn.Module, family: Family, config: Config, packed: PackedWeights, evidence_layer: int
) -> ir.Model:
    """Inputs ``DECODER`` and past -> logits f32 [B, R, V], evidence f32 [B, total], present."""
    shape = family.decoder_shape(config)
    graph = DecoderGraph(model, family.parts.decoder, family.parts.head, family.decoder, shape, packed, evidence_layer)
    batch, chunk, slot, wanted = Dim("batch"), Dim("chunk"), Dim("slot"), Dim("wanted")
    held = [block.kv_heads for block in graph.blocks if isinstance(block, Block)]  # key/value heads of every layer
    axes = 1 + max(shape.rotary_axes) if shape.rotary_axes else 0
    positions = torch.zeros(*([axes] if axes else []), 2, 3, dtype=torch.long)
    example = (
        torch.zeros(2, 3, shape.hidden),
        positions,
        torch.full((2,), 6, dtype=torch.int32),
        torch.tensor(7, dtype=torch.int32),
        torch.zeros(2, dtype=torch.long),
        [torch.zeros(2, groups, 11, shape.head_dim) for groups in held for _ in ("key", "value")],
    )
    dynamic: tuple[object, ...] = (
        {0: batch, 1: chunk},
        {1: batch, 2: chunk} if axes else {0: batch, 1: chunk},
        {0: batch},
        {},
        {0: wanted},
        [{0: batch, 2: slot}] * (2 * shape.layers),
    )
    past, present = cache_names(shape.layers, "past"), cache_names(shape.layers, "present")

    def caches_of(names: list[str], length: str) -> dict[str, list[int | str | None]]:
        return {name: ["batch", held[index // 2], length, shape.head_dim] for index, name in enumerate(names)}

    return _traced(
        graph,
        example,
        dynamic,
        inputs=(*DECODER, *past),
        outputs=("logits", "evidence", *present),
        dimensions={
            "inputs_embeds": ["batch", "chunk", shape.hidden],
            "position_ids": [*([axes] if axes else []), "batch", "chunk"],
            "seqlens_k": ["batch"],
            "total_sequence_length": [],
            "logit_index": ["wanted"],
            **caches_of(past, "slot"),
        },
        results={
            "logits": ["batch", "wanted", shape.vocabulary],
            "evidence": ["batch", "total"],
            # present is as long as the slot where the buffer is shared, as the text where it is not
            **caches_of(present, "slot_or_total"),
        },
    )


def _traced(
    graph: nn.Module,
    example: tuple[object, ...],
    dynamic: tuple[object, ...],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dimensions: dict[str, list[int | str | None]],
    results: dict[str, list[int | str | None]],
) -> ir.Model:
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph.eval(),
            example,
            dynamo=True,
            dynamic_shapes=dynamic,
            input_names=list(inputs),
            output_names=list(outputs),
            opset_version=operators.OPSET,
            optimize=True,
            verbose=False,
        )
    assert program is not None
    model = tidy(program.model, dimensions | results)
    modules = graph.named_modules()
    expanded = {f"{path}.weight": m.packed for path, m in modules if isinstance(m, Dense) and m.packed is not None}
    expand_at_load(model, expanded)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter's notes about missing kernels of other packages are noise; errors still come through."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)
