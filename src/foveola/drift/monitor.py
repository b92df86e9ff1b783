"""Watches cameras: feeds every frame to the charts, raises an alarm where one leaves its bounds, survives restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foveola.drift.charts import Cusum, MeanChart, Peaks
from foveola.drift.martingale import BINS, Jumper, Ranks
from foveola.drift.observation import Floats, Observation
from foveola.drift.reference import Reference
from foveola.drift.rule import DescribedRule, Level
from foveola.exchange import Damaged

Chart = Literal["looks", "features", "texture", "certified"]
FORMAT = "foveola.drift-state/2"
LOOK_MEMORY = 0.05  # the weight of the newest map in the picture of what changed
MOST_CAMERAS = 256
OTHERS = "others"  # what cameras beyond the bound are counted under, so that memory and labels stay bounded


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """``false_alarms`` per 10 000 frames of all cameras together that may be expected while nothing changes, shared
    among ``cameras`` and charts; ``certified`` is the probability that a camera's certified alarm is ever false."""

    false_alarms: float = 1.0
    cameras: int = 1
    certified: float = 0.001


@dataclass(frozen=True, slots=True)
class Alarm:
    """A chart of a camera left its bound at ``frame`` (counted from 1 per camera); ``value`` is above ``bound``."""

    camera: str
    chart: Chart
    frame: int
    value: float
    bound: float
    label: str


@dataclass(slots=True)
class _Camera:
    mean: Floats
    texture: Floats
    ranks: Ranks
    look: Floats
    frames: int = 0
    sum_: float = 0.0
    bets: Jumper = field(default_factory=Jumper)
    raised: set[Chart] = field(default_factory=set)
    rule: DescribedRule = field(default_factory=DescribedRule)
    level: Level = "ok"


@dataclass(frozen=True, slots=True)
class Standing:
    """How one camera stands: each chart's value as a share of its bound (1 and more: alarm), the described rule's
    sliding mean and level, and which charts have raised an alarm that nobody has acknowledged."""

    frames: int
    shares: dict[str, float]
    rule_mean: float | None
    rule_level: Level
    raised: tuple[Chart, ...]


class Monitor:
    """One reference, many cameras. Not thread-safe: call it from one thread or the event loop.

    An alarm is raised once; after ``acknowledge`` the charts start anew.
    """

    def __init__(self, reference: Reference, options: MonitorOptions | None = None, *, seed: int = 0) -> None:
        self._reference, self._options = reference, options or MonitorOptions()
        self._cusum, self._chart = Cusum(), MeanChart()
        peaks: dict[Chart, Peaks | None] = {
            "looks": reference.map_peaks, "features": reference.feature_peaks, "texture": reference.texture_peaks,
        }  # fmt: skip
        known = {chart: found for chart, found in peaks.items() if found is not None}
        rate = self._options.false_alarms / 10_000 / len(known)
        self._bounds: dict[Chart, float] = {chart: found.threshold(rate) for chart, found in known.items()}
        self._bounds["certified"] = float(np.log(max(1, self._options.cameras) / self._options.certified))
        self._cameras: dict[str, _Camera] = {}
        self._ties = np.random.default_rng(seed)

    def update(self, seen: Observation) -> list[Alarm]:
        """The alarms that this frame raises: none, mostly."""
        name = self.counted_as(seen.camera)
        camera = self._cameras.get(name) or self._cameras.setdefault(name, self._fresh())
        camera.frames += 1
        camera.level = camera.rule.update(seen.map)
        camera.look = camera.look + LOOK_MEMORY * (seen.map - camera.look)
        judged = self._reference.judged(seen)
        camera.sum_ = self._cusum.step(camera.sum_, judged.score)
        if judged.residual is not None:
            camera.mean = self._chart.step(camera.mean, judged.residual)
        if judged.texture is not None:
            camera.texture = self._chart.step(camera.texture, judged.texture)
        if camera.frames % self._reference.memory == 0:
            p = camera.ranks.add(judged.strangeness, float(self._ties.random()))
            camera.bets = camera.bets.step(p)
        alarms = []
        for chart, value in self._values(camera).items():
            if value > self._bounds[chart] and chart not in camera.raised:
                camera.raised.add(chart)
                alarms.append(Alarm(name, chart, camera.frames, value, self._bounds[chart], seen.label))
        return alarms

    def acknowledge(self, camera: str) -> bool:
        """Somebody has looked: the camera's charts start anew. False where no such camera is known."""
        known = self._cameras.get(camera)
        if known is None:
            return False
        fresh = self._fresh()
        fresh.frames = known.frames
        self._cameras[camera] = fresh
        return True

    def standings(self) -> dict[str, Standing]:
        """How every camera stands."""
        return {name: self.standing(name) for name in self._cameras}

    def standing(self, name: str) -> Standing:
        """How a known camera stands."""
        camera = self._cameras[name]
        return Standing(
            camera.frames,
            {chart: value / self._bounds[chart] for chart, value in self._values(camera).items()},
            camera.rule.mean,
            camera.level,
            tuple(sorted(camera.raised)),
        )

    def counted_as(self, camera: str) -> str:
        """The name under which a camera is watched: its own, or ``OTHERS`` where there are too many."""
        return camera if camera in self._cameras or len(self._cameras) < MOST_CAMERAS else OTHERS

    def look(self, camera: str) -> Floats:
        """Where a known camera's model has been looking lately: the moving mean of its maps."""
        return self._cameras[camera].look

    def _fresh(self) -> _Camera:
        reference = self._reference
        texture = np.zeros(0 if reference.texture is None else len(reference.texture.axes))
        return _Camera(np.zeros(reference.means.shape[1]), texture, Ranks(reference.strange), reference.templates[0])

    def _values(self, camera: _Camera) -> dict[Chart, float]:
        values: dict[Chart, float] = {"looks": camera.sum_}
        if "features" in self._bounds:
            values["features"] = self._chart.distance(camera.mean)
        if "texture" in self._bounds:
            values["texture"] = self._chart.distance(camera.texture)
        values["certified"] = camera.bets.log_total
        return values

    def save(self, path: Path) -> None:
        """Writes where all cameras stand, as JSON, whole or not at all."""
        cameras = {
            name: {
                "frames": c.frames, "sum": c.sum_, "mean": c.mean.tolist(), "texture": c.texture.tolist(),
                "bets": c.bets.log_capital, "ranks": c.ranks.counts.tolist(), "raised": sorted(c.raised),
            }
            for name, c in self._cameras.items()
        }  # fmt: skip
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text(json.dumps({"format": FORMAT, "cameras": cameras}), encoding="utf-8")
        unfinished.replace(path)

    def restore(self, path: Path) -> None:
        """Goes on from what ``save`` wrote.

        Raises:
            Damaged: the file is not a whole state, or belongs to another reference.
        """
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["format"] != FORMAT:
                raise ValueError(told["format"])
            cameras = {name: self._camera_of(state) for name, state in told["cameras"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Damaged(
                f"{path.name} does not hold the state of this drift monitor; remove it to start the charts anew"
            ) from error
        self._cameras = cameras

    def _camera_of(self, state: dict[str, Any]) -> _Camera:
        fresh = self._fresh()
        mean, texture = (np.asarray(state[name], np.float64) for name in ("mean", "texture"))
        if (mean.shape, texture.shape) != (fresh.mean.shape, fresh.texture.shape):
            raise ValueError("another reference")
        if not (np.isfinite(mean).all() and np.isfinite(texture).all()):
            raise ValueError("no numbers")
        low, middle, high = (float(x) for x in state["bets"])
        raised = {chart for chart in state["raised"] if chart in self._bounds}
        counts = np.asarray(state["ranks"], np.int64)
        if counts.shape != (BINS,) or counts.min() < 0:
            raise ValueError("another form")
        ranks = Ranks(self._reference.strange, counts)
        return _Camera(
            mean,
            texture,
            ranks,
            self._reference.templates[0],
            int(state["frames"]),
            float(state["sum"]),
            Jumper((low, middle, high)),
            raised,
        )
