"""A model and an intake of the real interfaces that take no time: the answer is the question, letter by letter.

Tokens 0..255 are bytes, ``END`` ends an answer. ``FakeRunner`` continues every prompt with the bytes of the text that
``FakePreparing`` put into it. A gate lets tests run the engine's thread step by step.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from foveola.engine.engine import Engine
from foveola.engine.features import Chunk, Floats, Selected
from foveola.engine.options import EngineOptions
from foveola.engine.prepared import Counts, Prepared
from foveola.engine.sequence import Vocabulary
from foveola.engine.sessions import Version
from foveola.engine.slots import Move
from foveola.engine.text import TokenBytes
from foveola.exchange import BadImage, ImageUse, Request, Sampling, Turn
from foveola.intake.geometry import Packed

END = 256
VOCAB = 257


def byte_table() -> TokenBytes:
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    vocabulary = {chr(byte) if byte in printable else chr(next(spare)): byte for byte in range(256)}
    added = [{"id": END, "content": "<|end|>", "special": True}]
    model = {"vocab": vocabulary}
    return TokenBytes(json.dumps({"decoder": {"type": "ByteLevel"}, "model": model, "added_tokens": added}))


class FakeRunner:
    """Answers each prompt with its own text, then ``END``. ``fail`` is raised by the runs it is asked about."""

    def __init__(
        self, slots: int = 1, max_length: int = 512, *, gated: bool = False, version: Version | None = None
    ) -> None:
        self.slots = slots
        self.max_length = max_length
        self.token_bytes = 1024
        self.version = version or Version("hash", "vision", "language")
        self.entered: list[str] = []  # runs that have begun, those that stand at the gate included
        self.calls: list[str] = []
        self.moves: list[Move] = []
        self.fail: Callable[[str], BaseException | None] = lambda call: None
        self.gate: threading.Semaphore | None = threading.Semaphore(0) if gated else None
        self._rows: list[list[int]] = [[] for _ in range(slots + 1)]

    def encode(self, packed: Packed) -> Selected:
        self._step("encode")
        count = len(packed.pixel_values) // 4
        return Selected(np.zeros((count, 8), np.float32), np.arange(count))

    def prefill(self, row: int, chunk: Chunk) -> tuple[Floats, Floats]:
        self._step("prefill")
        # what is in the row is the answer, last letter first
        self._rows[row] = [*chunk.ids.tolist()[::-1], *(self._rows[row] if chunk.start else [])]
        size = chunk.start + len(chunk.ids)
        return self._logits(row), np.full(size, 1 / size, np.float32)

    def verify(self, row: int, tokens: Sequence[int], position: int, length: int) -> Floats:
        self._step("verify")
        left = list(self._rows[row])
        logits = np.stack([self._next_logits(row) for _ in tokens])
        right = [int(one.argmax()) == guess for one, guess in zip(logits, tokens[1:], strict=False)]
        taken = right.index(False) + 1 if False in right else len(tokens)
        self._rows[row] = left[: max(0, len(left) - taken)]
        return logits

    def decode(self, tokens: Sequence[int], positions: Sequence[int], lengths: Sequence[int]) -> Floats:
        self._step("decode")
        return np.stack([self._next_logits(row) for row in range(len(tokens))])

    def complete(self, logits: Floats, exact: Sequence[bool]) -> Floats:
        return logits

    def move(self, move: Move, length: int) -> None:
        self.moves.append(move)
        self._rows[move.target] = self._rows[move.source]

    def read(self, row: int, length: int) -> tuple[Floats, ...]:
        return (np.array(self._rows[row], np.float32),)

    def write(self, row: int, kv: tuple[Floats, ...], length: int) -> None:
        raise AssertionError("no test of this fake asks for a prefix again")

    def _logits(self, row: int) -> Floats:
        logits = np.zeros(VOCAB, np.float32)
        logits[self._rows[row][-1] if self._rows[row] else END] = 20
        return logits

    def _next_logits(self, row: int) -> Floats:
        self._rows[row] = self._rows[row][:-1]
        return self._logits(row)

    def _step(self, call: str) -> None:
        self.entered.append(call)
        if self.gate is not None:
            assert self.gate.acquire(timeout=30), "the test never opened the gate"
        self.calls.append(call)
        error = self.fail(call)
        if error is not None:
            raise error


class FakePreparing:
    """The prompt is the UTF-8 of the last turn; every picture adds a row of four visual tokens before it."""

    def __init__(self) -> None:
        self.gate: threading.Semaphore | None = None
        self.started = threading.Semaphore(0)

    def __call__(self, request: Request) -> Prepared:
        self.started.release()
        if self.gate is not None:
            assert self.gate.acquire(timeout=30), "the test never opened the gate"
        turn = request.turns[-1]
        if b"broken" in turn.images:
            raise BadImage("The picture is broken; send a whole one.", field="image")
        if turn.text == "panic":
            raise SystemExit("as a panic of native code would")
        text = list(turn.text.encode())
        visual = 4 * len(turn.images)
        packed = None
        if visual:
            picture = np.repeat(np.arange(len(turn.images)), 16)
            packed = Packed(np.zeros((len(picture), 3), np.float32), np.zeros((len(picture), 2), int), picture, (), ())
        ids = np.array([32] * visual + text, np.int64)
        return Prepared(
            ids=ids,
            positions=np.tile(np.arange(len(ids)), (3, 1)),
            next_position=len(ids),
            visual=np.arange(visual),
            packed=packed,
            grids=((1, 4),) * len(turn.images),
            images=(ImageUse((80, 20), (112, 28), 4),) * len(turn.images),
        )

    def count(self, request: Request) -> Counts:
        prepared = self(request)
        return Counts(len(prepared.ids), len(prepared.visual), prepared.images)


def request(text: str = "hello", *, images: tuple[bytes, ...] = (), id: str = "r", **sampling: object) -> Request:
    return Request(id, (Turn("user", text, images),), Sampling(**sampling))  # type: ignore[arg-type]


def fake_engine(
    runner: FakeRunner,
    preparing: FakePreparing | None = None,
    *,
    started: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    **options: object,
) -> Engine:
    engine = Engine(
        runner,
        preparing or FakePreparing(),
        Vocabulary(byte_table(), frozenset({END})),
        EngineOptions(**({"threads": 1, "slots": runner.slots, "prefix_cache_mib": 0} | options)),  # type: ignore
        clock=clock,
    )
    if started:
        engine.start()
    return engine


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread does; the bound only keeps a broken test from hanging."""
    for _ in range(10_000):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("it never happened")
