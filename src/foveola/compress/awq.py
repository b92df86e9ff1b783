"""``awq``: few bits for both halves of a model, each with its own settings, from statistics weighted by modality.

Per block, in the order in which data flows, on inputs that have passed the blocks already rounded: weighted second
moments of every input, a scale per channel folded into what feeds it, a clip per block of weights, GPTQ; of what these
give, each layer keeps what errs least on samples that none of them has seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from foveola.artifact import Checkpoint, Finding
from foveola.compress.samples import check_count, read_examples
from foveola.compress.steps import Workbench, step
from foveola.exchange import Invalid
from foveola.family import family_of
from foveola.weights.formats import parse_storage


@dataclass(frozen=True, slots=True)
class HalfOptions:
    """How one half is rounded.

    scales, clip, gptq  whether each is tried; all off is round-to-nearest
    ratios      candidates of the scale search
    damping     of GPTQ, as a share of the mean diagonal
    refits      behind GPTQ, how often the scales of blocks are fitted to the codes and these looked at again
    """

    bits: int = 4
    group: int = 32
    scales: bool = True
    clip: bool = True
    gptq: bool = True
    ratios: int = 20
    damping: float = 0.05
    refits: int = 2

    def __post_init__(self) -> None:
        if self.bits not in (4, 8):
            raise ValueError(f"bits is {self.bits}; expected 4 or 8")
        if self.group not in (16, 32, 64, 128, 256):
            raise ValueError(f"group is {self.group}; expected 16, 32, 64, 128 or 256")
        if self.ratios < 1 or not 0 < self.damping <= 1 or self.refits < 0:
            raise ValueError(
                f"ratios is {self.ratios}, damping {self.damping}, refits {self.refits}; expected at least 1, above 0 "
                "and up to 1, and 0 or more"
            )


@dataclass(frozen=True, slots=True)
class TokenShares:
    """How the weight of all tokens is divided between the modalities."""

    vision: float = 1.0
    prompt: float = 1.0
    answer: float = 1.0

    def __post_init__(self) -> None:
        if not all(0 < share < math.inf for share in (self.vision, self.prompt, self.answer)):
            raise ValueError("a share is no number above 0; every modality weighs something")


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that is the same for all blocks; see ``Awq``."""

    vision: HalfOptions | Literal["off"] = field(default_factory=HalfOptions)
    decoder: HalfOptions | Literal["off"] = field(default_factory=HalfOptions)
    overrides: Mapping[str, str] = field(default_factory=dict)
    embedding: str = "int8/32"
    head: str = "int8/32"
    patch: str = "int8/32"
    shares: TokenShares = field(default_factory=TokenShares)
    power: float = 0.5
    held_out: int = 8
    longest: int = 512


@step("awq")
@dataclass(frozen=True, slots=True)
class Awq(Options):
    """Rounds both halves.

    vision, decoder  how, or "off"
    overrides   pattern of module paths -> int4/32, int8/128 or keep; the last match counts
    embedding, head, patch  storage of what lies outside of the blocks; keep leaves it (a tied head is the embedding)
    shares      of the modalities in the statistics
    power       how far gradients tell tokens apart: 0 not at all, 1 as they are
    held_out    one sample in so many is kept for the choice between methods
    longest     tokens of a text
    """

    def __post_init__(self) -> None:
        if self.held_out < 2 or self.longest < 2 or not 0 <= self.power <= 1:
            raise ValueError("held_out and longest are at least 2, power is 0 to 1")

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Round block by block. Raises ``Invalid`` for a recipe without samples or a pattern that matches nothing."""
        from foveola.compress.awq_blocks import round_blocks

        start = time.perf_counter()
        if bench.calibration is None:
            raise Invalid("awq needs samples: add [calibration] samples = FILE to the recipe.", field="calibration")
        for name, text in (("embedding", self.embedding), ("head", self.head), ("patch", self.patch)):
            if text != "keep":
                parse_storage(text, field=name)
        family = family_of(source.config)
        examples = read_examples(bench.calibration, source, family, longest=self.longest)
        check_count(examples, self.held_out)
        figures = round_blocks(source, family, self, examples, folder, bench)
        layers: list[dict[str, Any]] = [layer for figure in figures for layer in figure.get("layers", [])]
        before, after = (sum(figure[key] for figure in figures) for key in ("before", "after"))
        return Finding(
            step="compress.awq",
            changed=_words(layers),
            before={"weight_bytes": before, "relative_output_error": _mean(layers, "nearest")},
            after={"weight_bytes": after, "relative_output_error": _mean(layers, "measured")},
            seconds=time.perf_counter() - start,
            options={"layers": layers, "samples": len(examples)},
        )


def _words(layers: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for layer in layers:
        counts[layer["chosen"]] = counts.get(layer["chosen"], 0) + 1
    chosen = ", ".join(f"{count} by {name}" for name, count in sorted(counts.items()))
    return f"{len(layers)} matrices rounded: {chosen}; before: round-to-nearest"


def _mean(layers: list[dict[str, Any]], key: str) -> float:
    """Root of the mean squared relative error over layers."""
    return float((sum(layer[key] ** 2 for layer in layers) / max(1, len(layers))) ** 0.5)
