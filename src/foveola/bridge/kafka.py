"""The topics, how to connect, and the producer's side: from the outbox to the broker, and confirmations back."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from foveola.bridge.outbox import Command, Outbox

log = logging.getLogger(__name__)

TOPIC = "bridge-command-topic"
_AFTER_FAILURE_S = 1.0


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How to reach the broker. The dead letters and confirmations have topics of their own beside ``topic``."""

    bootstrap: str
    topic: str = TOPIC
    partitions: int = 4
    replication: int = 1
    group: str = "mes"
    again_after_s: float = 15.0  # a command that was sent and not confirmed is sent again after so long
    gap_s: float = 60.0  # so long a command waits for one before it that is missing

    @property
    def dead(self) -> str:
        """Topic of what could not be carried out, with the reason in the header ``reason``."""
        return f"{self.topic}.dead"

    @property
    def done(self) -> str:
        """Topic of confirmations: key is the idempotency key of a command that was carried out."""
        return f"{self.topic}.done"

    def client(self, **more: Any) -> dict[str, Any]:
        """Settings of every client. Logs of the library go to Python's logging."""
        return {
            "bootstrap.servers": self.bootstrap,
            "socket.timeout.ms": 6000,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 5000,
            "allow.auto.create.topics": False,
            "logger": log,
            **more,
        }

    def consumer(self, group: str) -> Consumer:
        """A consumer that commits only when it is told to."""
        return Consumer(
            self.client(
                **{
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 10_000,
                }
            )
        )


def ensure_topics(options: KafkaOptions, timeout_s: float = 10.0) -> bool:
    """Make the topics where they are missing (a broker that was replaced has none); False if the broker is away."""
    admin = AdminClient(options.client())
    try:
        known = admin.list_topics(timeout=timeout_s).topics
        missing = [name for name in (options.topic, options.dead, options.done) if name not in known]
        if missing:
            new = [NewTopic(name, options.partitions, options.replication) for name in missing]
            for future in admin.create_topics(new, operation_timeout=timeout_s).values():
                future.result(timeout_s)
    except KafkaException as error:
        if "already exists" in str(error):
            return True
        log.warning("the broker cannot be asked for its topics: %s", error)
        return False
    return True


class Relay:
    """Sends what is due and notes what is confirmed, until it is stopped. Runs in threads of its own.

    A batch is sent and waited for. Where the broker refused or forgot a command, it and everything of its key behind
    it count as not sent; repetitions that follow from that are harmless, since the MES knows every id and number.
    The library's own idempotence is not used: it ends the producer when a new broker does not know its number.
    """

    def __init__(
        self, outbox: Outbox, options: KafkaOptions, *, batch: int = 500, clock: Callable[[], float] = time.time
    ) -> None:
        self._outbox, self._options, self._batch, self._clock = outbox, options, batch, clock
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures = 0

    def start(self) -> None:
        """Begin sending and listening."""
        for work in (self._send_all, self._note_confirmations):
            thread = threading.Thread(target=work, name=work.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def ask_to_stop(self) -> None:
        """No further round begins; does not wait."""
        self._stop.set()

    def stop(self) -> None:
        """End; what is not sent stays in the outbox."""
        self.ask_to_stop()
        for thread in self._threads:
            thread.join()

    def _producer(self) -> Producer:
        return Producer(self._options.client(acks="all", **{"linger.ms": 5, "message.timeout.ms": 8000}))

    def _send_all(self) -> None:
        producer, pause_s = self._producer(), 0.05
        while not self._stop.is_set():
            try:
                pause_s = self._send_due(producer, pause_s)
            except Exception:  # a disk that is full for a while must not end the sending for good
                log.exception("commands could not be read or noted; sending goes on")
                self.failures += 1
                self._stop.wait(_AFTER_FAILURE_S)

    def _send_due(self, producer: Producer, pause_s: float) -> float:
        """One round; how long to wait after the next one that fails."""
        due = self._outbox.due(self._batch, now_s=self._clock(), again_after_s=self._options.again_after_s)
        if not due:
            self._stop.wait(0.05)
            return pause_s
        taken = self.send(producer, due)
        if len(taken) == len(due):
            return 0.05
        self.failures += 1
        ensure_topics(self._options, 5.0)
        self._stop.wait(pause_s)
        return min(2 * pause_s, 2.0)

    def send(self, producer: Producer, due: list[Command]) -> list[int]:
        """Send a batch, wait, note and return the positions that the broker took, up to each key's first failure."""
        delivered: set[int] = set()
        for command in due:
            try:
                producer.produce(
                    self._options.topic,
                    command.value.encode(),
                    key=command.key.encode(),
                    headers={"idempotency_key": command.id},
                    on_delivery=partial(_note, delivered, command.position),
                )
            except (BufferError, KafkaException) as error:
                log.warning("the producer takes no more: %s", error)
                break
        producer.flush(10.0)
        broken: set[str] = set()
        taken = []
        for command in due:
            if command.position not in delivered:
                broken.add(command.key)
            elif command.key not in broken:
                taken.append(command.position)
        self._outbox.sent(taken, self._clock())
        return taken

    def _note_confirmations(self) -> None:
        consumer = self._options.consumer(f"bridge-{self._outbox.epoch}")
        consumer.subscribe([self._options.done])
        try:
            while not self._stop.is_set():
                try:
                    self.note(consumer.consume(500, 0.2), consumer)
                except Exception:  # as above; what was not noted is sent and confirmed again
                    log.exception("confirmations could not be noted; listening goes on")
                    self.failures += 1
                    self._stop.wait(_AFTER_FAILURE_S)
        finally:
            consumer.close()

    def note(self, got: list[Message], consumer: Consumer) -> None:
        """Settle what these messages confirm, and commit."""
        messages = [one for one in got if not one.error()]
        if not messages:
            return
        failed = [_id_of(one) for one in messages if _failed(one)]
        self._outbox.settled([_id_of(one) for one in messages], failed=failed)
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:  # confirming twice does no harm
            log.info("confirmations will be read again: %s", error)


def _note(delivered: set[int], position: int, error: object, _: Message) -> None:
    if error is None:
        delivered.add(position)


def _id_of(message: Message) -> str:
    key = message.key()
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def _failed(message: Message) -> bool:
    try:
        said = json.loads(message.value() or b"{}")
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("failed") is not None


def confirmation(command: dict[str, Any], reason: str | None) -> bytes:
    """The value of a confirmation: which command of which key is settled, and why it failed if it did."""
    return json.dumps({**{name: command[name] for name in ("epoch", "key", "number")}, "failed": reason}).encode()
