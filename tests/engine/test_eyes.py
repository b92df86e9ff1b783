"""Pictures beside the engine's thread: nobody waits for another's picture, and each is encoded once."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from foveola.engine.eyes import Eyes
from foveola.engine.features import Selected
from foveola.engine.pictures import EncoderInput, one_by_one
from foveola.engine.prepared import Prepared
from foveola.exchange import Request, Unavailable
from foveola.intake.geometry import Packed
from tests.engine.fakes import FakePreparing, FakeRunner, fake_engine, request, until
from tests.engine.test_scheduler import in_thread, text


class Blinking(FakeRunner):
    """Its pictures take until ``open`` is set; everything else is as quick as ever."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.open = threading.Event()
        self.at_once: list[int] = []
        self._inside = 0
        self._lock = threading.Lock()

    def encode(self, packed: Packed) -> Selected:
        with self._lock:
            self._inside += 1
            self.at_once.append(self._inside)
        assert self.open.wait(30), "the test never let it see"
        with self._lock:
            self._inside -= 1
        return super().encode(packed)


def picture(patches: int, shade: int = 0) -> EncoderInput:
    pixels = np.full((patches, 3), shade, np.float32)
    packed = Packed(pixels, np.zeros((patches, 2), int), np.zeros(patches, np.int64), (), ())
    return one_by_one(packed)[0]


def test_a_picture_delays_nobody() -> None:
    runner = Blinking(slots=4)
    engine = fake_engine(runner, eyes=2)
    seeing = [in_thread(engine, request(one, images=(b"x",))) for one in "abc"]
    until(lambda: bool(runner.at_once) and engine.health().active == 3)
    plain, said = in_thread(engine, request("no picture"))
    plain.join(30)
    assert text(said) == "no picture"
    runner.open.set()
    for thread, _ in seeing:
        thread.join(30)
    assert [text(got).strip() for _, got in seeing] == ["a", "b", "c"]
    assert engine.health().active == 0


def test_the_same_picture_is_encoded_once_for_all_who_ask_meanwhile() -> None:
    runner = Blinking(slots=4)
    engine = fake_engine(runner)
    seeing = [in_thread(engine, request(one, images=(b"x",))) for one in "abc"]
    until(lambda: engine.health().active == 3 and bool(runner.at_once))
    runner.open.set()
    for thread, _ in seeing:
        thread.join(30)
    assert [text(got).strip() for _, got in seeing] == ["a", "b", "c"]
    assert runner.calls.count("encode") == 1


def test_two_pictures_are_seen_at_once() -> None:
    runner = Blinking(slots=1)
    eyes = Eyes(2, lambda: None)
    looks = [eyes.look(runner, picture(4, shade)) for shade in (1, 2)]
    until(lambda: runner.at_once == [1, 2])
    runner.open.set()
    assert all(look is not None and look.result(30) for look in looks)


def test_the_end_does_not_wait_for_a_picture() -> None:
    runner = Blinking(slots=1)
    engine = fake_engine(runner)
    reader, got = in_thread(engine, request("a", images=(b"x",)))
    until(lambda: runner.at_once == [1])
    assert not engine.close(0.1)
    reader.join(30)
    assert isinstance(got[-1], Unavailable)
    assert got[-1].message.startswith("The engine is stopping")
    runner.open.set()


def test_a_picture_that_fails_is_its_own_requests_failure() -> None:
    runner = FakeRunner(slots=2)
    runner.fail = lambda call: ValueError("inside of the graph") if call == "encode" else None
    engine = fake_engine(runner)
    with pytest.raises(Unavailable, match="failed while it worked on this request"):
        list(engine.pieces(request("a", images=(b"x",))))
    assert "".join(piece.text for piece in engine.pieces(request("b"))) == "b"


def test_large_pictures_are_never_seen_two_at_once() -> None:
    runner = Blinking(slots=1)
    eyes = Eyes(2, lambda: None)
    looks = [eyes.look(runner, picture(1025, shade)) for shade in (1, 2)]
    runner.open.set()
    for look in looks:
        assert look is not None
        look.result(30)
    assert runner.at_once == [1, 1]


def test_where_all_eyes_are_busy_the_next_picture_waits() -> None:
    runner = Blinking(slots=1)
    done = threading.Semaphore(0)
    eyes = Eyes(1, done.release)
    first = eyes.look(runner, picture(4, 1))
    assert first is not None
    assert eyes.look(runner, picture(4, 1)) is first
    assert eyes.look(runner, picture(4, 2)) is None
    runner.open.set()
    assert first.result(30).selected.features.shape == (1, 8)
    assert done.acquire(timeout=30)
    assert eyes.look(runner, picture(4, 2)) is not None
    eyes.close()


class SeenElsewhere(FakePreparing):
    """Of pictures it has the features already, as a vision service or a stream gives them."""

    def __init__(self, runner: FakeRunner) -> None:
        super().__init__()
        self._runner = runner

    def __call__(self, request: Request) -> Prepared:
        prepared = super().__call__(request)
        assert prepared.packed is not None
        seen = tuple(self._runner.encode(one.packed) for one in one_by_one(prepared.packed))
        return replace(prepared, packed=None, seen=seen)


def test_who_brings_the_features_waits_for_no_eyes() -> None:
    runner = FakeRunner(slots=1)
    thread, said = in_thread(fake_engine(runner, SeenElsewhere(runner)), request("seen", images=(b"x", b"y")))
    thread.join(10)
    assert text(said).strip() == "seen"
