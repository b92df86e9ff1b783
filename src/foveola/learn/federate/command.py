"""``foveola federate``: try a federation on this machine before factories take part."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from foveola.artifact.finding import Finding
from foveola.artifact.prompt import ROWS, write_prompt
from foveola.exchange import Invalid
from foveola.learn.federate.attacks import ATTACKS
from foveola.learn.federate.codec import Floats
from foveola.learn.federate.options import MAX_WIDTH, RULES, FederationOptions
from foveola.learn.federate.problem import Labels, accuracy, normalised, synthetic
from foveola.learn.federate.simulate import Simulation, SimulationOptions

_HELD_OUT = 4
_SYNTHETIC = 2400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    simulate = verbs.add_parser("simulate", help="run a federation in this process, and compare it with one place")
    own, agreed = SimulationOptions(), FederationOptions()
    simulate.add_argument("--features", metavar="FILE", type=Path, help=".npz with features [N, width] and labels [N] "
                          f"in 0..{ROWS - 1} (default: synthetic ones)")  # fmt: skip
    simulate.add_argument("--width", type=int, default=256, help="width of synthetic features (default: 256)")
    simulate.add_argument("--nodes", type=int, default=own.nodes, help=f"default: {own.nodes}")
    simulate.add_argument("--rounds", type=int, default=own.rounds, help=f"default: {own.rounds}")
    simulate.add_argument("--concentration", type=float, default=own.concentration,
                          help=f"small: few classes per node (default: {own.concentration})")  # fmt: skip
    simulate.add_argument("--malicious", type=float, default=0.0, help="share of nodes that attack (default: 0)")
    simulate.add_argument("--attack", choices=ATTACKS, default=own.attack, help=f"default: {own.attack}")
    simulate.add_argument("--rule", choices=RULES, default=agreed.rule, help=f"default: {agreed.rule}")
    simulate.add_argument(
        "--keep", type=float, default=agreed.keep, help=f"share that travels (default: {agreed.keep})"
    )
    simulate.add_argument("--seed", type=int, default=0, help="default: 0")
    simulate.add_argument("--out", metavar="DIR", type=Path, help="write the prompt there, as a sealed artefact")
    simulate.add_argument("--json", action="store_true", help="print figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Always 0. Raises refusals."""
    if arguments.out is not None and arguments.out.exists():
        raise Invalid(f"{arguments.out.name} exists already; name another directory.")
    options = SimulationOptions(
        nodes=arguments.nodes, rounds=arguments.rounds, concentration=arguments.concentration,
        malicious=arguments.malicious, attack=arguments.attack, seed=arguments.seed,
    )  # fmt: skip
    features, labels = _data(arguments)
    held = np.arange(len(labels)) % _HELD_OUT == 0
    agreed = FederationOptions(width=features.shape[1], keep=arguments.keep, rule=arguments.rule)
    simulation = Simulation(features[~held], labels[~held], options, agreed)
    simulation.run(track(range(options.rounds), "Rounds…", console=Console(stderr=True)))
    report: dict[str, float | int] = simulation.report(features[held], labels[held])
    together = options.problem.centralised(features[~held], labels[~held])
    report["centralised_accuracy"] = accuracy(together, features[held], labels[held])
    if arguments.out is not None:
        changed = f"trained by {options.nodes} simulated nodes, rule {agreed.rule}"
        write_prompt(
            arguments.out,
            simulation.prompt,
            name=arguments.out.name,
            lineage=[Finding("federate", changed, after=report)],
        )
    if arguments.json:
        print(json.dumps(report))
        return 0
    table = Table("figure", "value", box=None, pad_edge=False)
    for name, value in report.items():
        table.add_row(name.replace("_", " "), f"{value:.4f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)
    return 0


def _data(arguments: argparse.Namespace) -> tuple[Floats, Labels]:
    if arguments.features is None:
        if not 2 <= arguments.width <= MAX_WIDTH:
            raise Invalid(f"--width is {arguments.width}; expected 2 to {MAX_WIDTH}.")
        return synthetic(_SYNTHETIC, arguments.width, np.random.default_rng(arguments.seed))
    wanted = f"a .npz with finite features [N, width] and labels [N] in 0..{ROWS - 1}"
    try:
        with np.load(arguments.features, allow_pickle=False) as held:
            features, labels = np.asarray(held["features"], np.float32), np.asarray(held["labels"], np.int64)
    except (OSError, ValueError, KeyError, TypeError, EOFError, AttributeError):
        raise Invalid(f"{arguments.features.name} cannot be read; expected {wanted}.") from None
    fits = features.ndim == 2 and labels.shape == (len(features),) and features.size > 0
    if not fits or not np.isfinite(features).all() or labels.min() < 0 or labels.max() >= ROWS:
        raise Invalid(f"{arguments.features.name} holds something else than {wanted}.")
    order = np.random.default_rng(0).permutation(len(labels))
    return normalised(features[order]), labels[order]
