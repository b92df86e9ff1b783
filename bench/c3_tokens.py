"""Fewer visual tokens: how far answers move, against chance, an even grid and pooling; what is lost; what is gained.

Three measurements. Fidelity: the checkpoint answers examination questions with all tokens and with some, chosen by each
rule at the same place of the tower (behind two blocks, and behind the last), and the divergence of the answers is
taken. Accuracy: the engine is asked for defect names and places, in both languages, with all tokens and with half of
them. Latency: the engine, bytes in to text out, pictures of 448 x 448 px, all, half and a quarter of the tokens in
turn; the ratio is also taken of processor seconds, which others who use the machine disturb less.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveola.artifact import Bundle, Checkpoint
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.kept import Kept
from foveola.bench.machine import pinned
from foveola.bench.model import describe_model
from foveola.bench.paper import draw, read_paper
from foveola.bench.stats import paired_ratio
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions, usable_cores
from foveola.exchange import Invalid, Request, Sampling, Turn
from foveola.tiny import scenes
from foveola.tiny.exam import Question, is_right

AFTER = 2
NAMES = ("steel: defect", "magnetic: defect", "board: defect", "ball screw: defect", "generated: name")
PLACES = ("generated: cell", "generated: box", "real: where")
SHARES = (0.75, 0.5, 0.25, 0.125)
PARTS = ("fidelity", "accuracy", "latency")
DROP_POINTS, TIMES_FASTER = 0.3, 1.5
PIXELS = 448
ASKED = "Which defect is on this part?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True)
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="compiled from it with --select-after and 448 px")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the project's data folder; the latency needs none")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to measure (default: all)")
    parser.add_argument("--generated", type=int, metavar="N", default=200, help="generated scenes, and as many labels")
    parser.add_argument("--examples", type=int, metavar="N", default=48, help="questions for the fidelity")
    parser.add_argument(
        "--questions", type=int, metavar="N", default=1000, help="for the accuracy, names and places each"
    )
    parser.add_argument("--rounds", type=int, metavar="N", default=40, help="of the latency")
    parser.add_argument(
        "--shares", type=float, metavar="S", nargs="+", default=SHARES, help="of the tokens, for fidelity"
    )
    parser.add_argument("--work", type=Path, metavar="DIR", help="keeps finished parts; another run goes on from there")
    parser.add_argument("--cores", type=int, metavar="N", default=2)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    quick, parts = bool(arguments.quick), arguments.parts
    if arguments.data is None and parts != ["latency"]:
        raise Invalid("fidelity and accuracy ask questions of the examination; name the data with --data DIR.")
    cores = min(arguments.cores, usable_cores())
    kept = Kept(arguments.work, arguments, Checkpoint.open(arguments.checkpoint).model_hash)
    figures: dict[str, Any] = {"after": AFTER, "cores": cores, "parts": parts}
    bars: list[Bar] = []
    paper: list[Question] = []
    if parts != ["latency"]:
        tell("reading the questions")
        paper = [
            one
            for one in read_paper(arguments.data, generated=8 if quick else arguments.generated)
            if one.wording == "train" and one.kind in (*NAMES, *PLACES)
        ]
    if "fidelity" in parts:
        tell("fidelity, with the checkpoint")
        examples = draw([one for one in paper if one.lang == "en"], 4 if quick else arguments.examples)
        shares = SHARES[1:3] if quick else arguments.shares
        moved = figures["fidelity"] = kept.of(
            "fidelity", lambda: {"rows": fidelity(arguments.checkpoint, examples, shares, 1 if quick else 3)}
        )["rows"]
        bars.append(
            Bar("divergence of the best of chance, grid and pool over ours, least of all K", advantage(moved), 1)
        )
    if parts == ["fidelity"]:
        return figures, bars
    with bundle_of(arguments, tell) as path, pinned(cores):
        engine = Engine.open(Bundle.open(path), EngineOptions(threads=cores, feature_cache_mib=0, prefix_cache_mib=0))
        figures["model"] = describe_model(Bundle.open(path))
        if "accuracy" in parts:
            tell("accuracy, with the engine")
            count = 6 if quick else arguments.questions
            for what, kinds in (("name", NAMES), ("place", PLACES)):
                asked = draw([one for one in paper if one.kind in kinds], count)
                lost = kept.of(f"accuracy {what}", partial(accuracy, engine, asked))
                figures.setdefault("accuracy", {})[what] = lost
                name = f"points lost on the defect's {what} with half of the tokens"
                bars.append(Bar(name, lost["lost_points"], DROP_POINTS, at_most=True))
        if "latency" in parts:
            tell("latency, with the engine")
            gained = figures["latency"] = latency(engine, 2 if quick else arguments.rounds)
            name = f"times as fast at {PIXELS} px with half of the tokens"
            bars.append(Bar(name, gained["half"]["ratio"]["value"], TIMES_FASTER))
        engine.close(1)
    return figures, bars


def fidelity(
    checkpoint_dir: Path, questions: Sequence[Question], shares: Sequence[float], seeds: int
) -> list[dict[str, Any]]:
    """One row per place, rule and share: mean divergence from the answers of all tokens, and how many stay the same."""
    import torch
    import torch.nn.functional as F

    from foveola.compress.samples import read_examples
    from foveola.compress.selecting import Selecting, telling
    from foveola.compress.token_rivals import by_chance, evenly
    from foveola.compress.tokens import look, look_at_some
    from foveola.family import family_of
    from foveola.weights.loading import load

    checkpoint = Checkpoint.open(checkpoint_dir)
    family = family_of(checkpoint.config)
    model = load(checkpoint, family)
    depth = len(list(model.get_submodule(f"{family.parts.vision}.{family.tower.blocks}").children()))
    rules: dict[str, list[dict[str, Any]]] = {
        "ours": [{"rule": telling}],
        "chance": [{"rule": by_chance(seed)} for seed in range(seeds)],
        "grid": [{"rule": evenly}],
        "pool": [{"rule": evenly, "blend": True}],
    }
    found: dict[tuple[int, str, float], list[tuple[float, bool]]] = {}
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        samples = written(questions, Path(folder))
        for example in read_examples(samples, checkpoint, family):
            full = look(model, example).answers
            tokens = int(example.is_vision.sum())
            for after in (AFTER, depth):
                for name, ways in rules.items():
                    for share in shares:
                        for way in ways:
                            keep = max(1, round(share * tokens))
                            some = look_at_some(model, example, Selecting(model, family, after=after, keep=keep, **way))
                            away = float(F.kl_div(some.answers, full, log_target=True, reduction="batchmean"))
                            same = bool((some.answers.argmax(-1) == full.argmax(-1)).all())
                            found.setdefault((after, name, share), []).append((away, same))
    return [
        {
            "after": after,
            "rule": name,
            "share": share,
            "kl": float(f"{np.mean([away for away, _ in seen]):.4g}"),
            "kl_interval": interval([away for away, _ in seen]),
            "same_answers": round(float(np.mean([same for _, same in seen])), 4),
            "count": len(seen),
        }
        for (after, name, share), seen in found.items()
    ]


def written(questions: Sequence[Question], folder: Path) -> Path:
    """The questions as a file of calibration samples."""
    lines = []
    for number, one in enumerate(questions):
        (folder / f"{number}.bin").write_bytes(one.image)
        lines.append(json.dumps({"prompt": one.text, "answer": one.expected, "image": f"{number}.bin"}))
    path = folder / "samples.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def interval(values: Sequence[float]) -> list[float]:
    """95 %, by bootstrap."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), (2000, len(values))).mean(axis=1)
    return [float(f"{value:.4g}") for value in np.percentile(drawn, [2.5, 97.5])]


def advantage(rows: Sequence[dict[str, Any]]) -> float:
    """The divergence of the best rival over ours, where it is least."""
    by = {(row["after"], row["share"], row["rule"]): row["kl"] for row in rows}
    places = {(after, share) for after, share, _ in by}
    return min(
        min(by[after, share, name] for name in ("chance", "grid", "pool")) / max(by[after, share, "ours"], 1e-12)
        for after, share in places
    )


@contextmanager
def bundle_of(arguments: argparse.Namespace, tell: Tell) -> Iterator[Path]:
    if arguments.bundle is not None:
        yield arguments.bundle.resolve()
        return
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions

    tell("compiling the checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        options = CompileOptions.of_precision(
            "int8@load", image_px=(PIXELS, PIXELS), max_length=2048, select_after=AFTER
        )
        yield compile_checkpoint(arguments.checkpoint, Path(folder, "bundle"), options, name="tokens").path


def ask(engine: Engine, image: bytes, text: str, visual_tokens: int | None) -> tuple[str, int]:
    """The answer, and how many visual tokens the picture has before any is left out."""
    request = Request("c3", (Turn("user", text, (image,)),), Sampling(max_tokens=24), visual_tokens=visual_tokens)
    answer, usage = answer_once(engine, request)
    return answer, usage.images[0].tokens


def accuracy(engine: Engine, questions: Sequence[Question]) -> dict[str, Any]:
    """All tokens against half of them, question by question; pictures as large as training showed them."""
    every, half = [], []
    for one in questions:
        image = no_larger(one.image)
        answer, tokens = ask(engine, image, one.text, None)
        every.append(is_right(one, answer))
        half.append(is_right(one, ask(engine, image, one.text, max(1, tokens // 2))[0]))
    difference = 100 * (np.asarray(every, float) - np.asarray(half, float))
    return {
        "questions": len(questions),
        "all_tokens": round(float(np.mean(every)), 4),
        "half_of_them": round(float(np.mean(half)), 4),
        "lost_points": round(float(difference.mean()), 3),
        "lost_interval": interval(difference.tolist()),
    }


def no_larger(image: bytes) -> bytes:
    """A picture of at most the 224 x 224 pixels that the embedded model learnt from."""
    picture = Image.open(io.BytesIO(image))
    factor = (224 * 224 / (picture.width * picture.height)) ** 0.5
    if factor >= 1:
        return image
    small = picture.resize((round(picture.width * factor), round(picture.height * factor)), Image.Resampling.BICUBIC)
    out = io.BytesIO()
    small.save(out, "PNG")
    return out.getvalue()


def latency(engine: Engine, rounds: int) -> dict[str, Any]:
    """Seconds of the wall and of the processor per answer, medians, and how many times as long all tokens take."""
    images = []
    for seed in range(8):
        out = io.BytesIO()
        Image.fromarray(scenes.scene(np.random.default_rng(seed), PIXELS, PIXELS).pixels).save(out, "JPEG", quality=92)
        images.append(out.getvalue())
    _, tokens = ask(engine, images[0], ASKED, None)
    ways = {"all": None, "half": tokens // 2, "quarter": tokens // 4}
    for way in ways.values():
        ask(engine, images[0], ASKED, way)
    wall: dict[str, list[float]] = {name: [] for name in ways}
    busy: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        names = list(ways)
        for name in names[turn % 3 :] + names[: turn % 3]:
            began, computed = time.perf_counter(), time.process_time()
            ask(engine, images[turn % len(images)], ASKED, ways[name])
            wall[name].append(time.perf_counter() - began)
            busy[name].append(time.process_time() - computed)
    return {
        name: {
            "tokens": tokens if ways[name] is None else ways[name],
            "ms": round(1e3 * float(np.median(wall[name])), 2),
            "p95_ms": round(1e3 * float(np.percentile(wall[name], 95)), 2),
            "processor_ms": round(1e3 * float(np.median(busy[name])), 2),
            "ratio": paired_ratio(wall["all"], wall[name]).to_json(),
            "processor_ratio": paired_ratio(busy["all"], busy[name]).to_json(),
        }
        for name in ways
    }


SCRIPT = Script("c3", "tokens", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
