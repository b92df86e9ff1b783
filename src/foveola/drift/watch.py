"""The drift watch of a running server: frames in, alarms out, a timeline of those, and a state that survives."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foveola.drift.monitor import Alarm, Monitor, MonitorOptions, Standing
from foveola.drift.observation import observe
from foveola.drift.options import DriftOptions
from foveola.drift.picture import compare
from foveola.drift.reference import Reference
from foveola.exchange import Evidence

TIMELINE, SAVE_EVERY = 200, 100
WEBHOOK_S = 5.0
UNNAMED = "default"
LABEL_CHARS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """An alarm on the timeline: when (Unix seconds), by which request, and a PNG of what changed."""

    at: float
    request: str
    alarm: Alarm
    picture: bytes

    def to_json(self) -> dict[str, Any]:
        """With the picture in base64."""
        picture = base64.b64encode(self.picture).decode()
        return {"at": self.at, "request": self.request, **asdict(self.alarm), "picture_png": picture}


Tell = Callable[[Event], None]


class DriftWatch:
    """Call ``frame`` for every answer, from one thread (the event loop). ``tells`` are called for every alarm."""

    def __init__(self, options: DriftOptions, tells: Sequence[Tell] = ()) -> None:
        """Raises ``Damaged`` where the reference or the kept state is broken."""
        if options.reference is None:
            raise ValueError("a drift watch needs a reference")
        self._options, self._tells = options, [*tells]
        self._reference = Reference.open(options.reference)
        self.monitor = Monitor(self._reference, MonitorOptions(options.false_alarms, options.cameras))
        if options.state is not None and options.state.exists():
            self.monitor.restore(options.state)
        self.timeline: deque[Event] = deque(maxlen=TIMELINE)
        self._frames = 0
        if options.webhook:
            self._tells.append(lambda event: _in_background(options.webhook, event))

    def frame(self, request: str, camera: str, answer: str, evidence: Evidence) -> list[Alarm]:
        """One picture of one answer; the alarms that it raised."""
        seen = observe(camera or UNNAMED, answer[:LABEL_CHARS], evidence)
        alarms = self.monitor.update(seen)
        for alarm in alarms:
            now = self.monitor.look(alarm.camera)
            event = Event(time.time(), request, alarm, compare(self._reference.templates[0], now))
            self.timeline.append(event)
            for tell in self._tells:
                tell(event)
        self._frames += 1
        if alarms or self._frames % SAVE_EVERY == 0:
            self.save()
        return alarms

    def standings(self) -> dict[str, Standing]:
        """How every camera stands."""
        return self.monitor.standings()

    def acknowledge(self, camera: str) -> bool:
        """Start a camera's charts anew; False where it is not known."""
        known = self.monitor.acknowledge(camera)
        if known:
            self.save()
        return known

    def save(self) -> None:
        """Keep the state, where one is to be kept."""
        if self._options.state is not None:
            self.monitor.save(self._options.state)


def _in_background(address: str, event: Event) -> None:
    threading.Thread(target=_post, args=(address, event), name="drift webhook", daemon=True).start()


def _post(address: str, event: Event) -> bool:
    """Whether the receiver took it. An alarm is also a metric and a log line: a receiver that is away loses nothing."""
    body = json.dumps(event.to_json()).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_S) as reply:
            return bool(200 <= reply.status < 300)
    except (OSError, urllib.error.URLError):
        return False
