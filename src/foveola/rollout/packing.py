"""Packing MIG slices onto GPUs: a pure function, its rivals, and the exact optimum for small cases.

Best-fit decreasing with lookahead: large profiles first; each goes to the GPU and the place that leaves the most
possible places for all profiles (the fewest lost), used GPUs before empty ones. Where the lower bound is not met and
the case is small, the exact search decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from foveola.rollout.gpu import COMPUTE_SLICES, MEMORY_SLICES, MODELS, Profile

EXACT_LIMIT = 10
"""Up to so many slices the optimum is searched for; it takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A request: ``name`` of whoever asks, and the profile."""

    name: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slice lies: GPU and first memory slice."""

    slice: Slice
    gpu: int
    start: int


@dataclass(frozen=True, slots=True)
class Packing:
    """Places, what found none, and how many GPUs are used."""

    places: tuple[Place, ...]
    left: tuple[Slice, ...]

    @property
    def gpus_used(self) -> int:
        """GPUs with at least one slice."""
        return len({place.gpu for place in self.places})


@dataclass(frozen=True, slots=True)
class _Gpu:
    """Bits of memory slices that are taken, and compute slices."""

    memory: int = 0
    compute: int = 0

    def fits(self, profile: Profile, start: int) -> bool:
        mask = ((1 << profile.memory) - 1) << start
        return not self.memory & mask and self.compute + profile.compute <= COMPUTE_SLICES

    def with_(self, profile: Profile, start: int) -> _Gpu:
        return _Gpu(self.memory | ((1 << profile.memory) - 1) << start, self.compute + profile.compute)

    def starts(self, profile: Profile) -> list[int]:
        return [start for start in profile.starts if self.fits(profile, start)]


@lru_cache(maxsize=1 << 14)
def _freedom(memory: int, compute: int, profiles: tuple[Profile, ...]) -> int:
    """In how many ways one more slice could be put on a GPU, larger profiles counting by their size."""
    gpu = _Gpu(memory, compute)
    return sum(profile.compute * len(gpu.starts(profile)) for profile in profiles)


def pack(slices: Sequence[Slice], gpus: int, model: str) -> Packing:
    """Place ``slices`` on ``gpus`` GPUs of one model, on as few as possible. Deterministic."""
    found = best_fit(slices, gpus, model)
    bound = -(-sum(one.profile.compute for one in slices) // COMPUTE_SLICES)
    if (found.left or found.gpus_used > bound) and len(slices) <= EXACT_LIMIT:
        return exact(slices, gpus, model)
    return found


def _by_size(one: Slice) -> tuple[int, int, str]:
    return -one.profile.memory, -one.profile.compute, one.name


def best_fit(slices: Sequence[Slice], gpus: int, model: str) -> Packing:
    """The heuristic alone: large slices first, each where it takes the fewest possible places from others."""
    profiles = MODELS[model]
    state = [_Gpu() for _ in range(gpus)]
    places, left = [], []
    for one in sorted(slices, key=_by_size):
        options = []
        for index, gpu in enumerate(state):
            for start in gpu.starts(one.profile):
                after = gpu.with_(one.profile, start)
                lost = _freedom(gpu.memory, gpu.compute, profiles) - _freedom(after.memory, after.compute, profiles)
                options.append((not gpu.compute, lost, index, start))
        if not options:
            left.append(one)
            continue
        _, _, index, start = min(options)
        state[index] = state[index].with_(one.profile, start)
        places.append(Place(one, index, start))
    return Packing(tuple(places), tuple(left))


def first_fit(slices: Sequence[Slice], gpus: int, model: str) -> Packing:
    """The baseline: as they come, on the first GPU and at the first place that is free."""
    state = [_Gpu() for _ in range(gpus)]
    places, left = [], []
    for one in slices:
        spot = next(((i, s) for i, gpu in enumerate(state) for s in gpu.starts(one.profile)), None)
        if spot is None:
            left.append(one)
            continue
        state[spot[0]] = state[spot[0]].with_(one.profile, spot[1])
        places.append(Place(one, *spot))
    return Packing(tuple(places), tuple(left))


def exact(slices: Sequence[Slice], gpus: int, model: str) -> Packing:
    """The optimum by branch and bound: the fewest slices left (by compute), then the fewest GPUs."""
    order = sorted(slices, key=_by_size)
    best: tuple[int, int, tuple[Place, ...]] | None = None
    seen: set[tuple[int, int, tuple[_Gpu, ...]]] = set()

    def search(index: int, state: tuple[_Gpu, ...], places: tuple[Place, ...], lost: int) -> None:
        nonlocal best
        used = sum(bool(gpu.compute) for gpu in state)
        if best is not None and (lost, used) >= best[:2]:
            return
        if index == len(order):
            best = (lost, used, places)
            return
        # GPUs are alike: states that differ by their order only are one.
        mark = (index, lost, tuple(sorted(state, key=lambda gpu: (gpu.memory, gpu.compute))))
        if mark in seen:
            return
        seen.add(mark)
        one = order[index]
        tried: set[_Gpu] = set()
        for number, gpu in enumerate(state):
            if gpu in tried:
                continue
            tried.add(gpu)
            for start in gpu.starts(one.profile):
                after = (*state[:number], gpu.with_(one.profile, start), *state[number + 1 :])
                search(index + 1, after, (*places, Place(one, number, start)), lost)
        search(index + 1, state, places, lost + one.profile.compute)

    search(0, tuple(_Gpu() for _ in range(gpus)), (), 0)
    assert best is not None
    placed = {id(place.slice) for place in best[2]}
    return Packing(best[2], tuple(one for one in order if id(one) not in placed))


def check(packing: Packing) -> None:
    """Assert that no two slices overlap and every slice begins where it may (for tests and before use)."""
    state: dict[int, _Gpu] = {}
    for place in packing.places:
        gpu = state.get(place.gpu, _Gpu())
        profile = place.slice.profile
        if place.start not in profile.starts or place.start + profile.memory > MEMORY_SLICES:
            raise AssertionError(f"{profile.name} may not begin at {place.start}")
        if not gpu.fits(profile, place.start):
            raise AssertionError(f"{place.slice.name} overlaps another slice on GPU {place.gpu}")
        state[place.gpu] = gpu.with_(profile, place.start)
