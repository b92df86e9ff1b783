"""The whole way over the real broker, whose memory is lost when it is killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foveola.bridge.payload import SCHEMA, VERSION
from tests.bridge.broker import PATIENCE_S, Broker

pytest.importorskip("confluent_kafka", reason="the extra `bridge` is not installed")

from foveola.bridge.kafka import KafkaOptions, Relay, ensure_topics
from foveola.bridge.mes import Ledger, MesConsumer
from foveola.bridge.outbox import Outbox

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {"schema": SCHEMA, "version": VERSION, "resolved_intent": "REWORK", "entities": {}}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def child(ledger: Path, broker: Broker, *point: object) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tests.bridge.mes_child", str(ledger), broker.bootstrap, *map(str, point)]
    return subprocess.Popen(words, cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, stderr=subprocess.DEVNULL)


@pytest.mark.process
@pytest.mark.slow
def test_broker_and_consumer_are_killed_and_nothing_is_lost_or_doubled(tmp_path: Path, broker: Broker) -> None:
    count = 600
    box = Outbox(tmp_path / "out.db")
    box.put_values((f"c{i}", f"L{i % 20}", FIELDS) for i in range(count))
    options = KafkaOptions(broker.bootstrap, again_after_s=3.0)
    ensure_topics(options)
    relay = Relay(box, options)
    relay.start()
    ledger = tmp_path / "mes.db"
    for point in ("applied", "ledger", "confirmed"):
        dying = child(ledger, broker, point, 1)
        assert dying.wait(2 * PATIENCE_S) == -9
        if point == "applied":
            broker.kill()  # and with it all that it took
            broker.start()
    living = child(ledger, broker)
    try:
        until(lambda: box.counts()["confirmed"] == count)
    finally:
        living.kill()
        living.wait()
        relay.stop()
    base = sqlite3.connect(ledger)
    rows = base.execute("SELECT id, key, number FROM effects ORDER BY position").fetchall()
    assert sorted(row[0] for row in rows) == sorted(f"c{i}" for i in range(count))
    for key in {row[1] for row in rows}:
        assert [row[2] for row in rows if row[1] == key] == list(range(1, count // 20 + 1))


@pytest.mark.process
def test_what_cannot_be_carried_out_lies_in_the_dead_letters(tmp_path: Path, broker: Broker) -> None:
    from confluent_kafka import Producer

    options = KafkaOptions(broker.bootstrap)
    assert ensure_topics(options)
    assert ensure_topics(options)
    producer = Producer(options.client())
    producer.produce(options.topic, b"this is no command", key=b"L1")
    producer.flush(PATIENCE_S)
    mes = MesConsumer(Ledger(tmp_path / "mes.db"), options)
    until(lambda: mes.step() == 1)
    reader = options.consumer("reader")
    reader.subscribe([options.dead])
    found = []
    until(lambda: bool(found.extend(reader.consume(1, 0.5)) or found))
    assert found[0].value() == b"this is no command"
    reason = b"The message is not JSON, or nested without end, or holds broken characters."
    assert dict(found[0].headers())["reason"] == reason
    reader.close()
    mes.close()


def test_without_a_broker_commands_wait(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db")
    box.put_values([("a", "L1", FIELDS)])
    options = KafkaOptions("127.0.0.1:1")
    assert not ensure_topics(options, 0.5)
    relay = Relay(box, options)
    assert box.counts()["waiting"] == 1
    assert json.loads(box.due(1, now_s=0.0, again_after_s=1.0)[0].value)["number"] == 1
    relay.stop()


class Said:
    """A message of the topic of confirmations."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> None:
        return None


class Reader:
    """A consumer that is only told to commit."""

    commits = 0

    def commit(self, asynchronous: bool) -> None:
        self.commits += 1


def test_confirmations_that_are_none_do_not_end_the_listening(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "out.db")
    box.put_values([("a", "L1", FIELDS), ("b", "L1", FIELDS), ("c", "L1", FIELDS)])
    relay, reader = Relay(box, KafkaOptions("127.0.0.1:1")), Reader()
    broken = [b"[]", b"3", b"[" * 100_000, b"\xff", None]
    relay.note([Said(b"unknown", value) for value in broken], reader)  # type: ignore[arg-type, misc]
    assert box.counts()["waiting"] == 3
    told = [Said(b"a", b'{"failed": null}'), Said(None, b"{}"), Said(b"b", b'{"failed": "no such lot"}')]
    relay.note(told, reader)  # type: ignore[arg-type]
    assert box.counts() == {"waiting": 1, "sent": 0, "confirmed": 1, "failed": 1}
    assert reader.commits == 2


def test_sending_goes_on_after_the_disk_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that sends must outlive whatever the outbox raises."""
    box = Outbox(tmp_path / "out.db")
    relay = Relay(box, KafkaOptions("127.0.0.1:1"))
    rounds = []

    def due(*_: object, **__: object) -> list[object]:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            raise sqlite3.OperationalError("database or disk is full")
        relay.ask_to_stop()
        return []

    monkeypatch.setattr(box, "due", due)
    monkeypatch.setattr("foveola.bridge.kafka._AFTER_FAILURE_S", 0.0)
    relay._send_all()
    assert len(rounds) == 2
    assert relay.failures == 1
