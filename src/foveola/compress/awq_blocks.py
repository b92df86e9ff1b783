"""The work of ``awq``, block after block: which one is next, what enters it, and what becomes of its matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveola.artifact import Checkpoint
from foveola.compress.awq import HalfOptions, Options
from foveola.compress.clip import search_clip
from foveola.compress.example import Example
from foveola.compress.folding import apply_fold, channels, fits
from foveola.compress.gptq import descended, gptq, nearest
from foveola.compress.moments import Moments, gather_moments
from foveola.compress.refit import polished
from foveola.compress.rounding import rounded_tensors
from foveola.compress.scaling import Reader, search_scales, weighted_error
from foveola.compress.steps import Workbench
from foveola.compress.stream import Changed, blocks_of, kept_parameters, rewrite
from foveola.compress.streamed import Call, calls_of, run_block, stream_blocks
from foveola.compress.token_weights import Importance, measure_importance, modality_of, normalised
from foveola.exchange import Damaged, Invalid
from foveola.family import Family
from foveola.family.foldable import Fold, Half, halves
from foveola.weights.formats import Format, parse_storage
from foveola.weights.packed import Packed
from foveola.weights.patterns import matched
from foveola.weights.reader import Parameters, make_resident
from foveola.weights.skeleton import skeleton
from foveola.weights.store import PACKED, packed_entry, packed_tensors

TOLERANCE = 1e-5
"""By how much folding may change a block's result, relative to it."""


def round_blocks(
    source: Checkpoint, family: Family, options: Options, examples: Sequence[Example], folder: Path, bench: Workbench
) -> list[dict[str, Any]]:
    """Write the rounded checkpoint into ``folder``; the figures of every block, with ``layers`` where it has some."""
    if source.config.get(PACKED):
        raise Invalid("the checkpoint is packed already; awq takes one with whole weights.", field="use")
    work = _Work(source, family, options, examples, bench)
    work.measure()
    return rewrite(source, skeleton(source, family), folder, bench.journal, work.change, bench.tell, order=work.order)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Blocks through which data flows one after the other, and how they are rounded."""

    half: Half
    blocks: tuple[str, ...]
    folds: tuple[Fold, ...]
    options: HalfOptions
    dry: tuple[str, ...]
    stop_at: str | None


class _Work:
    def __init__(
        self, source: Checkpoint, family: Family, options: Options, examples: Sequence[Example], bench: Workbench
    ) -> None:
        self._options, self._examples, self._bench = options, list(examples), bench
        self._model = skeleton(source, family)
        self._head_dims = {"decoder": family.decoder_shape(source.config).head_dim}
        if family.parts.vision:
            self._head_dims["vision"] = family.tower_shape(source.config).head_dim
        self._parameters = Parameters(source, self._model)
        self._stages = _stages(self._model, family, options)
        every = [*blocks_of(self._model), *(half.tail for half in halves(family) if half.tail)]
        self.order = tuple(block for stage in self._stages for block in stage.blocks)
        self._linears = [
            path
            for path, module in self._model.named_modules()
            if isinstance(module, nn.Linear) and any(path.startswith(f"{block}.") for block in self.order)
        ]
        self._formats = _formats(self._linears, self._stages, options)
        self._outside = _outside(family, options)
        self._control = stream_blocks(self._model, every, self._read)
        make_resident(self._model, self._parameters, except_under=tuple(every))
        self._importance: dict[str, Importance] = {}
        self._calls: list[dict[str, Call]] = []
        self._hidden: list[Tensor] = []
        self._entered: str | None = None  # the block whose inputs ``_hidden`` holds

    def measure(self) -> None:
        """The backward passes, or what an earlier run left of them."""
        kept = self._bench.journal / "importance.pt"
        if kept.is_file():
            stored = torch.load(kept, weights_only=True)
            self._importance = {path: Importance(one["tokens"], one["rows"]) for path, one in stored.items()}
            return
        tell: Callable[[float], None] = lambda share: self._bench.tell("how much every token matters", 0.3 * share)  # noqa: E731
        self._importance = measure_importance(
            self._model, self._control, self._linears, self._examples, seed=self._bench.seed, tell=tell
        )
        plain = {path: {"tokens": one.tokens, "rows": one.rows} for path, one in self._importance.items()}
        torch.save(plain, kept)

    def change(self, block: str, tensors: dict[str, Tensor]) -> Changed:
        """What ``stream.rewrite`` asks for: a block of a stage, or what lies outside of them."""
        stage = next((one for one in self._stages if block in one.blocks), None)
        if stage is None:
            return self._round_outside(tensors)
        self._enter(stage, block)
        return self._round_block(stage, block, tensors)

    def _read(self, block: str) -> dict[str, Tensor]:
        """A block's parameters: as they were rounded where it is done, else as the source has them."""
        done = None
        if block in self.order:
            done = kept_parameters(self._bench.journal, self.order.index(block))
        return self._parameters.under(block) if done is None else {n[len(block) + 1 :]: t for n, t in done.items()}

    def _enter(self, stage: _Stage, block: str) -> None:
        """Bring ``_hidden`` to what enters ``block``, through blocks that are done."""
        if self._entered == block:
            return
        first = stage.blocks[0]
        self._calls = [
            calls_of(self._model, self._control, example.inputs, dry=stage.dry, stop_at=stage.stop_at)
            if stage.half.name == "decoder" or bool(example.is_vision.any())
            else {}
            for example in self._examples
        ]
        self._hidden = [calls[first][0][0] if first in calls else torch.zeros(0) for calls in self._calls]
        for passed in stage.blocks[: stage.blocks.index(block)]:
            weights = self._read(passed)
            for sample in self._samples():
                self._hidden[sample] = self._run(passed, weights, sample)
        self._entered = block

    def _samples(self) -> list[int]:
        """The samples that reach the stage (texts do not reach a tower)."""
        return [sample for sample, hidden in enumerate(self._hidden) if hidden.numel()]

    def _run(self, block: str, weights: dict[str, Tensor], sample: int) -> Tensor:
        return run_block(self._control.blocks[block], weights, self._calls[sample][block], self._hidden[sample])

    def _round_block(self, stage: _Stage, block: str, tensors: dict[str, Tensor]) -> Changed:
        root = len(block) + 1
        weights = {name[root:]: tensor.float() for name, tensor in tensors.items()}
        samples = self._samples()
        if len(samples) < 2:
            raise Invalid(
                f"{len(samples)} samples have pictures, and the vision tower is rounded, too; give more, or set "
                'vision = "off".',
                field="samples",
            )
        held_out = samples[:: self._options.held_out]
        module = self._control.blocks[block]
        linears = [path[root:] for path in self._formats if path.startswith(f"{block}.")]
        folds = [fold for fold in stage.folds if fits(module, fold)]
        leader = {path: path for path in linears} | {t: f.targets[0] for f in folds for t in f.targets if t in linears}
        token_weights = self._token_weights(stage, block, leader)
        seen = [sample for sample in samples if sample not in set(held_out)]
        moments = gather_moments(module, lambda s: self._run(block, weights, s), seen, held_out, token_weights)
        before = self._run(block, weights, samples[0])
        whole = dict(weights)
        readers = {path: Reader(weights[f"{path}.weight"], self._rows(block, path), self._formats[f"{block}.{path}"])
                   for path in linears}  # fmt: skip
        plain = {path: _plain_error(one, moments.get(leader[path])) for path, one in readers.items()}
        scaled: set[str] = set()
        if stage.options.scales:
            scaling = _Scaling(module, stage.options, self._head_dims[stage.half.name], self._bench.seed)
            scaled = scaling.fold(weights, folds, readers, moments)
        _check_unchanged(block, before, self._run(block, weights, samples[0]))
        kept = {name for name in weights if weights[name] is whole[name]}
        importance = {path: one.importance for path, one in readers.items()}
        del whole, readers  # the weights as they came
        packed: dict[str, Packed] = {}
        layers: list[dict[str, Any]] = []
        for path in linears:
            form, name = self._formats[f"{block}.{path}"], "scales" if leader[path] in scaled else ""
            weight = weights[f"{path}.weight"]
            made, told = choose(weight, importance[path], form, moments.get(leader[path]), stage.options, name)
            packed[f"{block}.{path}"] = made
            weights[f"{path}.weight"] = made.dequantised()
            layers.append({"path": f"{block}.{path}", "format": f"int{form.bits}/{form.block}", "nearest": plain[path],
                           **told})  # fmt: skip
        for sample in samples:
            self._hidden[sample] = self._run(block, weights, sample)
        following = stage.blocks.index(block) + 1
        self._entered = stage.blocks[following] if following < len(stage.blocks) else None
        return _changed(block, tensors, kept, weights, packed, layers)

    def _token_weights(self, stage: _Stage, block: str, leader: dict[str, str]) -> dict[str, list[Tensor]]:
        """Leader -> the weights of every sample's tokens: the gradients of all layers that share its input, summed."""
        shares = self._options.shares
        modalities = [modality_of(example) for example in self._examples]
        found = {}
        for first in dict.fromkeys(leader.values()):
            followers = [self._importance[f"{block}.{path}"].tokens for path, of in leader.items() if of == first]
            summed = [torch.stack(parts).sum(0) for parts in zip(*followers, strict=True)]
            by_modality = stage.half.name == "decoder" and all(
                len(one) == len(kinds) for one, kinds in zip(summed, modalities, strict=True)
            )
            found[first] = normalised(
                summed,
                modalities if by_modality else None,
                (shares.vision, shares.prompt, shares.answer),
                self._options.power,
            )
        return found

    def _rows(self, block: str, path: str) -> Tensor:
        """How much each row of a layer matters; alike where no gradient reached it."""
        rows = self._importance[f"{block}.{path}"].rows
        count = self._control.blocks[block].get_submodule(path).out_features
        return rows if len(rows) and float(rows.sum()) > 0 else torch.ones(int(count))  # type: ignore[arg-type]

    def _round_outside(self, tensors: dict[str, Tensor]) -> Changed:
        for name in tensors:
            storage = self._outside.get(name.removesuffix(".weight"))
            if storage is not None:
                return rounded_tensors(tensors, {name.removesuffix(".weight")}, storage)
        return rounded_tensors(tensors, set(), "fp16")


class _Scaling:
    """The scale search over the folds of one block."""

    def __init__(self, module: nn.Module, options: HalfOptions, head_dim: int, seed: int) -> None:
        self._module, self._options, self._head_dim, self._seed = module, options, head_dim, seed

    def fold(
        self, weights: dict[str, Tensor], folds: Sequence[Fold], readers: dict[str, Reader], moments: dict[str, Moments]
    ) -> set[str]:
        """Scale ``weights``, and ``moments`` to what the scaled layers read, in place; the leaders that were."""
        scaled: set[str] = set()
        for fold in folds:
            channel_K = channels(self._module, fold, self._head_dim)
            first = fold.targets[0]
            reading = [readers[path] for path in fold.targets if path in readers]
            if channel_K is None or first not in moments or len(reading) != len(fold.targets):
                continue
            seen = moments[first]
            scale, plain, least = search_scales(
                reading, seen.gram, seen.magnitude, channel_K, ratios=self._options.ratios, seed=self._seed
            )
            if least < plain:
                apply_fold(weights, fold, scale, channel_K)
                seen.shrink(scale[channel_K])
                scaled.add(first)
        return scaled


def choose(
    weight_NK: Tensor,
    importance_N: Tensor,
    form: Format,
    moments: Moments | None,
    options: HalfOptions,
    scaled: str = "",
) -> tuple[Packed, dict[str, Any]]:
    """What errs least on held-out inputs, and the relative output errors of all that was tried.

    ``weight_NK`` and ``moments`` are as folding left them; where it did something, ``scaled`` says so in the names.
    """
    if moments is None:
        return nearest(weight_NK, form), {"chosen": "nearest", "measured": 0.0, "predicted": 0.0}
    energy = max(moments.held_error(weight_NK, importance_N), 1e-30)

    def error(made: Packed) -> float:
        return float((moments.held_error(made.dequantised() - weight_NK, importance_N) / energy) ** 0.5)

    tried: dict[str, Packed] = {scaled or "nearest": nearest(weight_NK, form)}
    shrink = search_clip(weight_NK, moments.gram, form.bits, form.block) if options.clip else None
    prefix = f"{scaled}+" if scaled else ""
    if shrink is not None:
        tried[f"{prefix}clip"] = nearest(weight_NK, form, shrink)
    if options.gptq:
        tried[f"{prefix}gptq"] = gptq(weight_NK, moments.gram, form, damping=options.damping)
        if shrink is not None:
            made = gptq(weight_NK, moments.gram, form, shrink_NB=shrink, damping=options.damping)
            tried[f"{prefix}clip+gptq"] = made
    errors = {name: error(made) for name, made in tried.items()}
    chosen = min(errors, key=lambda name: errors[name])
    if options.gptq:
        again = descended(tried[chosen], weight_NK, moments.gram, damping=options.damping)
        better = {f"{chosen}+descent": again}
        if options.refits:
            again = polished(again, weight_NK, moments.gram, damping=options.damping, rounds=options.refits)
            better[f"{chosen}+descent+refit"] = again
        tried |= better
        errors |= {name: error(made) for name, made in better.items()}
        chosen = min(chosen, *better, key=lambda name: errors[name])
    return tried[chosen], {
        "chosen": chosen,
        "measured": errors[chosen],
        "predicted": _predicted(tried[chosen], weight_NK, importance_N, moments),
        "tried": errors,
    }


def _predicted(made: Packed, weight_NK: Tensor, importance_N: Tensor, moments: Moments) -> float:
    """The relative error on the samples that the rounding has seen."""

    def energy(matrix_NK: Tensor) -> float:
        return weighted_error(matrix_NK, moments.gram, importance_N)

    return float((energy(made.dequantised() - weight_NK) / max(energy(weight_NK), 1e-30)) ** 0.5)


def _plain_error(reader: Reader, moments: Moments | None) -> float:
    """Of round-to-nearest on the weights as they came, relative."""
    if moments is None:
        return 0.0
    energy = max(moments.held_error(reader.weight, reader.importance), 1e-30)
    error = nearest(reader.weight, reader.form).dequantised() - reader.weight
    return float((moments.held_error(error, reader.importance) / energy) ** 0.5)


def _check_unchanged(block: str, before: Tensor, after: Tensor) -> None:
    moved = float((after - before).norm() / before.norm().clamp(min=1e-30))
    if not moved <= TOLERANCE:
        raise Damaged(
            f"folding scales into {block} changed its result by {moved:.1e} of it; at most {TOLERANCE:.0e} is allowed. "
            "The family's record names layers that do not feed one another directly."
        )


def _changed(
    block: str,
    tensors: dict[str, Tensor],
    untouched: set[str],
    weights: dict[str, Tensor],
    packed: dict[str, Packed],
    layers: list[dict[str, Any]],
) -> Changed:
    """Packed matrices as such, what folding changed in fp32, everything else as it was."""
    kept: dict[str, Tensor] = {}
    entries: dict[str, dict[str, int]] = {}
    for name, tensor in tensors.items():
        path, inside = name.removesuffix(".weight"), name[len(block) + 1 :]
        if path in packed:
            kept |= packed_tensors(path, packed[path])
            entries[path] = packed_entry(packed[path])
        else:
            kept[name] = tensor if inside in untouched else weights[inside]
    before = sum(tensor.nbytes for tensor in tensors.values())
    after = sum(tensor.nbytes for tensor in kept.values())
    return Changed(kept, entries, {"before": before, "after": after, "layers": layers})


def _stages(model: nn.Module, family: Family, options: Options) -> list[_Stage]:
    """In the order of the data: the tower's blocks, what lies between, the decoder's blocks."""
    found: list[_Stage] = []
    decoder = f"{halves(family)[-1].blocks}."
    for half in halves(family):
        chosen = options.vision if half.name == "vision" else options.decoder
        if chosen == "off":
            continue
        count = len(list(model.get_submodule(half.blocks).children()))
        blocks = tuple(f"{half.blocks}.{index}" for index in range(count))
        dry = tuple(dict.fromkeys((f"{half.blocks}.", decoder)))
        found.append(_Stage(half, blocks, half.folds, chosen, dry, half.tail or None))
        if half.tail:
            found.append(_Stage(half, (half.tail,), half.tail_folds, chosen, (decoder,), half.tail))
    return found


def _formats(linears: Sequence[str], stages: Sequence[_Stage], options: Options) -> dict[str, Format]:
    """Path -> format of every matrix that is rounded in its block."""
    found: dict[str, Format] = {}
    for path in linears:
        stage = next(one for one in stages if any(path.startswith(f"{block}.") for block in one.blocks))
        found[path] = Format(stage.options.bits, stage.options.group)
    for pattern, text in options.overrides.items():
        for path in matched(pattern, linears, field="overrides"):
            found.pop(path, None)
            if text != "keep":
                storage = parse_storage(text, field="overrides")
                if not isinstance(storage, Format) or storage.symmetric:
                    raise Invalid(f"overrides has {text!r}; expected int4, int8 or keep.", field="overrides")
                found[path] = storage
    return found


def _outside(family: Family, options: Options) -> dict[str, Any]:
    """Path -> storage of the matrices outside of the blocks."""
    parts = {family.parts.embedding: options.embedding, family.parts.head: options.head}
    if family.parts.vision:
        parts[f"{family.parts.vision}.{family.tower.patch}"] = options.patch
    return {path: parse_storage(text) for path, text in parts.items() if text != "keep"}
