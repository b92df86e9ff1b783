"""The step ``prune`` of a recipe: see ``prune`` for what it does and for its options."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from foveola.artifact import Checkpoint, Finding
from foveola.compress.prune import PruneOptions, finding_of, prune_model, write_narrowed
from foveola.compress.samples import read_examples
from foveola.compress.steps import Workbench, step
from foveola.exchange import Invalid
from foveola.family import family_of
from foveola.weights.loading import load
from foveola.weights.widths import sizes_of


@step("prune")
@dataclass(frozen=True, slots=True)
class Prune(PruneOptions):
    """Takes whole units out of both halves. The fields are those of ``PruneOptions``."""

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Prune and write the narrower checkpoint. Raises ``Invalid`` where samples are missing or nothing would be
        left, ``Unsupported`` for a decoder with fused layers."""
        start = time.perf_counter()
        if bench.calibration is None:
            raise Invalid("prune calibrates on samples; give the recipe [calibration] samples = FILE.", field="samples")
        family = family_of(source.config)
        model = load(source, family)
        usual = sizes_of(model)
        examples = read_examples(bench.calibration, source, family)
        pruned = prune_model(model, family, source.config, examples, self, bench.tell)
        write_narrowed(source, model, usual, folder)
        return finding_of(pruned, self, time.perf_counter() - start)
