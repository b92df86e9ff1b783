"""100 nodes train one prompt [16, width]: accuracy beside one place, bytes on the wire, poisoned nodes, time to close.

What is trained is a convex stand-in, a row of the prompt per class on frozen features, and not a prompt inside of the
model. Nodes see few classes (Dirichlet, 0.3), a tenth is away in every round and a twentieth comes too late. Where the
pictures are, the features are those that the embedded model's tower gives of them at 112 x 112 (--features keeps them,
since they are most of the time): 16 uneven classes of five sets (the boards are one), 13 pictures a node, tested on the
pictures that the embedded model never trained on; attacks are tried there. Without them, and with --quick, features are
drawn. A fifth of the nodes is malicious: it sends the opposite of what it found 20 times over (flip), or trains on
wrong labels and sends that 100 times over (scale), or sends noise. They are held against a federation in which they are
honest; what one place reaches without their pictures stands beside it. The bare mean does not bound norms. What the
server does with what the nodes agree on, and how it is bounded, is compared by curves over the rounds.

Federations are kept in --state, one file each, so that an interrupted measurement goes on; remove the folder after a
change of the code.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.kept import kept
from foveola.exchange import Refusal
from foveola.intake import Limits, decode
from foveola.intake.geometries import geometry_of
from foveola.learn.federate.aggregate import aggregate
from foveola.learn.federate.codec import Floats, compress
from foveola.learn.federate.options import RULES, FederationOptions
from foveola.learn.federate.problem import Labels, accuracy, normalised, synthetic
from foveola.learn.federate.rounds import Federation
from foveola.learn.federate.simulate import Simulation, SimulationOptions
from foveola.learn.federate.wire import Update, digest, pack
from foveola.serve.embedded import embedded_bundle
from foveola.tiny.real import is_held_out

SIDE_PX, NODES, MALICIOUS, MAX_BYTES, ROUNDS, EVERY = 112, 100, 0.2, 120_000, 200, 10
ATTACKED = ("flip", "scale", "noise")
Data = tuple[Floats, Labels, Floats, Labels]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, default=Path("../shared/data/defects"), help="pictures and manifest.csv")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--workers", type=int, default=1, help="federations at once (default: 1)")
    parser.add_argument("--seeds", type=int, default=3, help="federations without attackers (default: 3)")
    parser.add_argument("--state", type=Path, default=Path("build/l2"), metavar="DIR", help="where runs are kept")
    parser.add_argument("--features", type=Path, metavar="FILE", help="keep the features there, or take them (.npz)")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], list[Bar]]:
    quick = arguments.quick
    real = not quick and (arguments.data / "manifest.csv").is_file()
    data = picture_data(arguments.data, arguments.features, tell) if real else synthetic_data(quick)
    options = SimulationOptions(nodes=20 if quick else NODES, rounds=10 if quick else arguments.rounds)
    tell("one place, and every federation")
    central = accuracy(options.problem.centralised(data[0], data[1], 1000), data[2], data[3])
    tasks = planned(data[0].shape[1], options, 1 if quick else arguments.seeds)
    state = None
    if not quick:
        state = arguments.state / hashlib.sha256(b"".join(part.tobytes() for part in data)).hexdigest()[:12]
        state.mkdir(parents=True, exist_ok=True)
    done = dict(zip(tasks, all_simulated(data, list(tasks.values()), arguments.workers, state), strict=True))
    clean = [one for (kind, _), one in done.items() if kind == "clean"]
    found = {
        "pictures": real, "trained_on": len(data[1]), "tested_on": len(data[3]), "prompt": [16, data[0].shape[1]],
        "centralised_accuracy": central, "federated": clean,
        "points_lost": 100 * (central - statistics.mean(one["accuracy"] for one in clean)),
        "others": {name: one for (kind, name), one in done.items() if kind == "other"},
    }  # fmt: skip
    found["without_malicious"] = [without(data, options, seed) for seed in range(len(clean))]
    attacked: dict[str, Any] = {}
    for attack in ATTACKED:
        ours = [done[f"ours {seed}", attack] for seed in range(len(clean))]
        lost = [100 * (one["accuracy"] - bad["accuracy"]) for one, bad in zip(clean, ours, strict=True)]
        bare = done["bare mean", attack]
        attacked[attack] = {
            "ours": {"points_lost": statistics.mean(lost), "seeds": lost, **ours[0]},
            "bare mean": {"points_lost": 100 * (clean[0]["accuracy"] - bare["accuracy"]), **bare},
        }
    tell("closing a round")
    closing_ms = closing()
    figures: dict[str, Any] = {
        "options": asdict(options), "compared": found,
        "attacked": attacked, "closing_ms": closing_ms, "rules_cpu_ms": rules(),
    }  # fmt: skip
    return figures, bars(found, attacked, closing_ms)


Task = tuple[SimulationOptions, FederationOptions]


def planned(width: int, options: SimulationOptions, seeds: int) -> dict[tuple[str, str], Task]:
    """Every federation: ours by seed, without attackers and under each attack; two whose server does less; the bare
    mean under each attack (over fewer rounds: it does not get better)."""
    ours = FederationOptions.over(options.rounds, width=width)
    tasks: dict[tuple[str, str], Task] = {("clean", str(n)): (replace(options, seed=n), ours) for n in range(seeds)}
    for rule in ("mean", "centred"):
        less = FederationOptions(width=width, rule=rule, server="plain")
        tasks["other", f"{rule}, plain server"] = options, less
    bare = FederationOptions(width=width, rule="mean", clip=1e9, server="plain")
    for attack in ATTACKED:
        bad = replace(options, malicious=MALICIOUS, attack=attack)
        tasks |= {(f"ours {seed}", attack): (replace(bad, seed=seed), ours) for seed in range(seeds)}
        tasks["bare mean", attack] = replace(bad, rounds=min(options.rounds, 20)), bare
    return tasks


def all_simulated(data: Data, tasks: list[Task], workers: int, state: Path | None) -> list[dict[str, Any]]:
    if workers == 1:
        return [remembered(state, data, *task) for task in tasks]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(remembered, repeat(state), repeat(data), *zip(*tasks, strict=True)))


def remembered(state: Path | None, data: Data, options: SimulationOptions, agreed: FederationOptions) -> dict[str, Any]:
    """A federation that is simulated, or was before."""
    if state is None:
        return simulated(data, options, agreed)
    name = hashlib.sha256(repr((options, agreed)).encode()).hexdigest()[:16]
    return kept(state / f"{name}.json", lambda: simulated(data, options, agreed))


def bars(found: dict[str, Any], attacked: dict[str, Any], closing_ms: dict[str, float]) -> list[Bar]:
    clean = found["federated"]
    kind = "real pictures" if found["pictures"] else "drawn features"
    return [
        Bar(f"points lost against one place, {kind}", found["points_lost"], 1.0, at_most=True),
        Bar("share of bytes saved, updates", min(one["saved_up"] for one in clean), 0.95),
        Bar("share of bytes saved, both ways", min(one["saved_both_ways"] for one in clean), 0.95),
        Bar("largest update, bytes", max(one["largest_update_bytes"] for one in clean), MAX_BYTES, at_most=True),
        Bar("decode and aggregate 100 updates [16, 768], ms of one core", closing_ms["cpu"], 80, at_most=True),
        *(Bar(f"points lost, 20 % {a}", attacked[a]["ours"]["points_lost"], 1.0, at_most=True) for a in ATTACKED),
        *(Bar(f"points the bare mean loses, 20 % {a}", attacked[a]["bare mean"]["points_lost"], 10) for a in ATTACKED),
    ]


def simulated(data: Data, options: SimulationOptions, agreed: FederationOptions | None = None) -> dict[str, Any]:
    """What came out, and the accuracy after every ``EVERY`` rounds."""
    simulation = Simulation(data[0], data[1], options, agreed)
    curve = []
    for _ in range(options.rounds // EVERY):
        simulation.run(range(EVERY))
        curve.append(round(accuracy(simulation.prompt, data[2], data[3]), 4))
    return {**simulation.report(data[2], data[3]), "curve": curve}


def without(data: Data, options: SimulationOptions, seed: int) -> float:
    """Accuracy of one place that has the pictures of all but the malicious nodes of a seed."""
    drawn = Simulation(data[0], data[1], replace(options, seed=seed, malicious=MALICIOUS))
    own = np.concatenate(drawn.honest)
    return accuracy(options.problem.centralised(data[0][own], data[1][own], 1000), data[2], data[3])


def closing() -> dict[str, float]:
    """Milliseconds from the bytes of 100 updates to the next broadcast: check, decode, clip, aggregate, compress."""
    rng = np.random.default_rng(0)
    cpu, wall = [], []
    for _ in range(15):
        federation = Federation.create(FederationOptions())
        sparse = [compress(rng.standard_normal(16 * 768).astype(np.float32), 0.08, 1.0) for _ in range(NODES)]
        base = digest(federation.prompt)
        messages = [pack(Update(16, 768, 0, node + 1, base, 40, one)) for node, one in enumerate(sparse)]
        started, began = time.perf_counter(), time.process_time()
        for node, message in enumerate(messages):
            federation.accept(node + 1, message)
        federation.close()
        cpu.append(1e3 * (time.process_time() - began))
        wall.append(1e3 * (time.perf_counter() - started))
    return {"cpu": statistics.median(cpu), "wall": statistics.median(wall)}


def rules() -> dict[str, float]:
    """Milliseconds of processor time of each rule alone, on 100 dense updates [16, 768]."""
    updates = (np.random.default_rng(0).standard_normal((NODES, 16 * 768)) / 120).astype(np.float32)
    examples, scores, centre = np.full(NODES, 40), np.zeros(NODES), np.zeros(16 * 768, np.float32)
    found = {}
    for rule in RULES:
        took = []
        for _ in range(7):
            began = time.process_time()
            aggregate(rule, updates, examples, scores, centre=centre, clip=1.0, weight_cap=2.0)
            took.append(1e3 * (time.process_time() - began))
        found[rule] = statistics.median(took)
    return found


def synthetic_data(quick: bool) -> Data:
    features, labels = synthetic(1200 if quick else 4000, 96 if quick else 256, np.random.default_rng(1), 1.3)
    cut = len(labels) // 2
    return features[:cut], labels[:cut], features[cut:], labels[cut:]


def picture_data(folder: Path, kept: Path | None, tell: Tell) -> Data:
    """Features of all pictures, split as the embedded model's training was."""
    if kept is not None and kept.is_file():
        with np.load(kept, allow_pickle=False) as file:
            features, labels, held = file["features"], file["labels"], file["held"]
    else:
        with (folder / "manifest.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        classes = [(row["set"], "board" if row["set"] == "deeppcb" else row["label"]) for row in rows]
        names = sorted(set(classes))
        if len(names) != 16:
            raise Refusal(f"{folder.name} holds {len(names)} classes; expected 16, one for each row of the prompt.")
        tell(f"looking at {len(rows)} pictures")
        features = np.stack(list(seen(folder / row["path"] for row in rows)))
        labels, held = np.array([names.index(one) for one in classes]), np.array([is_held_out(row) for row in rows])
        if kept is not None:
            np.savez(kept, features=features, labels=labels, held=held)
    unit = normalised(features)
    return unit[~held], labels[~held], unit[held], labels[held]


def seen(paths: Iterable[Path]) -> Iterable[Floats]:
    """float32 ``[width]`` of each picture: the mean of its visual features."""
    import onnxruntime as ort

    bundle = Bundle.open(embedded_bundle())
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(bundle.read(bundle.model["graphs"]["vision"]), settings)
    geometry = geometry_of(bundle.model)
    assert geometry is not None
    for path in paths:
        small = io.BytesIO()
        Image.open(path).convert("L").resize((SIDE_PX, SIDE_PX), Image.Resampling.BICUBIC).save(small, "PNG")
        packed = geometry.pack([decode(small.getvalue(), Limits())], geometry.fit([(SIDE_PX, SIDE_PX)]))
        (features,) = session.run(["features"], packed.feeds())
        yield features.mean(axis=0)


SCRIPT = Script("l2", "federated", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
