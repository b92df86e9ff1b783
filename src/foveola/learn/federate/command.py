"""``foveola federate``: try a federation on this machine, then run it over Flower: one server, a node per factory."""

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
from foveola.learn.federate import launch
from foveola.learn.federate.attacks import ATTACKS
from foveola.learn.federate.codec import Floats
from foveola.learn.federate.options import MAX_WIDTH, RULES, FederationOptions
from foveola.learn.federate.problem import Labels, accuracy, synthetic
from foveola.learn.federate.simulate import Simulation, SimulationOptions
from foveola.learn.federate.site import read_features

_HELD_OUT = 4
_SYNTHETIC = 2400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    _add_server(verbs.add_parser("server", help="run a federation: the SuperLink of Flower, over TLS, and its rounds"))
    _add_node(verbs.add_parser("node", help="take part in one: a SuperNode of Flower, beside the pictures"))
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


def _add_server(parser: argparse.ArgumentParser) -> None:
    agreed, add = FederationOptions(), parser.add_argument
    remembers = "its memory; a federation that lies there goes on, and the prompt is written to DIR/prompt"
    add("--folder", metavar="DIR", type=Path, required=True, help=remembers)
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=9092, help="default: 9092")
    _add_certificates(parser, needed=True)
    add("--width", type=int, default=agreed.width, help=f"numbers per row (default: {agreed.width})")
    add("--rounds", type=int, default=40, help="in all, those before included (default: 40)")
    add("--min-nodes", type=int, default=2, help="nodes that are waited for (default: 2)")
    add("--quorum", type=int, default=agreed.quorum, help=f"updates that close a round (default: {agreed.quorum})")
    add("--rule", choices=RULES, default=agreed.rule, help=f"default: {agreed.rule}")
    add("--keep", type=float, default=agreed.keep, help=f"as its nodes' (default: {agreed.keep})")
    add("--round-s", type=float, default=600.0, help="who is later is late (default: 600)")
    add("--patience-s", type=float, default=3600.0, help="how long nodes are waited for (default: 3600)")


def _add_node(parser: argparse.ArgumentParser) -> None:
    own, agreed, add = SimulationOptions(), FederationOptions(), parser.add_argument
    holds = f".npz with features [N, width] and labels [N] in 0..{ROWS - 1}; it never leaves"
    add("--server", metavar="HOST:PORT", required=True, help="where the federation's server listens")
    add("--features", metavar="FILE", type=Path, required=True, help=holds)
    add("--folder", metavar="DIR", type=Path, required=True, help="the node's memory")
    add("--port", type=int, default=9094, help="on loopback, for the process that trains (default: 9094)")
    _add_certificates(parser, needed=False)
    add("--steps", type=int, default=own.steps, help=f"local rounds of an update (default: {own.steps})")
    add("--keep", type=float, default=agreed.keep, help=f"as the server's (default: {agreed.keep})")


def _add_certificates(parser: argparse.ArgumentParser, *, needed: bool) -> None:
    parser.add_argument("--ca", metavar="FILE", type=Path, required=True, help="PEM: who signed the certificates")
    parser.add_argument("--certificate", metavar="FILE", type=Path, required=needed, help="PEM: this machine's own")
    parser.add_argument("--key", metavar="FILE", type=Path, required=needed, help="PEM: its key")


def run(arguments: argparse.Namespace) -> int:
    """The exit code. Raises refusals."""
    if arguments.what == "server":
        return _serve(arguments)
    return _take_part(arguments) if arguments.what == "node" else _simulate(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    settings = {
        "width": arguments.width, "keep": arguments.keep, "rule": arguments.rule, "quorum": arguments.quorum,
        "min-nodes": arguments.min_nodes, "rounds": arguments.rounds, "round-s": arguments.round_s,
        "patience-s": arguments.patience_s,
    }  # fmt: skip
    FederationOptions(width=arguments.width, keep=arguments.keep, rule=arguments.rule, quorum=arguments.quorum)
    certificates = launch.Certificates(arguments.ca, arguments.certificate, arguments.key)
    return launch.serve(arguments.folder, arguments.host, arguments.port, certificates, settings)


def _take_part(arguments: argparse.Namespace) -> int:
    features, _ = read_features(arguments.features)
    FederationOptions(width=features.shape[1], keep=arguments.keep)
    certificates = launch.Certificates(arguments.ca, arguments.certificate, arguments.key)
    certificates.check()
    settings = {
        "folder": str(arguments.folder.resolve()), "features": str(arguments.features.resolve()),
        "keep": arguments.keep, "steps": arguments.steps,
    }  # fmt: skip
    command = launch.node_command(arguments.server, certificates, settings, arguments.port)
    return launch.become(command, arguments.folder / "flower")


def _simulate(arguments: argparse.Namespace) -> int:
    if arguments.out is not None and arguments.out.exists():
        raise Invalid(f"{arguments.out.name} exists already; name another directory.")
    options = SimulationOptions(
        nodes=arguments.nodes, rounds=arguments.rounds, concentration=arguments.concentration,
        malicious=arguments.malicious, attack=arguments.attack, seed=arguments.seed,
    )  # fmt: skip
    features, labels = _data(arguments)
    held = np.arange(len(labels)) % _HELD_OUT == 0
    told = {"width": features.shape[1], "keep": arguments.keep, "rule": arguments.rule}
    agreed = FederationOptions.over(options.rounds, **told)
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
    features, labels = read_features(arguments.features)
    order = np.random.default_rng(0).permutation(len(labels))
    return features[order], labels[order]
