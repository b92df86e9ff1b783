"""From series to what is told: rows of the table, ratios, shares of equal answers; plain data throughout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foveola.bench.machine import MIB
from foveola.bench.measure import Series
from foveola.bench.sample import STAGES, Sample
from foveola.bench.stats import Ratio, median, paired_ratio, percentile

FORMAT = "foveola.bench/1"
OTHER = "other"
EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the VLM-Bench table. ``batch`` is how many requests are asked at once.

    ``tokens_per_s``: how fast one answer grows after its first token (median over answers of two tokens or more,
    0 where there are none). ``stages_ms``: medians over requests; ``other`` is waiting and transport.
    """

    platform: str
    contender: str
    batch: int
    requests: int
    images_per_s: float
    ttft_ms_p50: float
    ttft_ms_p95: float
    tokens_per_s: float
    latency_ms_p50: float
    latency_ms_p95: float
    latency_ms_p99: float
    peak_memory_mib: float
    stages_ms: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Versus:
    """How many times longer ``rival`` took per request than ``contender``, at ``batch`` requests at once."""

    contender: str
    rival: str
    batch: int
    ratio: Ratio

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"contender": self.contender, "rival": self.rival, "batch": self.batch, **self.ratio.to_json()}


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often ``contender`` gave the same text as ``rival``; ``differing`` holds a few where they did not."""

    contender: str
    rival: str
    same: int
    count: int
    differing: tuple[tuple[str, str], ...]

    @property
    def share(self) -> float:
        """0..1."""
        return self.same / self.count if self.count else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "share": round(self.share, 4)}


def row_of(series: Series, platform: str, peak_bytes: int) -> Row:
    """The table's line for one series."""
    samples = series.samples
    latency_ms = [sample.latency_s * 1000 for sample in samples]
    first_ms = [sample.first_s * 1000 for sample in samples]
    rates = [(sample.tokens - 1) / sample.decode_s for sample in samples if sample.tokens > 1 and sample.decode_s > 0]
    return Row(
        platform=platform,
        contender=series.contender,
        batch=series.concurrency,
        requests=len(samples),
        images_per_s=_round(len(samples) / series.wall_s),
        ttft_ms_p50=_round(median(first_ms)),
        ttft_ms_p95=_round(percentile(first_ms, 95)),
        tokens_per_s=_round(median(rates)) if rates else 0.0,
        latency_ms_p50=_round(median(latency_ms)),
        latency_ms_p95=_round(percentile(latency_ms, 95)),
        latency_ms_p99=_round(percentile(latency_ms, 99)),
        peak_memory_mib=_round(peak_bytes / MIB),
        stages_ms=stages_ms(samples),
    )


def stages_ms(samples: Sequence[Sample]) -> dict[str, float]:
    """Median milliseconds of every stage, and of what is none of them."""
    found = {stage: _round(median([s.stages_s[stage] * 1000 for s in samples])) for stage in STAGES}
    return {**found, OTHER: _round(median([s.other_s * 1000 for s in samples]))}


def versus(series: Sequence[Series], contender: str) -> list[Versus]:
    """The ratio of every other contender's latencies to those of ``contender``, at each concurrency."""
    ours = {one.concurrency: one for one in series if one.contender == contender}
    return [
        Versus(
            contender,
            one.contender,
            one.concurrency,
            paired_ratio(
                [sample.latency_s for sample in one.samples],
                [sample.latency_s for sample in ours[one.concurrency].samples],
            ),
        )
        for one in series
        if one.contender != contender
    ]


def agreement(series: Sequence[Series], contender: str, rival: str) -> Agreement:
    """How often the two gave the same text, in the series of the smallest concurrency."""
    smallest = min(one.concurrency for one in series)
    texts = {
        one.contender: [sample.text.strip() for sample in one.samples] for one in series if one.concurrency == smallest
    }
    pairs = list(zip(texts[contender], texts[rival], strict=True))
    differing = list(dict.fromkeys((ours, theirs) for ours, theirs in pairs if ours != theirs))
    same = sum(ours == theirs for ours, theirs in pairs)
    return Agreement(contender, rival, same, len(pairs), tuple(differing[:EXAMPLES]))


def latencies(series: Sequence[Series]) -> list[dict[str, Any]]:
    """Every latency in milliseconds, for plots."""
    return [
        {
            "contender": one.contender,
            "batch": one.concurrency,
            "latency_ms": [_round(sample.latency_s * 1000) for sample in one.samples],
        }
        for one in series
    ]


def _round(value: float) -> float:
    """Four digits that count: more than any machine repeats."""
    return float(f"{value:.4g}")
