"""The run: every contender answers the same items in turn, A B C, B C A, C A B, until all have had their share.

Machines are noisy: what another process steals in one minute it steals from whoever works in that minute. Interleaved,
it steals from everybody, and ratios hold where the times themselves do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from foveola.bench.contender import Contender
from foveola.bench.sample import Block, Item, Sample

Progress = Callable[[str, int, int], None]
"""Called with what is being done, the number of requests done, and how many there are."""


@dataclass(slots=True)
class Series:
    """What one contender did at one concurrency: blocks in the order of the rounds."""

    contender: str
    concurrency: int
    blocks: list[Block] = field(default_factory=list)

    @property
    def samples(self) -> list[Sample]:
        """All requests, in the order of the items: the n-th of every contender is the same question."""
        return [sample for block in self.blocks for sample in block.samples]

    @property
    def wall_s(self) -> float:
        """Seconds in which it worked."""
        return sum(block.wall_s for block in self.blocks)


def block_size(concurrency: int) -> int:
    """Requests per turn. Several rounds' worth where many are asked at once, so that the tail weighs little."""
    return 1 if concurrency == 1 else 2 * concurrency


def measure(
    contenders: Sequence[Contender],
    items: Sequence[Item],
    *,
    requests: int,
    concurrency: Sequence[int],
    warmup: int,
    progress: Progress = lambda what, done, total: None,
) -> list[Series]:
    """Ask every contender at least ``requests`` times at each concurrency, after ``warmup`` unmeasured requests.

    ``items`` are asked in turn, from the beginning for each concurrency. The series come ordered by concurrency, then
    by contender.
    """
    plan = [(at_once, -(-requests // block_size(at_once))) for at_once in concurrency]
    total = len(contenders) * sum(rounds * block_size(at_once) for at_once, rounds in plan)
    done = 0
    every: list[Series] = []
    for at_once, rounds in plan:
        for contender in contenders:
            progress(f"{contender.name}: warming up", done, total)
            contender.run(_slice(items, 0, max(warmup, at_once)), at_once)
        series = [Series(contender.name, at_once) for contender in contenders]
        for turn in range(rounds):
            asked = _slice(items, turn * block_size(at_once), block_size(at_once))
            for place in _order(len(contenders), turn):
                progress(f"{contenders[place].name}, {at_once} at once", done, total)
                series[place].blocks.append(contenders[place].run(asked, at_once))
                done += len(asked)
        every += series
    progress("done", total, total)
    return every


def _slice(items: Sequence[Item], start: int, count: int) -> list[Item]:
    return [items[(start + offset) % len(items)] for offset in range(count)]


def _order(count: int, turn: int) -> list[int]:
    """Who follows whom changes: what one leaves behind (heat, caches) is not always left to the same."""
    return [(turn + place) % count for place in range(count)]
