"""The repair itself: one pass over the stream, resumable, its losses as the options say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from foveola.learn.distil.averaging import Average, EarlyStop, Weights, snapshot
from foveola.learn.distil.batch import Batch, Memory
from foveola.learn.distil.boxes import TokenHeads, fit_heads
from foveola.learn.distil.camera import camera_change
from foveola.learn.distil.gate import Sight
from foveola.learn.distil.losses import (
    adjusted_cross_entropy,
    anchor,
    class_weights,
    distillation,
    prior,
    trust_in_teacher,
    unevenness,
)
from foveola.learn.distil.measure import marks
from foveola.learn.distil.options import DistilOptions
from foveola.learn.distil.pupil import Pupil, look
from foveola.learn.distil.tail import Example

WARM_UP = 5
LEAST = 0.1
HOLD_BACK = 8


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """What there is to learn from. ``stream`` in its order; ``old`` labelled pictures from before it; the guards are
    looked at and never learnt from."""

    stream: Sequence[Example]
    old: Sequence[Example]
    guard_old: Sequence[Example] = ()
    guard_new: Sequence[Example] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What a step reports: its number of all, the loss, λ_t, and the guard's score where it was looked at."""

    step: int
    steps: int
    loss: float
    strength: float
    guard: float | None


def held_back(stream: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """What of a stream is learnt, and every eighth labelled picture of each class for the guard: of rare ones none."""
    counts: dict[int, int] = {}
    learnt: list[Example] = []
    kept: list[Example] = []
    for one in stream:
        counts[one.label] = counts.get(one.label, 0) + 1
        (kept if one.label >= 0 and counts[one.label] % HOLD_BACK == 0 else learnt).append(one)
    return learnt, kept


class Distiller:
    """Trains ``pupil``'s tower, and ``heads`` with it. ``told`` hears every step; ``saved`` is called to save."""

    def __init__(self, pupil: Pupil, heads: TokenHeads, lessons: Lessons, options: DistilOptions) -> None:
        self.pupil, self.heads, self.lessons, self.options = pupil, heads, lessons, options
        self.teacher = pupil.twin()
        self.memory = Memory(options, lessons.stream, lessons.old)
        self.steps = math.ceil(len(lessons.stream) / options.fresh)
        self.step = 0
        classes = len(pupil.classes)
        self.counts = np.zeros(classes)
        self.shown = torch.zeros(classes)
        pupil.tower.requires_grad_(True)
        self.parameters = [*pupil.tower.parameters(), *heads.parameters()]
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=options.rate, betas=(0.9, 0.98), weight_decay=options.weight_decay
        )
        self.average = Average(pupil.tower, options.average)
        self.stop = EarlyStop(options.patience)
        self.best: Weights | None = None
        self._camera_of = 0
        self._prototypes, self._scale = torch.zeros(classes, pupil.width), 1.0
        self._has_prototype = torch.zeros(classes, dtype=torch.bool)
        self._remember_old()

    def _remember_old(self) -> None:
        """The old pictures enter the reservoir, and each class gets the place its features had."""
        if not (self.options.keeps_old or self.options.anchor):
            return
        features, _ = look(self.teacher, [one.pixels for one in self.lessons.old])
        pooled = features.mean(1)
        self._scale = float(pooled.square().sum(-1).mean()) if len(pooled) else 1.0
        labels = torch.tensor([one.label for one in self.lessons.old], dtype=torch.long)
        for label in sorted({one.label for one in self.lessons.old if one.label >= 0}):
            self._prototypes[label] = pooled[labels == label].mean(0)
            self._has_prototype[label] = True
        rng = np.random.default_rng([self.options.seed, 1])
        if self.options.keeps_old:
            for place, (one, feature) in enumerate(zip(self.lessons.old, pooled.numpy(), strict=True)):
                if one.label >= 0:
                    self.memory.reservoir.offer(-1 - place, one.label, True, feature, rng)

    def run(
        self,
        told: Callable[[Told], None] = lambda told: None,
        save: Callable[[Distiller], None] = lambda distiller: None,
    ) -> Weights:
        """Goes on to the end of the stream, or until it no longer helps; the tower's weights that it arrived at."""
        while self.step < self.steps and not self.stop.over:
            loss, strength = self._one()
            self.step += 1
            guard = self._check() if self._is_due() else None
            told(Told(self.step, self.steps, loss, strength, guard))
            if self.step % self.options.save_every == 0 or self.step == self.steps:
                save(self)
        return self.result()

    def result(self) -> Weights:
        """The best that the guard saw; without a guard the averaged weights, or the last."""
        if self.best is not None:
            return self.best
        return self.average.weights if self.options.average else snapshot(self.pupil.tower)

    def _is_due(self) -> bool:
        every = self.options.check_every
        guarded = len(self.lessons.guard_old) + len(self.lessons.guard_new) > 0
        return bool(every) and guarded and (self.step % every == 0 or self.step == self.steps)

    def _one(self) -> tuple[float, float]:
        options = self.options
        start = self.step * options.fresh
        places = range(start, min(start + options.fresh, len(self.lessons.stream)))
        fresh = [self.lessons.stream[place] for place in places]
        for one in fresh:
            if one.label >= 0:
                self.counts[one.label] += 1
        rng = np.random.default_rng([options.seed, 2, self.step])
        self._look_at_the_camera()
        batch = self.memory.batch(fresh, self.counts, rng)
        strength = options.distil * self._entropy_factor()
        with torch.random.fork_rng(devices=[]):  # what the heads drop depends on the step, not on who was killed when
            torch.manual_seed(options.seed * 1_000_003 + self.step)
            loss, places_of = self._loss(batch, strength)
        for group in self.optimiser.param_groups:
            group["lr"] = options.rate * _rate(self.step, self.steps)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimiser.step()
        self.average.follow(self.pupil.tower)
        self._keep(places, places_of, rng)
        return float(loss.detach()), strength

    def _look_at_the_camera(self) -> None:
        """What the new line changed is found anew whenever twice as much of it has come."""
        known = 1 << (self.step.bit_length() - 1) if self.step else 0
        if not self.options.restyle or known == self._camera_of:
            return
        self._camera_of = known
        self.memory.change = camera_change(self.lessons.old, self.lessons.stream[: known * self.options.fresh])

    def _entropy_factor(self) -> float:
        if not self.options.entropy:
            return 1.0
        return 0.5 + unevenness(prior(torch.from_numpy(self.counts)))

    def _loss(self, batch: Batch, strength: float) -> tuple[Tensor, Tensor | None]:
        """The loss of a batch, and the teacher's pooled features of its pictures [B, W] where the teacher looked."""
        options = self.options
        features = self.pupil.see(np.stack([one.pixels for one in batch.shown]))
        scores = self.pupil.score(features)
        targets = batch.targets(len(self.pupil.classes))
        labelled = targets.sum(-1) > 0
        self.shown += targets.sum(0)
        shares = prior(self.shown)
        weights = class_weights(shares, options.class_power) if options.class_power else None
        hard = adjusted_cross_entropy(scores[labelled], targets[labelled], shares, options.tau, weights)
        loss = hard if options.alpha is None else (1 - options.alpha) * hard
        pooled = None
        if options.distil or options.anchor:
            taught, pooled = self._from_teacher(batch, features, scores, strength)
            loss = loss + taught
        if options.locating:
            loss = loss + options.locating * self.heads.loss(features, batch.shown)
        return loss, pooled

    def _from_teacher(self, batch: Batch, features: Tensor, scores: Tensor, strength: float) -> tuple[Tensor, Tensor]:
        options = self.options
        with torch.no_grad():
            known = self.teacher.see(np.stack([one.pixels for one in batch.known]))
            said = self.teacher.score(known)
        if options.alpha is not None:
            believed = torch.ones(len(said))
            mixed = options.alpha * distillation(said, scores, options.temperature, believed, balanced=False)
            return mixed, known.mean(1)
        whole = torch.tensor([one.mixed is None for one in batch.shown])
        trust = trust_in_teacher(said, batch.labels, batch.old) * whole
        soft = strength * distillation(said, scores, options.temperature, trust)
        old = batch.old & whole
        new = ~batch.old & (batch.labels >= 0)
        new = new & self._has_prototype[batch.labels.clamp(min=0)]
        kept = anchor(features[old].flatten(0, 1), known[old].flatten(0, 1), self._scale)
        drawn = anchor(features[new].mean(1), self._prototypes[batch.labels[new]], self._scale)
        return soft + options.anchor * (kept + drawn), known.mean(1)

    def _keep(self, places: range, pooled: Tensor | None, rng: np.random.Generator) -> None:
        """What came is remembered, if it has a label; ``pooled`` is what the teacher saw in it, the stream first."""
        nothing = np.zeros(self.pupil.width, np.float32)
        for row, place in enumerate(places):
            label = self.lessons.stream[place].label
            if label < 0:
                continue
            self.memory.seen.append(place)
            if self.options.keeps_old:
                feature = nothing if pooled is None else pooled[row].numpy()
                self.memory.reservoir.offer(place, label, False, feature, rng)

    def _check(self) -> float:
        """Looks at the guard set with the averaged weights, which are kept where they are the best."""
        weights = self.average.weights if self.options.average else snapshot(self.pupil.tower)
        seen = self.sight(weights)
        every = range(len(self.pupil.classes))
        parts = [one.mean_of(every) for one in (seen.old, seen.new) if sum(one.count)]
        score = float(np.mean(parts))
        if self.stop.look(score):
            self.best = {name: weight.clone() for name, weight in weights.items()}
        return score

    def refit_heads(self, weights: Weights) -> None:
        """Teach the heads anew on the features of a tower of ``weights``, from memory, every class as often: what a
        tower learns from an uneven stream is better than what its heads do (Kang et al., ICLR 2020)."""
        known = self.memory.located(np.random.default_rng([self.options.seed, 3]))
        if not (self.options.refit and self.options.keeps_old and known):
            return
        mine = snapshot(self.pupil.tower)
        self.pupil.tower.load_state_dict(weights)
        try:
            features, _ = look(self.pupil, [one.pixels for one in known])
        finally:
            self.pupil.tower.load_state_dict(mine)
        fit_heads(self.heads, features, known, steps=self.options.refit, seed=self.options.seed)

    def sight(self, weights: Weights) -> Sight:
        """What a tower of these weights makes the model answer on the guard set; nothing is changed."""
        mine = snapshot(self.pupil.tower)
        self.pupil.tower.load_state_dict(weights)
        try:
            found = [
                marks(look(self.pupil, [one.pixels for one in guard])[1], [one.label for one in guard])
                for guard in (self.lessons.guard_old, self.lessons.guard_new)
            ]
        finally:
            self.pupil.tower.load_state_dict(mine)
        return Sight(*found)


def _rate(step: int, steps: int) -> float:
    """Warm-up, then a cosine down to a tenth."""
    warm = min(1.0, (step + 1) / WARM_UP)
    return warm * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * step / max(1, steps))))
