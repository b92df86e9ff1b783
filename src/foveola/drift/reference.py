"""What the pictures looked like when all was well: templates, the kernel's means, and how the charts behave then."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from foveola.drift.charts import Cusum, MeanChart, Peaks, blocks, memory_of
from foveola.drift.kernel import KernelMap
from foveola.drift.observation import Floats, Observation, pearson
from foveola.drift.whitening import Whitening
from foveola.exchange import Damaged, Invalid

FORMAT = "foveola.drift/2"
LEAST = 60
OWN = 12  # a class with fewer reference pictures is compared with all of them
HORIZON, RUNS = 4000, 96
EVERY = ""  # the label under which what holds for all classes together is kept


class Judged(NamedTuple):
    """One frame beside the reference: how unlike the map is, how far features [WAVES] and texture [T] are from their
    class's means (None where there are none), and all of it as one number for the martingale."""

    score: float
    residual: Floats | None
    texture: Floats | None
    strangeness: float


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Made by ``calibrate``; what a ``Monitor`` compares with.

    ``templates`` float64 [C, SIDE, SIDE] and ``means`` float64 [C, WAVES] per class of ``labels``, the first for all
    together; ``looks`` are the mean and deviation of the map score, ``strange`` the sorted scores of held-back frames,
    ``memory`` how many frames apart they are independent. ``kernel`` is None where the bundle gives no features,
    ``texture`` where nobody said how the pictures are encoded.
    """

    labels: tuple[str, ...]
    templates: Floats
    means: Floats
    kernel: KernelMap | None
    looks: tuple[float, float]
    strange: Floats
    memory: int
    map_peaks: Peaks
    feature_peaks: Peaks | None
    frames: int
    texture: Whitening | None = None
    texture_peaks: Peaks | None = None

    def _row(self, label: str) -> int:
        return self.labels.index(label) if label in self.labels else 0

    def map_score(self, seen: Observation) -> float:
        """How unlike its class's template the map is, in standard deviations of the reference."""
        mean, deviation = self.looks
        return (1 - pearson(seen.map, self.templates[self._row(seen.label)]) - mean) / deviation

    def residual(self, seen: Observation) -> Floats | None:
        """The features in the kernel's space, from their class's mean [WAVES]: another mix of classes is no drift."""
        if self.kernel is None or len(seen.features) != len(self.kernel.centre):
            return None
        residual: Floats = self.kernel(seen.features) - self.means[self._row(seen.label)]
        return residual

    def texture_residual(self, seen: Observation) -> Floats | None:
        """How the picture is encoded, from its class's mean, in standard deviations [T]."""
        if self.texture is None or len(seen.texture) != len(self.texture.axes):
            return None
        return self.texture(seen.texture, self._row(seen.label))

    def judged(self, seen: Observation) -> Judged:
        """All that the charts ask about one frame."""
        score, residual, texture = self.map_score(seen), self.residual(seen), self.texture_residual(seen)
        strange = score + (0.0 if residual is None else 4 * float(residual @ residual))
        return Judged(
            score, residual, texture, strange + (0.0 if texture is None else float(texture @ texture) / len(texture))
        )

    def save(self, path: Path) -> None:
        """Writes one ``.npz`` file, whole or not at all."""
        arrays = {"templates": self.templates, "means": self.means, "strange": self.strange}
        for part in PARTS:
            if (model := getattr(self, part)) is not None:
                arrays |= {f"{part}_{field.name}": getattr(model, field.name) for field in fields(model)}
        told: dict[str, Any] = {name: getattr(self, name) for name in ("labels", "looks", "memory", "frames")}
        for name in PEAKS:
            peaks: Peaks | None = getattr(self, name)
            told[name] = None if peaks is None else asdict(peaks)
        unfinished = path.with_name(path.name + ".partial")
        with unfinished.open("wb") as out:
            text = json.dumps({"format": FORMAT, **told})
            np.savez_compressed(out, told=np.array(text), **arrays)  # type: ignore[arg-type]
        unfinished.replace(path)

    @classmethod
    def open(cls, path: Path) -> Reference:
        """Raises ``Damaged`` where the file is not a whole reference."""
        try:
            with np.load(path, allow_pickle=False) as data:
                told = json.loads(str(data["told"]))
                arrays = {name: data[name] for name in data.files if name != "told"}
            if told["format"] != FORMAT:
                raise ValueError(told["format"])
            parts = {part: _part(kind, part, arrays) for part, kind in PARTS.items()}
            features, texture = (told[name] and Peaks(**told[name]) for name in PEAKS[1:])
            return cls(
                tuple(told["labels"]), arrays["templates"], arrays["means"], parts["kernel"], tuple(told["looks"]),
                arrays["strange"], told["memory"], Peaks(**told["map_peaks"]), features, told["frames"],
                parts["texture"], texture,
            )  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
            raise Damaged(
                f"{path.name} is not a whole drift reference of the form {FORMAT}; "
                "make it anew with `foveola drift calibrate`"
            ) from error


PARTS: Mapping[str, Any] = {"kernel": KernelMap, "texture": Whitening}
PEAKS = ("map_peaks", "feature_peaks", "texture_peaks")


def _part(kind: Any, part: str, arrays: Mapping[str, Any]) -> Any:
    """A part of the reference from its arrays; None where it has none."""
    names = [field.name for field in fields(kind)]
    return kind(**{name: arrays[f"{part}_{name}"] for name in names}) if f"{part}_{names[0]}" in arrays else None


def calibrate(seen: Sequence[Observation], *, seed: int = 0) -> Reference:
    """A reference from frames in the order in which they came.

    Every other stretch of frames makes templates and means; the rest, which they never saw, tells how the charts behave
    without drift, by a block bootstrap that keeps the dependence between neighbours.

    Raises:
        Invalid: fewer than ``LEAST`` frames.
    """
    if len(seen) < LEAST:
        raise Invalid(
            f"{len(seen)} frames came; a reference needs at least {LEAST}, and a few hundred are better: "
            "let the camera run longer while all is well"
        )
    stretch = max(5, len(seen) // 40)
    turn = (np.arange(len(seen)) // stretch) % 2
    model, held = (
        [s for s, t in zip(seen, turn, strict=True) if not t],
        [s for s, t in zip(seen, turn, strict=True) if t],
    )
    counts = Counter(s.label for s in model)
    labels = (EVERY, *sorted(label for label, n in counts.items() if n >= OWN and label != EVERY))
    of = {label: [s for s in model if label in (EVERY, s.label)] for label in labels}
    templates = np.stack([np.mean([s.map for s in of[label]], 0) for label in labels])
    means, kernel, texture = np.zeros((len(labels), 0)), None, None
    if _whole([s.features for s in seen]):
        kernel = KernelMap.fit(np.stack([s.features for s in model]), seed)
        means = np.stack([kernel(np.stack([s.features for s in of[label]])).mean(0) for label in labels])
    if _whole([s.texture for s in seen]):
        texture = Whitening.fit([np.stack([s.texture for s in of[label]]) for label in labels])
    none = Peaks(0, 1, 1)
    rough = Reference(
        labels, templates, means, kernel, (0.0, 1.0), np.zeros(0), 1, none, None, len(seen), texture
    )  # fmt: skip
    return _with_charts(rough, held, seed)


def _whole(vectors: Sequence[Floats]) -> bool:
    """Whether every frame brought numbers, and as many."""
    return len(vectors[0]) > 0 and len({len(vector) for vector in vectors}) == 1


def _with_charts(rough: Reference, held: Sequence[Observation], seed: int) -> Reference:
    """The reference with what the held-back frames say about the charts."""
    raw = np.asarray([rough.map_score(s) for s in held])
    looks = (float(raw.mean()), max(float(raw.std()), 1e-6))
    scores = (raw - looks[0]) / looks[1]
    memory = memory_of(scores)
    order = blocks(np.random.default_rng(seed), len(held), 2 * memory, RUNS, HORIZON)
    # a mean of n frames is off by about 1/√n deviations: the bounds must hold where the true one lies that much higher
    off = (memory / len(held)) ** 0.5
    map_peaks = Peaks.fit(Cusum().peaks(scores[order] + off), HORIZON)
    settled = replace(rough, looks=looks, memory=memory, map_peaks=map_peaks)
    # the distance to a reference of n frames is that much greater than to the true mean
    wider = 1 + memory * (2 - MeanChart().memory) / MeanChart().memory / rough.frames

    def peaks_of(residuals: Floats) -> Peaks:
        return Peaks.fit(wider * MeanChart().peaks(residuals - residuals.mean(0), order), HORIZON)

    # the held-back frames also say where the means are: both halves together know them better than one
    features = [r for s in held if (r := rough.residual(s)) is not None]
    if features:
        settled = replace(
            settled, means=rough.means + np.mean(features, 0) / 2, feature_peaks=peaks_of(np.stack(features))
        )
    textures = [r for s in held if (r := rough.texture_residual(s)) is not None]
    if rough.texture is not None and textures:
        texture = rough.texture.moved(np.mean(textures, 0) / 2)
        settled = replace(settled, texture=texture, texture_peaks=peaks_of(np.stack(textures)))
    return replace(settled, strange=np.sort([settled.judged(s).strangeness for s in held]))
