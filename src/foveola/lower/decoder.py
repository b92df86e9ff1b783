"""The decoder as a graph: embeddings and a key/value cache in, logits of the wanted positions out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from foveola.family import DecoderNames
from foveola.family.base import DecoderShape
from foveola.lower import operators
from foveola.lower.activation import activation
from foveola.lower.dense import PackedWeights, inputs_of, layer
from foveola.lower.experts import Experts
from foveola.lower.norms import RmsNorm
from foveola.lower.rotary import Rotary


class Block(nn.Module):
    """The layers of one decoder block."""

    def __init__(
        self,
        model: nn.Module,
        path: str,
        names: DecoderNames,
        shape: DecoderShape,
        packed: PackedWeights,
        index: int,
    ) -> None:
        super().__init__()
        at = f"{path}.".__add__
        self.attention_norm = RmsNorm(model.get_submodule(at(names.input_norm)))
        self.qkv = layer(model, [at(name) for name in names.attention_inputs], packed)
        self.query_norm, self.key_norm = (
            RmsNorm(model.get_submodule(at(name))) if name else None for name in (names.query_norm, names.key_norm)
        )
        self.output = layer(model, [at(names.output)], packed)
        self.mlp_norm = RmsNorm(model.get_submodule(at(names.mlp_norm)))
        self.experts: Experts | None = None
        self.gate: nn.Module | None = None
        self.activation = activation(shape.activation)
        if shape.experts and index not in shape.dense_layers:
            assert names.router and names.experts
            self.experts = Experts(model, at(names.router), at(names.experts), shape)
        elif names.gate_up:
            self.gate_up = layer(model, [at(names.gate_up)], packed)
            self.down = layer(model, [at(names.down)], packed)
        else:
            self.gate = layer(model, [at(names.gate)], packed)
            self.up = layer(model, [at(names.up)], packed)
            self.down = layer(model, [at(names.down)], packed)
        # Its own, not the model's: blocks may be pruned apart.
        self.heads = inputs_of(model, at(names.output)) // shape.head_dim
        self.kv_heads = self.heads * shape.kv_heads // shape.heads
        self.widths = [count * shape.head_dim for count in (self.heads, self.kv_heads, self.kv_heads)]

    def mlp(self, x: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]."""
        if self.experts is not None:
            return self.experts.forward(x)
        gate, up = (self.gate(x), self.up(x)) if self.gate is not None else self.gate_up(x).chunk(2, dim=-1)
        down: Tensor = self.down(self.activation(gate) * up)
        return down

    def heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, S, H] -> query, key and value, [B, S, heads * D] each; the first two normalised head by head."""
        q, k, v = self.qkv(x).split(self.widths, dim=-1)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = _each_head(self.query_norm, q), _each_head(self.key_norm, k)
        return q, k, v

    def as_made(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """[B, S, H] -> query, key and value in one piece where no norm stands between; else as ``heads_of``."""
        return (self.qkv(x), None, None) if self.query_norm is None else self.heads_of(x)


def _each_head(norm: RmsNorm, x: Tensor) -> Tensor:
    """[B, S, heads * D], normalised over every D."""
    each: Tensor = norm(x.reshape(*x.shape[:-1], -1, norm.weight.shape[0]))
    return each.reshape(x.shape)


class DecoderGraph(nn.Module):
    """A pre-norm decoder with gated MLP, for tracing. Inputs and outputs as in ``export.DECODER``.

    Without ``evidence_layer`` there is no evidence among the outputs. With ``places``, the length of the longest slot,
    a token's position is its place in the slot, whatever ``position_ids`` says: then attention turns queries and keys
    itself and takes them as one product makes them, which saves three operators per block and every step.

    After the last attention only the rows of ``logit_index`` go on: the others are needed by nobody.

    ``key_bias`` is there where visual tokens may stand for several: the logarithm of how many, per key, so that
    attention counts them all (Bolya et al. 2023, arXiv:2210.09461, equation 3).
    """

    def __init__(
        self,
        model: nn.Module,
        decoder: str,
        head: str,
        names: DecoderNames,
        shape: DecoderShape,
        packed: PackedWeights,
        evidence_layer: int | None,
        places: int | None = None,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.evidence_layer = evidence_layer
        self.places = places
        root = model.get_submodule(decoder)
        self.rotary = Rotary(root.get_submodule(names.rotary), shape.rotary_axes)
        self.blocks = nn.ModuleList(
            Block(model, f"{decoder}.{names.layers}.{index}", names, shape, packed, index)
            for index in range(shape.layers)
        )
        self.norm = RmsNorm(root.get_submodule(names.norm))
        self.head = layer(model, [head], packed)
        self.scale = shape.head_dim**-0.5

    def forward(
        self,
        inputs_embeds: Tensor,
        position_ids: Tensor,
        seqlens_k: Tensor,
        total_sequence_length: Tensor,
        logit_index: Tensor,
        past: Sequence[Tensor],
        key_bias: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Logits [B, R, V], evidence [B, total] unless there is none, then keys and values of every layer.

        ``key_bias`` [B, >= total].
        """
        turns = None if self.places is None else self._turns(self.places)
        cos, sin = self.rotary(position_ids)
        every, bias = None, None
        if key_bias is not None:
            length: int = total_sequence_length.item()  # type: ignore[assignment]  # while tracing, a symbol for it
            torch._check(length >= 1)  # type: ignore[no-untyped-call]
            torch._check(length <= key_bias.shape[1])  # type: ignore[no-untyped-call]
            every = key_bias[:, None, None, :length]
            bias = every.expand(-1, -1, inputs_embeds.shape[1], -1)
        present: list[Tensor] = []
        evidence: list[Tensor] = []
        # Features of deepstack stand behind the embedding, zeros where a token has none.
        residual, *deep = torch.split(inputs_embeds, self.shape.hidden, dim=-1)
        blocks = [block for block in self.blocks if isinstance(block, Block)]
        x = blocks[0].attention_norm(residual)
        for index, block in enumerate(blocks):
            attend = partial(
                operators.grouped_attention,
                past_k_BGTD=past[2 * index],
                past_v_BGTD=past[2 * index + 1],
                seqlens_k_B=seqlens_k,
                total=total_sequence_length,
                heads=block.heads,
                kv_heads=block.kv_heads,
                scale=self.scale,
                bias_B1ST=bias,
            )
            if turns is not None and index != self.evidence_layer:
                attended, keys, values = attend(*block.as_made(x), turns=turns)
            else:
                q, k, v = block.heads_of(x)
                q = operators.rotary(q, cos, sin, block.heads)
                attended, keys, values = attend(q, operators.rotary(k, cos, sin, block.kv_heads), v)
                if index == self.evidence_layer:
                    evidence = [self._evidence(q, keys, seqlens_k, total_sequence_length, every)]
            present += [keys, values]
            following = self.norm if index == len(blocks) - 1 else blocks[index + 1].attention_norm
            if following is self.norm:
                attended = attended.index_select(1, logit_index)
                residual = residual.index_select(1, logit_index)
            x, residual = block.mlp_norm.after_adding(block.output(attended), residual)
            result = block.mlp(x)
            if index < len(deep):
                result = result + (deep[index].index_select(1, logit_index) if following is self.norm else deep[index])
            x, residual = following.after_adding(result, residual)
        return (self.head(x), *evidence, *present)

    def _turns(self, places: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every place, [places, D // 2]; the runtime computes them once, when it loads the graph."""
        cos, sin = self.rotary(torch.arange(places)[None, None])
        return cos[0], sin[0]

    def _evidence(
        self, q_BSE: Tensor, keys_BGTD: Tensor, seqlens_k_B: Tensor, total: Tensor, bias_B11T: Tensor | None
    ) -> Tensor:
        """Attention of each row's last valid position over its keys, mean over heads: [B, total].

        The probabilities inside GroupQueryAttention are not given out, so they are computed again for one query.
        """
        size = self.shape.head_dim
        batch, chunk, _ = q_BSE.shape
        groups = keys_BGTD.shape[1]
        length: int = total.item()  # type: ignore[assignment]  # while tracing, a symbol for it
        torch._check(length >= 1)  # type: ignore[no-untyped-call]
        torch._check(length <= keys_BGTD.shape[2])  # type: ignore[no-untyped-call]
        keys = keys_BGTD[:, :, :length]
        # Rows are padded on the right. Row b holds seqlens_k + 1 keys, of which total - chunk came before the chunk;
        # a shorter row of a decoding step (chunk 1) has its only query at 0.
        last = (seqlens_k_B.long() - (length - chunk)).clamp(0, chunk - 1)
        query = q_BSE.gather(1, last[:, None, None].expand(-1, 1, q_BSE.shape[2]))
        query = query.view(batch, groups, q_BSE.shape[2] // size // groups, size) * self.scale
        scores = torch.matmul(query, keys.transpose(2, 3))
        if bias_B11T is not None:
            scores = scores + bias_B11T
        valid = torch.arange(length) <= seqlens_k_B[:, None]
        scores = torch.where(valid[:, None, None], scores, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1).mean(dim=(1, 2))
