"""How a canary goes on: a pure function of what is declared, how far it is, what was observed, and the time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal

from foveola.rollout.release import Analysis, Canary, Release

Phase = Literal["Progressing", "Paused", "Promoted", "RolledBack"]


@dataclass(frozen=True, slots=True)
class Observed:
    """What Prometheus says of the canary since its last step; None: nothing."""

    requests: float | None = None
    error_rate: float | None = None
    latency_s: float | None = None
    accuracy: float | None = None
    similarity: float | None = None
    drift_share: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a canary is. ``since_s`` is when its step began; ``declared`` marks its declaration."""

    version: str
    phase: Phase
    step: int
    weight: int
    since_s: float
    failures: int = 0
    reason: str = ""
    declared: str = ""

    def to_json(self) -> dict[str, Any]:
        """As it stands in the status."""
        return {"version": self.version, "phase": self.phase, "step": self.step, "weight": self.weight,
                "since": self.since_s, "failures": self.failures, "reason": self.reason,
                "declared": self.declared}  # fmt: skip

    @classmethod
    def of(cls, status: dict[str, Any] | None) -> Progress | None:
        """From the status; None where there is none."""
        if not status or "phase" not in status:
            return None
        return cls(
            status["version"], status["phase"], int(status["step"]), int(status["weight"]), float(status["since"]),
            int(status.get("failures", 0)), str(status.get("reason", "")), str(status.get("declared", "")),
        )  # fmt: skip


def declaration(release: Release) -> str:
    """What makes a canary another one: its version, image, bundle and steps, but not whether it is paused."""
    canary = release.canary
    assert canary is not None
    version = release[canary.version]
    told = repr((version.name, version.image, version.bundle, canary.steps))
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def current(release: Release, progress: Progress | None, now_s: float) -> Progress | None:
    """The progress that goes on: the one that is, or a first step where another canary was declared."""
    if release.canary is None:
        return None
    declared = declaration(release)
    if progress is not None and progress.declared == declared:
        return progress
    return Progress(release.canary.version, "Progressing", 0, release.canary.steps[0], now_s, declared=declared)


def breaches(analysis: Analysis, observed: Observed) -> list[str]:
    """What is wrong, in words with figures; a figure that is missing is not held against the canary here."""
    found = []
    for value, bound, name, sign in (
        (observed.error_rate, analysis.max_error_rate, "error rate", 1),
        (observed.latency_s, analysis.max_latency_s, "p95 latency in s", 1),
        (observed.accuracy, analysis.min_accuracy, "accuracy", -1),
        (observed.similarity, analysis.min_similarity, "similarity of attention (drift)", -1),
        (observed.drift_share, analysis.max_drift_share, "drift chart as a share of its bound", 1),
    ):
        if value is not None and not sign * value <= sign * bound:  # NaN keeps no bound
            found.append(f"{name} {value:.3g}, allowed {bound:g}")
    return found


def advance(canary: Canary, progress: Progress, observed: Observed, now_s: float) -> Progress:
    """One look at the canary.

    A breach counts; ``failures`` in a row roll back. A look without breach and with ``min_requests`` requests after
    ``interval_s`` goes one step on; after the last step it is promoted. Without requests nothing is decided: a canary
    that nobody asked is not healthy.
    """
    if progress.phase in ("Promoted", "RolledBack"):
        return progress
    if canary.paused:
        return replace(progress, phase="Paused", reason="paused by the declaration")
    if progress.phase == "Paused":
        progress = replace(progress, phase="Progressing", since_s=now_s, reason="")
    wrong = breaches(canary.analysis, observed)
    enough = observed.requests is not None and observed.requests >= canary.analysis.min_requests
    if wrong and enough:
        failures = progress.failures + 1
        told = "; ".join(wrong)
        if failures >= canary.analysis.failures:
            return replace(progress, phase="RolledBack", weight=0, failures=failures, reason=told, since_s=now_s)
        return replace(progress, failures=failures, reason=f"{told} ({failures} of {canary.analysis.failures})")
    if now_s - progress.since_s < canary.interval_s:
        return progress
    if not enough:
        return replace(progress, reason=f"waiting for {canary.analysis.min_requests} requests")
    step = progress.step + 1
    if step >= len(canary.steps) or canary.steps[progress.step] >= 100:
        return replace(
            progress, phase="Promoted", weight=100, failures=0, reason="every step was healthy", since_s=now_s
        )
    return replace(progress, step=step, weight=canary.steps[step], failures=0, reason="", since_s=now_s)


def weights_of(release: Release, progress: Progress | None) -> dict[str, int]:
    """Shares of traffic in per cent of each version, summing to 100 (largest remainders, ties by order)."""
    if progress is not None and release.canary is not None and progress.version == release.canary.version:
        given = {version.name: 0 for version in release.versions}
        given[progress.version] = progress.weight
        others = [one for one in release.versions if one.name != progress.version]
        rest = {one.name: one.weight for one in others}
        if not sum(rest.values()):
            rest[release.stable.name] = 1
        return given | _shares(rest, 100 - progress.weight)
    if release.canary is not None:
        rest = {one.name: one.weight for one in release.versions if one.name != release.canary.version}
        if not sum(rest.values()):
            rest[release.stable.name] = 1
        return {release.canary.version: 0} | _shares(rest, 100)
    return _shares({one.name: one.weight for one in release.versions}, 100)


def _shares(weights: dict[str, int], total: int) -> dict[str, int]:
    whole = sum(weights.values())
    exact = {name: weight * total / whole for name, weight in weights.items()}
    found = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[: total - sum(found.values())]:
        found[name] += 1
    return found
