"""Token maps for docs/visual-tokens.md: generated pictures, and what the model keeps of them.

    python bench/token_maps.py --bundle DIR     writes docs/images/visual-tokens-<n>.png

From left to right: the picture, half of its visual tokens, a quarter. The bundle must have a place of selection.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from foveola.bench.work import encoded
from foveola.compress.token_map import strip, token_map
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Refusal, Request, Sampling, Turn
from foveola.tiny import scenes

SEEDS = (3, 11, 26)
OUT = Path(__file__).parent.parent / "docs" / "images"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, metavar="DIR", required=True)
    arguments = parser.parse_args(argv)
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        engine = Engine.open(arguments.bundle.resolve(), EngineOptions())
        for number, seed in enumerate(SEEDS, 1):
            one = scenes.scene(np.random.default_rng(seed), 224, 224, counts=(0, 1))
            maps(engine, encoded(one.pixels, "PNG")).save(OUT / f"visual-tokens-{number}.png")
        engine.close(1)
    except Refusal as refusal:
        print(f"token_maps.py: {refusal.message}", file=sys.stderr)
        return 2
    return 0


def maps(engine: Engine, image: bytes) -> Image.Image:
    def kept(visual_tokens: int | None) -> tuple[tuple[int, int], list[int]]:
        turn = Turn("user", "Which defect is on this part?", (image,))
        usage = answer_once(engine, Request("map", (turn,), Sampling(max_tokens=1), visual_tokens=visual_tokens))[1]
        (seen,) = usage.evidence  # what was left out has no weight at all
        return seen.grid, [token for token, weight in enumerate(seen.weights) if weight > 0]

    rgb = np.asarray(Image.open(io.BytesIO(image)).convert("RGB"))
    grid, every = kept(None)
    return strip([rgb, *(token_map(rgb, grid, kept(max(1, len(every) // part))[1]) for part in (2, 4))])


if __name__ == "__main__":
    raise SystemExit(main())
