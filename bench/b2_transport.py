"""Nothing lost, nothing done twice: commands over a broker that is killed, to an MES that is killed at every point.

The broker keeps its topics in memory, so that killing it loses all that it took. While the relay sends, a second
producer sends shuffled copies. The ledger of the MES is then compared with what was put into the outbox.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.bench.evidence import Bar, Script, Tell
from foveola.bridge.kafka import KafkaOptions, Relay, ensure_topics
from foveola.bridge.mes import POINTS
from foveola.bridge.outbox import Outbox
from foveola.bridge.payload import SCHEMA, VERSION
from foveola.exchange import Refusal

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

KEYS = 50
LIMIT_S = 1500.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commands", type=int, default=10_000, metavar="N")


def _child(ledger: Path, bootstrap: str, *point: object) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.bridge.mes_child", str(ledger), bootstrap, *map(str, point)]
    return subprocess.Popen(
        words,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _copies(box: Outbox, options: KafkaOptions, share: float) -> int:
    """Send a shuffled part of what is due once more, past the relay."""
    from confluent_kafka import Producer

    due = box.due(100_000, now_s=time.time() + 1e6, again_after_s=0.0)
    draw = random.Random(5)
    chosen = draw.sample(due, int(len(due) * share))
    producer = Producer(options.client())
    for one in chosen:
        producer.produce(options.topic, one.value.encode(), key=one.key.encode())
        producer.poll(0)
    producer.flush(60.0)
    return len(chosen)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    from tests.bridge.broker import Broker

    count = 500 if arguments.quick else arguments.commands
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        box = Outbox(Path(folder) / "out.db")
        began = time.monotonic()
        box.put_values(
            (
                f"c{i}",
                f"L{i % KEYS}",
                {"schema": SCHEMA, "version": VERSION, "resolved_intent": "REWORK", "entities": {}},
            )
            for i in range(count)
        )
        put_s = time.monotonic() - began
        options = KafkaOptions(broker.bootstrap, again_after_s=10.0)
        ensure_topics(options)
        relay = Relay(box, options)
        began = time.monotonic()
        relay.start()
        ledger = Path(folder) / "mes.db"
        copies, kills, restarts = 0, 0, 0
        for point in POINTS:
            tell(f"the MES will be killed at the point {point}; {box.counts()}")
            dying = _child(ledger, broker.bootstrap, point, 2)
            kills += dying.wait(LIMIT_S) == -9
            if point in ("applied", "confirmed"):
                tell("the broker is killed, and with it all that it took")
                broker.kill()
                broker.start()
                restarts += 1
            if point == "polled":
                copies = _copies(box, options, 0.3)
        living = _child(ledger, broker.bootstrap)
        while box.counts()["confirmed"] < count:
            if time.monotonic() - began > LIMIT_S:
                raise Refusal(f"After {LIMIT_S:g} s only {box.counts()} were done; look at the log.")
            time.sleep(0.5)
        took_s = time.monotonic() - began
        living.kill()
        living.wait()
        relay.stop()
        base = sqlite3.connect(ledger)
        effects = base.execute("SELECT id, key, number FROM effects ORDER BY position").fetchall()
        base.close()
        box.close()
    done = [row[0] for row in effects]
    lost = count - len(set(done))
    disorder = sum(
        numbers != sorted(numbers) for key in range(KEYS) if (numbers := [r[2] for r in effects if r[1] == f"L{key}"])
    )
    figures = {
        "commands": count, "keys": KEYS, "shuffled_copies": copies, "mes_killed": kills, "points": POINTS,
        "broker_killed_and_emptied": restarts, "put_s": round(put_s, 2), "all_confirmed_s": round(took_s, 1),
        "relay_failures": relay.failures,
    }  # fmt: skip
    return figures, [
        Bar("commands", count, 10_000),
        Bar("points at which the MES was killed", kills, len(POINTS)),
        Bar("lost effects", lost, 0, at_most=True),
        Bar("effects done twice", len(done) - len(set(done)), 0, at_most=True),
        Bar("keys whose order was broken", disorder, 0, at_most=True),
    ]


SCRIPT = Script("b2", "transport", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
