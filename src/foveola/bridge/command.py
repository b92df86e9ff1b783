"""``foveola bridge``: try an instruction, fit the calibration, run the reference MES, export what people decided."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from foveola.bridge.intents import BUILT_IN as INTENTS
from foveola.bridge.payload import RawInstruction


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
    fit.add_argument("corpus", type=Path, nargs="*", metavar="FILE", help="added to the built-in corpus")
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
    from foveola.bridge.corpus import load_corpus
    from foveola.bridge.encoder import e5_encoder
    from foveola.bridge.intents import load_intents
    from foveola.bridge.score import save_calibration

    items = [*load_corpus(), *(item for path in arguments.corpus for item in load_corpus(path))]
    calibrator = Calibrator(load_intents(arguments.intents), e5_encoder(), items)
    fitting, judging = halves(len(items), 0)
    held_out = calibrator.judge(calibrator.fit(fitting), judging)
    save_calibration(calibrator.fit(range(len(items))), arguments.out)
    if arguments.json:
        print(json.dumps(held_out, indent=1))
    else:
        print(f"{len(items)} instructions; on a half that was not fitted: {held_out['accuracy']:.1%} right,")
        print(f"{held_out['reviewed']:.1%} to review, {held_out['wrong_and_passed']:.1%} wrong and passed.")
    return 0


def _mes(arguments: argparse.Namespace) -> int:
    from foveola.bridge.kafka import KafkaOptions, ensure_topics
    from foveola.bridge.mes import Ledger, MesConsumer

    options = KafkaOptions(arguments.bootstrap)
    ensure_topics(options)
    consumer = MesConsumer(Ledger(arguments.ledger), options)
    try:
        while True:
            consumer.step(1.0)
    finally:
        consumer.close()
