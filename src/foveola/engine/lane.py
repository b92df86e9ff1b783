"""Requests that run on one set of weights: their KV rows, whose prompt is computed next, who gets the next token.

Usually there is one lane. After a patch there are two for a while: newcomers run on the new weights, those who began
on the old ones end on them (``scheduler.py``), so that no answer comes from both.

A prompt is filled in in pieces: its pictures are encoded beside the engine's thread (``eyes.py``), then it goes in
chunks through the decoder, and between any two chunks everybody who runs gets a token. So a long prompt delays the
others by one chunk and no more, and a picture delays nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from foveola.engine.eyes import Eyes
from foveola.engine.features import Chunk, Floats, Select, Selected, evidence_of, joined, place
from foveola.engine.lru import ByteCache
from foveola.engine.options import EngineOptions
from foveola.engine.prefixes import PrefixCache, names_of
from foveola.engine.prompts import laid_in, taken_out
from foveola.engine.runner import Runner
from foveola.engine.sequence import Guessing, Sequence
from foveola.engine.slots import Move, Slots

MIB = 1024 * 1024


class Drawn(NamedTuple):
    """Logits float32 ``[1 + guesses, vocab]`` for one sequence, and the tokens that were guessed."""

    sequence: Sequence
    logits: Floats
    guesses: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One run of the graphs. ``run`` does it, for ``sequences``, and returns what may be drawn now."""

    sequences: tuple[Sequence, ...]
    run: Callable[[], list[Drawn]]


class Caches:
    """What is kept from request to request, shared by all lanes: keys name the weights."""

    def __init__(self, options: EngineOptions) -> None:
        self.features: ByteCache[tuple[str, bytes], Selected] = ByteCache(
            options.feature_cache_mib * MIB, lambda seen: seen.features.nbytes
        )
        self.prefixes = PrefixCache(options.prefix_cache_mib * MIB)


class Lane:
    """Owns a runner and its KV slots. Everything happens on the engine's thread."""

    def __init__(
        self,
        runner: Runner,
        caches: Caches,
        options: EngineOptions,
        *,
        eyes: Eyes,
        draft: Guessing | None,
        select: Select,
        clock: Callable[[], float],
    ) -> None:
        self.runner = runner
        self._eyes = eyes
        self._draft = draft
        self._caches = caches
        self._options = options
        self._select = select
        self._clock = clock
        self._slots: Slots[Sequence] = Slots(runner.slots)
        self._filling: list[Sequence] = []
        self.proven = False  # whether anybody has got a token here

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """Everyone here."""
        return self._slots.owners

    @property
    def open(self) -> bool:
        """Whether a slot is free."""
        return self._slots.free > 0

    def fits(self, sequence: Sequence) -> bool:
        """Whether there is memory for one more; the only one always fits."""
        if not self._slots.owners:
            return True
        tokens = sequence.cost + sum(other.cost for other in self._slots.owners)
        return tokens * self.runner.token_bytes <= self._options.kv_mib * MIB

    def take(self, sequence: Sequence) -> None:
        """Let a sequence in. It stays on these weights to its end."""
        sequence.began(self.runner.version.model_hash, self._clock())
        self._slots.acquire(sequence)
        self._filling.append(sequence)

    def release(self, sequence: Sequence) -> None:
        """Let a sequence go, finished or not."""
        if sequence in self._filling:
            self._filling.remove(sequence)
        self._move(self._slots.release(sequence))

    def works(self) -> Iterator[Work]:
        """What one step runs: what the eyes have seen, a chunk of one prompt whose pictures are known, then a token for
        everyone who runs by then. Nothing where all wait for the eyes."""
        for blind in [*self._filling]:
            if blind.looks and blind.looks[0].done():
                yield Work((blind,), partial(self._see, blind))
        for blind in sorted(self._filling, key=self._rank):
            self._look(blind)
        sighted = [sequence for sequence in self._filling if sequence.sighted]
        if sighted:
            sequence = self._next_to_fill(sighted)
            yield Work((sequence,), lambda: self._fill(sequence))
        running = self._slots.running
        if running:
            yield Work(running, lambda: self._advance(running))

    def _rank(self, sequence: Sequence) -> tuple[int, int]:
        """The shortest prompt of the highest priority first; who is overtaken counts as a chunk shorter each time."""
        return (-sequence.priority, sequence.unfilled - sequence.overtaken * self._options.prefill_chunk)

    def _next_to_fill(self, sighted: list[Sequence]) -> Sequence:
        chosen = min(sighted, key=self._rank)
        for earlier in sighted[: sighted.index(chosen)]:
            earlier.overtaken += 1
        return chosen

    def _fill(self, sequence: Sequence) -> list[Drawn]:
        now = self._clock()
        if sequence.prompt is None:
            self._begin_prompt(sequence)
        prompt = sequence.prompt
        assert prompt is not None
        chunk = cut(prompt, sequence.length, sequence.length + self._chunk_tokens())
        logits, attention = self.runner.prefill(self._slots.row(sequence), chunk)
        sequence.prefilled(chunk.start + len(chunk.ids))
        sequence.timeline.prefill_s += self._clock() - now
        if sequence.unfilled:
            return []
        self._end_prompt(sequence, prompt, attention)
        return [Drawn(sequence, self.runner.complete(logits[np.newaxis], [sequence.exact]))]

    def _chunk_tokens(self) -> int:
        """Larger pieces are quicker together; they are small only where somebody would wait."""
        alone = len(self._slots.owners) == 1
        return self._options.prefill_alone if alone else self._options.prefill_chunk

    def _look(self, sequence: Sequence) -> None:
        """Take over the features that are known, and have as many other pictures encoded as there are free eyes."""
        for picture in sequence.pictures[len(sequence.features) + len(sequence.looks) :]:
            known = None
            if not sequence.looks:  # features stand in the order of the pictures
                known = self._caches.features.get((self.runner.version.vision, picture.name))
            if known is not None:
                sequence.features.append(known)
                continue
            look = self._eyes.look(self.runner, picture)
            if look is None:
                return
            sequence.looks.append(look)

    def _see(self, sequence: Sequence) -> list[Drawn]:
        """The eyes are done with pictures of ``sequence``. Raises what encoding one raised."""
        while sequence.looks and sequence.looks[0].done():
            picture = sequence.pictures[len(sequence.features)]
            seen = sequence.looks.pop(0).result()
            self._caches.features.put((self.runner.version.vision, picture.name), seen.selected)
            sequence.features.append(seen.selected)
            sequence.timeline.vision_s += seen.seconds
        return []

    def _begin_prompt(self, sequence: Sequence) -> None:
        """All features are there: lay the prompt out, and take over what is known of its beginning."""
        prepared = sequence.prepared
        selected = None
        if sequence.features:
            parts = prepared.parts or [image.tokens for image in prepared.images]
            seen = joined(sequence.features, parts)
            selected = self._select(seen, prepared.grids)
        prompt = laid_in(place(prepared.ids, prepared.positions, prepared.visual, selected), prepared.prompt)
        sequence.lay_out(prompt, selected, names_of(prompt))
        found = self._caches.prefixes.longest(self.runner.version.language, sequence.names)
        if found is not None:
            prefix, length = found
            self.runner.write(self._slots.row(sequence), prefix.kv, length)
            sequence.known = length
            sequence.prefilled(length)

    def _end_prompt(self, sequence: Sequence, prompt: Chunk, attention: Floats) -> None:
        prepared, selected, caches = sequence.prepared, sequence.selected, self._caches
        if selected is not None:
            found = evidence_of(
                attention, taken_out(prompt, prepared.prompt), selected.kept, prepared.grids, prepared.cells
            )
            textures = prepared.textures or ((),) * len(found)
            sequence.evidence = tuple(replace(one, texture=own) for one, own in zip(found, textures, strict=True))
        if caches.prefixes.worth_keeping(sequence.names, sequence.known):
            kv = self.runner.read(self._slots.row(sequence), sequence.length)
            caches.prefixes.keep(self.runner.version.language, sequence.names, kv)
        self._filling.remove(sequence)
        self._move(self._slots.promote(sequence))

    def _advance(self, running: tuple[Sequence, ...]) -> list[Drawn]:
        """One token for everyone, or, where only one runs, as many as are worth guessing."""
        if len(running) == 1:
            sequence = running[0]
            guesses = sequence.guesses(self.runner.max_length - sequence.length - 1, self._draft)
            if guesses:
                tokens = [sequence.token, *guesses]
                logits = self.runner.verify(0, tokens, sequence.position, sequence.length)
                sequence.decoded()
                return [Drawn(sequence, self.runner.complete(logits, [sequence.exact] * len(tokens)), guesses)]
        logits = self.runner.decode(
            [sequence.token for sequence in running],
            [sequence.position for sequence in running],
            [sequence.length for sequence in running],
        )
        logits = self.runner.complete(logits, [sequence.exact for sequence in running])
        for sequence in running:
            sequence.decoded()
        return [Drawn(sequence, row[np.newaxis]) for sequence, row in zip(running, logits, strict=True)]

    def _move(self, moves: list[tuple[Move, Sequence]]) -> None:
        for move, owner in moves:
            self.runner.move(move, owner.length)


def cut(prompt: Chunk, start: int, end: int) -> Chunk:
    """The stretch ``[start, end)`` of a whole prompt, with its own share of the features."""
    end = min(end, len(prompt.ids))
    own = slice(*np.searchsorted(prompt.rows, (start, end)))
    features = None if prompt.features is None else prompt.features[own]
    bias = None if prompt.bias is None else prompt.bias[start:end]
    return Chunk(prompt.ids[start:end], prompt.positions[:, start:end], start, prompt.rows[own] - start, features, bias)
