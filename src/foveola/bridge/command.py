"""``foveola bridge``: try an instruction, fit the calibration, run the reference MES, export what people decided."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

from foveola.bridge.intents import BUILT_IN as INTENTS
from foveola.bridge.payload import RawInstruction
from foveola.exchange import Invalid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    ways = parser.add_subparsers(dest="way", metavar="WAY", required=True)
    say = ways.add_parser("say", help="understand one instruction; nothing is sent")
    say.add_argument("text")
    say.add_argument("--sources", type=Path, required=True, metavar="FILE")
    say.add_argument("--source", required=True, metavar="SRC_ID", help="who says it")
    say.add_argument("--intents", type=Path, default=INTENTS, metavar="FILE")
    say.add_argument("--json", action="store_true", help="print JSON for programs")
    fit = ways.add_parser("calibrate", help="fit the calibration to labelled instructions")
    fit.add_argument("corpus", type=Path, nargs="*", metavar="FILE", help="added to the built-in corpora")
    fit.add_argument("--intents", type=Path, default=INTENTS, metavar="FILE")
    fit.add_argument("--out", type=Path, required=True, metavar="FILE")
    fit.add_argument("--json", action="store_true", help="print JSON for programs")
    mes = ways.add_parser("mes", help="carry out commands into a ledger, as the reference MES")
    mes.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    mes.add_argument("--ledger", type=Path, default=Path("mes.db"), metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Do it. Raises ``Refusal``."""
    return {"say": _say, "calibrate": _calibrate, "mes": _mes}[arguments.way](arguments)


def _say(arguments: argparse.Namespace) -> int:
    from foveola.bridge.context import ContextBook
    from foveola.bridge.encoder import e5_encoder
    from foveola.bridge.intents import load_intents
    from foveola.bridge.normalise import Normaliser
    from foveola.bridge.score import load_calibration
    from foveola.bridge.sources import load_sources

    intents = load_intents(arguments.intents)
    sources = load_sources(arguments.sources, intents)
    normalise = Normaliser(intents, sources, ContextBook(), e5_encoder(), load_calibration())
    now = time.time()
    channel = sources[arguments.source].channel
    payload = normalise(RawInstruction("try", arguments.source, channel, arguments.text, now, now))
    if arguments.json:
        print(json.dumps(payload.to_json(), ensure_ascii=False, indent=1))
        return 0
    print(f"{payload.resolved_intent or 'denied'}: {payload.verdict}, ambiguity {payload.ambiguity_score:.2f}")
    for one in payload.candidates:
        print(f"  {one.share:6.1%}  {one.intent}")
    if payload.reasons:
        print("  " + ", ".join(payload.reasons))
    return 0


def _calibrate(arguments: argparse.Namespace) -> int:
    from foveola.bridge.calibrate import Calibrator, halves
    from foveola.bridge.corpus import FITTED, load_corpus
    from foveola.bridge.encoder import e5_encoder
    from foveola.bridge.intents import load_intents
    from foveola.bridge.score import save_calibration

    intents = load_intents(arguments.intents)
    corpora = [load_corpus(path) for path in FITTED]
    known = [[item for item in corpus if item.intent in intents.names] for corpus in corpora]
    left_out = sum(map(len, corpora)) - sum(map(len, known))  # of intents that this plant has not
    known += [list(load_corpus(path)) for path in arguments.corpus]
    items = [item for corpus in known for item in corpus]
    groups = [number for number, corpus in enumerate(known) for _ in corpus]
    calibrator = Calibrator(intents, e5_encoder(), items, groups=groups)
    fitting, judging = halves(len(items), 0)
    held_out = calibrator.judge(calibrator.fit(fitting), judging)
    save_calibration(calibrator.fit(range(len(items))), arguments.out)
    if arguments.json:
        print(json.dumps(held_out, indent=1))
    else:
        if left_out:
            print(f"{left_out} built-in instructions were left out: their intents are not in {arguments.intents.name}.")
        print(f"{len(items)} instructions; on a half that was not fitted: {held_out['accuracy']:.1%} right,")
        print(f"{held_out['reviewed']:.1%} to review, {held_out['wrong_and_passed']:.1%} wrong and passed.")
    return 0


def _mes(arguments: argparse.Namespace) -> int:
    from foveola.bridge.kafka import KafkaOptions, ensure_topics
    from foveola.bridge.mes import Ledger, MesConsumer

    addresses = arguments.bootstrap.split(",")
    if not all(re.fullmatch(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}", one.strip()) for one in addresses):
        said = f"--bootstrap is {arguments.bootstrap!r}; expected HOST:PORT, several with commas."
        raise Invalid(said, field="bootstrap")
    options = KafkaOptions(arguments.bootstrap)
    there = ensure_topics(options)
    said = "reads" if there else "waits for the broker, which does not answer,"
    print(f"{said} {options.topic} at {arguments.bootstrap}; the ledger is {arguments.ledger}", file=sys.stderr)
    consumer = MesConsumer(Ledger(arguments.ledger), options)
    try:
        while True:
            consumer.step(1.0)
    finally:
        consumer.close()
