"""Every family from checkpoint to answer: parity of the graphs, and text against the family's own class.

A small random checkpoint of each family is compressed (``round``: the decoder's layers in 4 bits), compiled (the rest
in 8, arithmetic in fp32), served by the engine, and asked about pictures of mixed sizes, one and several; the reference
generates from the same rounded weights. A checkpoint of experts is rounded when it is compiled instead.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle, Checkpoint
from foveola.bench.evidence import Bar, Script, Tell
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Request, Sampling, Turn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
TOLERANCE, FAMILIES = 1e-4, 8
SIZES: tuple[tuple[tuple[int, int], ...], ...] = (((120, 90),), ((40, 130), (200, 60), (64, 64)), ())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, metavar="N", default=64)
    parser.add_argument("--families", metavar="A,B", help="only these (default: all that have a maker)")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    from tests.family.making import MAKERS

    names = arguments.families.split(",") if arguments.families else list(MAKERS)
    rows: dict[str, dict[str, Any]] = {}
    for name in names[:1] if arguments.quick else names:
        tell(f"{name}: compiling and asking")
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = examined(name, Path(folder), arguments.tokens)
    seeing = [row for name, row in rows.items() if name != "llama"]
    return {"families": rows, "tokens": arguments.tokens}, (
        Bar("vision-language families through the full line", sum(row["same_text"] for row in seeing), FAMILIES),
        Bar("largest relative difference of a graph", max(row["error"] for row in rows.values()), TOLERANCE, True),
        Bar("families whose text differs", sum(not row["same_text"] for row in rows.values()), 0, True),
    )


def examined(name: str, folder: Path, tokens: int) -> dict[str, Any]:
    from foveola.family import family_of
    from foveola.lower.compile import compile_checkpoint, rules
    from foveola.lower.options import CompileOptions
    from foveola.lower.storage import apply, keeping, plan
    from foveola.weights.loading import load
    from foveola.weights.quantised import packed_matrices
    from tests.family.asking import answered, picture
    from tests.family.making import checkpoint

    source = checkpoint(folder / "checkpoint", name)
    options = CompileOptions.of_precision("int4", accuracy_level=1, max_length=1024)
    small = compressed(source, folder / "small")
    bundle: Bundle = compile_checkpoint(small, folder / "bundle", options)
    opened = Checkpoint.open(small)
    family = family_of(opened.config)
    model = load(opened, family)
    kept = {path: read() for path, read in packed_matrices(opened, model).items()}
    blocks = family.tower_shape(opened.config).blocks if family.sees else None
    apply(model, keeping(plan(model, family, rules(family, options), blocks), kept), kept)
    errors = next(finding for finding in bundle.lineage if finding.step == "lower.parity").after
    engine = Engine.open(bundle, EngineOptions(threads=1, slots=1))
    same = []
    try:
        for sizes in SIZES if family.sees else ((),):
            pictures = [picture(*size, seed) for seed, size in enumerate(sizes)]
            question = "Which defect is this? Where?"
            turn = Turn("user", question, tuple(map(png, pictures)))
            text, usage = answer_once(engine, Request("k1", (turn,), Sampling(max_tokens=tokens)))
            same.append((text, usage.prompt_tokens) == answered(source, model, pictures, question, tokens))
    finally:
        engine.close(5)
    return {
        "error": max(map(float, errors.values())),
        "matrices_compressed": len(kept),
        "conversations": len(same),
        "same_text": all(same),
    }


def compressed(source: Path, out: Path) -> Path:
    """The checkpoint with its decoder's layers in 4 bits; as it is where that is refused (experts)."""
    from foveola.compress.recipe import Recipe
    from foveola.compress.rounding import Round
    from foveola.compress.run import compress
    from foveola.exchange import Unsupported
    from foveola.family import family_of

    family = family_of(Checkpoint.open(source).config)
    try:
        return compress(source, Recipe((Round((f"{family.parts.decoder}.{family.decoder.layers}.*",)),)), out).path
    except Unsupported:
        return source


def png(image: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


SCRIPT = Script("k1", "families", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
