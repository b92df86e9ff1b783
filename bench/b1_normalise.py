"""How well instructions are understood: intents, lots, calibration and what passes without review.

The corpus is split in halves, three times: one half fits (with the smaller corpora), the other judges. Then everything
fits (that is the calibration that ships, written with --save) and judges wordings that nothing was fitted to
(corpus_unseen.txt). Baselines: the encoder alone, the rules alone and the head alone, on the same instructions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.stats import median
from foveola.bridge.calibrate import PASS_WRONG, Calibrator, halves, remembering
from foveola.bridge.corpus import BUILT_IN, FITTED, UNSEEN, load_corpus
from foveola.bridge.encoder import Encoder, Vectors, e5_encoder
from foveola.bridge.intents import load_intents
from foveola.bridge.score import BUILT_IN as CALIBRATION
from foveola.bridge.score import REVIEW_AT, save_calibration

SEEDS = 3
TOP3 = 0.98


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save", action="store_true", help="write the calibration that ships with the package")
    parser.add_argument(
        "--vectors", type=Path, metavar="FILE", help="keep what the encoder said there, and begin with it"
    )


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    every = 13 if arguments.quick else 1
    intents, fresh = load_intents(), load_corpus(UNSEEN)[::every]
    corpora = [load_corpus(path)[::every] for path in FITTED]
    items = [item for corpus in corpora for item in corpus]
    groups = [number for number, corpus in enumerate(corpora) for _ in corpus]
    encode = remembering(kept(e5_encoder(), arguments.vectors))
    tell(f"encoding {len(items)} instructions")
    calibrator = Calibrator(intents, encode, items, groups=groups)
    splits, proper = [], len(corpora[0])
    for seed in range(SEEDS):
        fitting, judging = halves(proper, seed)
        fitted = calibrator.fit([*fitting, *range(proper, len(items))])
        splits.append(calibrator.judge(fitted, judging))
    final = calibrator.fit(range(len(items)))
    tell(f"judging {len(fresh)} unknown wordings")
    strange = Calibrator(intents, encode, fresh, strangers=0).judge(final, range(len(fresh)))
    if arguments.save:
        save_calibration(final, CALIBRATION)
    began = time.process_time()
    e5 = e5_encoder()
    for index in range(5):
        e5([f"hold lot L{index:04d} please"])
    cpu_ms = (time.process_time() - began) / 5 * 1000
    names = [name for name in splits[0] if name not in ("reliability", "count")]
    figures = {
        "instructions": len(items),
        "review_at": REVIEW_AT,
        "pass_wrong_target": PASS_WRONG,
        "held_out_median_of_3": {name: round(median([one[name] for one in splits]), 4) for name in names},
        "held_out": splits,
        "unknown_wording": strange,
        "encoder_cpu_ms_per_instruction": round(cpu_ms, 1),
        "tags": {tag: sum(tag in item.tags for item in items) for tag in sorted({t for i in items for t in i.tags})},
    }
    held = figures["held_out_median_of_3"]
    return figures, [
        Bar("labelled instructions", len(load_corpus(BUILT_IN)), 600),
        Bar("unknown wordings, written before anything was tuned", len(load_corpus(UNSEEN)), 80),
        Bar("unknown wording: intent right", strange["accuracy"], 0.75),
        Bar("held out: intent right over the better baseline",
            held["accuracy"] - max(held["accuracy_rules_alone"], held["accuracy_encoder_alone"]), 0.0),
        Bar("held out: meant intent among the top 3", held["accuracy_top3"], TOP3),
        Bar("held out: wrong and passed at 0.65, share of all", held["wrong_and_passed"], PASS_WRONG, at_most=True),
        Bar("unknown wording: wrong and passed at 0.65, share of all", strange["wrong_and_passed"], PASS_WRONG,
            at_most=True),
    ]  # fmt: skip


def kept(encode: Encoder, file: Path | None) -> Encoder:
    """``encode``, with a file (.npz) for what it said."""
    if file is None:
        return encode
    held = np.load(file) if file.is_file() else {"texts": np.array([], str), "vectors": np.zeros((0, 0))}
    known = dict(zip(held["texts"].tolist(), held["vectors"], strict=True))

    def recall(texts: Sequence[str]) -> Vectors:
        new = [text for text in texts if text not in known]
        if new:
            known.update(zip(new, encode(new), strict=True))
            np.savez(file, texts=np.array(list(known)), vectors=np.stack(list(known.values())))
        return np.stack([known[text] for text in texts])

    return recall


SCRIPT = Script("b1", "normalise", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
