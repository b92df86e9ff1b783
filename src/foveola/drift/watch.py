"""The drift watch of a running server: frames in, alarms out, a timeline of those, and a state that survives."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from foveola.drift.monitor import Alarm, Monitor, MonitorOptions, Standing
from foveola.drift.observation import observe
from foveola.drift.options import DriftOptions
from foveola.drift.picture import compare, thumbnail
from foveola.drift.reference import Reference
from foveola.exchange import Damaged, Evidence

log = logging.getLogger(__name__)

TIMELINE, SAVE_EVERY = 200, 100
WEBHOOK_S = 5.0
UNNAMED = "default"
LABEL_CHARS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """An alarm on the timeline: when (Unix seconds), by which request, a PNG of what changed in where the model looks,
    and a small JPEG of the frame that raised it, where that may be kept."""

    at: float
    request: str
    alarm: Alarm
    picture: bytes
    frame: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """With the pictures in base64."""
        picture, frame = (base64.b64encode(image).decode() for image in (self.picture, self.frame))
        told = {"at": self.at, "request": self.request, **asdict(self.alarm)}
        return {**told, "picture_png": picture, "frame_jpeg": frame}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Event:
        """The inverse of ``to_json``. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
        alarm = Alarm(**{field.name: told[field.name] for field in fields(Alarm)})
        picture, frame = (base64.b64decode(told[name]) for name in ("picture_png", "frame_jpeg"))
        return cls(float(told["at"]), str(told["request"]), alarm, picture, frame)


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
        self.timeline: deque[Event] = deque(self._told_before(), maxlen=TIMELINE)
        self._frames = 0
        if options.webhook:
            self._tells.append(lambda event: _in_background(options.webhook, event))

    def frame(self, request: str, camera: str, answer: str, evidence: Evidence, image: bytes = b"") -> list[Alarm]:
        """One picture of one answer, ``image`` as it came where it may be kept; the alarms that it raised."""
        seen = observe(camera or UNNAMED, answer[:LABEL_CHARS], evidence)
        alarms = self.monitor.update(seen)
        for alarm in alarms:
            now = self.monitor.look(alarm.camera)
            changed, frame = compare(self._reference.templates[0], now), thumbnail(image)
            event = Event(time.time(), request, alarm, changed, frame)
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

    def standing(self, camera: str) -> tuple[str, Standing]:
        """How the camera of a frame stands, and the name under which it is watched."""
        name = self.monitor.counted_as(camera or UNNAMED)
        return name, self.monitor.standing(name)

    def acknowledge(self, camera: str) -> bool:
        """Start a camera's charts anew; False where it is not known."""
        known = self.monitor.acknowledge(camera)
        if known:
            self.save()
        return known

    def save(self) -> None:
        """Keep charts and timeline, where a state is to be kept. A disk that fails is told in the log, and the watch
        goes on: what was kept before stays whole."""
        if self._options.state is None:
            return
        try:
            self.monitor.save(self._options.state)
            beside = self._beside(self._options.state)
            unfinished = beside.with_name(beside.name + ".partial")
            unfinished.write_text(json.dumps([event.to_json() for event in self.timeline]), encoding="utf-8")
            unfinished.replace(beside)
        except OSError as error:
            name = self._options.state.name
            log.warning("The state of drift cannot be kept in %s: %s; a restart forgets it.", name, error.strerror)

    @staticmethod
    def _beside(state: Path) -> Path:
        return state.with_name(state.name + ".timeline")

    def _told_before(self) -> list[Event]:
        """The timeline of before a restart. Raises ``Damaged``."""
        if self._options.state is None or not (path := self._beside(self._options.state)).exists():
            return []
        try:
            return [Event.from_json(told) for told in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(f"{path.name} is no timeline of drift; remove it to begin a new one.") from error


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
