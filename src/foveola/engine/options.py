"""How an engine is set up: frozen, resolved once, before anything is built."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from foveola.engine.providers import NAMES

MAX_THREADS = 512
MOST = {"slots": 1024, "eyes": MAX_THREADS, "prepare_threads": MAX_THREADS, "red_zone_bytes": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one engine. Raises ``ValueError`` that names the field when a value is out of range.

    ``threads`` compute one graph together; the default is the number of cores that this process may use, counted when
    the options are made. ``spin_us`` is how long they wait busily for the next operator before they sleep, in
    microseconds; 0 is not at all. Decoding is a quick succession of small operators, so a short wait saves the wake-up
    of each; a long one (ONNX Runtime's own default) takes the cores from whoever has work as soon as others want them.
    On two cores 50 was as fast as spinning without bound when nobody disturbed, and as fast as not spinning at all when
    somebody did (where spinning without bound took two to ten times as long).
    """

    threads: int = field(default_factory=lambda: min(usable_cores(), MAX_THREADS))
    spin_us: int = 50
    slots: int = 8  # requests that are computed at once
    kv_mib: int = 2048  # keys and values of all requests under way; who does not fit waits
    queue_limit: int = 32  # requests that may wait, those whose pictures are being decoded included
    patience_s: float = 10.0  # who waits so long counts one priority higher
    prefill_chunk: int = 256  # tokens of a prompt that are computed at a time while others wait
    prefill_alone: int = 1024  # and while nobody does
    prefix_cache_mib: int = 128  # keys and values of earlier prompts
    feature_cache_mib: int = 64  # visual tokens of earlier pictures
    picture_cache_mib: int = 64  # decoded pictures, for whoever asks about one again
    guess: bool = True  # check several tokens at once where the bundle's plan says what that costs
    two_layouts: bool = True  # the decoder's weights a second time, for prompts, where the bundle's plan wants that
    eyes: int = 2  # pictures that go through the vision graph at once
    prepare_threads: int = 2  # decode and resize pictures beside the engine's own thread
    stall_after_s: float = 30.0  # work is due and nothing has moved for so long: not ready
    red_zone_bytes: int = 256  # known bytes on each side of every bound buffer; 0 is none
    red_zone_every: int = 1  # runs after which those of lasting buffers are looked at
    provider: str = "cpu"  # of ONNX Runtime, by the names of ``providers.py``; auto takes the best that is installed
    failures_until_dead: int = 3  # runs that fail one after the other, without one that works between them

    def __post_init__(self) -> None:
        """Check every range."""
        if not 1 <= self.threads <= MAX_THREADS:
            raise ValueError(f"`threads` is {self.threads}; expected 1 to {MAX_THREADS}.")
        if self.provider not in NAMES:
            raise ValueError(f"`provider` is {self.provider!r}; expected one of {', '.join(NAMES)}.")
        caches = ("prefix_cache_mib", "feature_cache_mib", "picture_cache_mib")
        for name in ("spin_us", "queue_limit", "red_zone_bytes", *caches):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected at least 0.")
        one = ("slots", "kv_mib", "prefill_chunk", "prefill_alone", "eyes", "prepare_threads", "red_zone_every")
        for name in (*one, "failures_until_dead"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected at least 1.")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"`{name}` is {getattr(self, name)}; expected at most {most}.")
        for name in ("stall_after_s", "patience_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` is {value}; expected a number of seconds above 0.")


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use: its affinity, or less where the container has a CPU quota (cgroup v2)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
    except (OSError, ValueError):  # not Linux, cgroup v1, or no quota file in the root group
        return cores
    return cores if limit == "max" else max(1, min(cores, int(limit) // int(period)))
