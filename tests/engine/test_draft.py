"""A small model guesses for a large one: the text stays as it is, whoever guesses and however wrong it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveola.artifact import Bundle, write_bundle
from foveola.engine.draft import Draft
from foveola.engine.engine import Engine
from foveola.engine.features import Chunk, Floats
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.engine.sequence import Sequence
from foveola.engine.speculation import FIRST_TRUST, PromptLookup, RunCosts
from foveola.exchange import Invalid
from foveola.serve.embedded import embedded_bundle
from tests.engine.fakes import END, VOCAB, FakeRunner, fake_engine, request

CHEAP = RunCosts((1.0, 1.01, 1.02, 1.03))


@pytest.fixture(autouse=True)
def nothing_stood_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake answers repeat their prompt, which is guessed without a small model: not here."""
    monkeypatch.setattr(PromptLookup, "guesses", lambda self, most: ())


class Scripted(FakeRunner):
    """Says what ``say`` answers to all tokens of its row, and remembers every row that it was asked about."""

    def __init__(self, say: Callable[[list[int]], int]) -> None:
        super().__init__()
        self._say = say
        self._tokens: list[int] = []
        self.asked: list[list[int]] = []
        self.computed = 0

    def prefill(self, row: int, chunk: Chunk) -> tuple[Floats, Floats]:
        assert chunk.start <= len(self._tokens)
        self._tokens = self._tokens[: chunk.start] + chunk.ids.tolist()
        self.computed += len(chunk.ids)
        return self._next(), np.zeros(1, np.float32)

    def decode(self, tokens: object, positions: object, lengths: object) -> Floats:
        assert lengths == [len(self._tokens)]
        self._tokens += list(tokens)  # type: ignore[call-overload]
        self.computed += 1
        return self._next()[np.newaxis]

    def _next(self) -> Floats:
        self.asked.append(list(self._tokens))
        logits = np.zeros(VOCAB, np.float32)
        logits[self._say(self._tokens)] = 20
        return logits


def repeats(text: str) -> Callable[[list[int]], int]:
    """Knows what the fake engine does: it says the prompt again."""
    answer = [*text.encode(), END]
    return lambda history: answer[len(history) - len(text)]


def drafting(small: Scripted, step_s: float = 0.0) -> tuple[FakeRunner, Engine, Draft]:
    runner = FakeRunner()
    engine = fake_engine(runner, started=False)
    draft = Draft(small, CHEAP, step_s)
    engine._costs = CHEAP
    for lane in engine._scheduler._lanes:
        lane._draft = draft
    engine.start()
    return runner, engine, draft


def test_right_guesses_save_runs() -> None:
    text = "abcdefghijklmnopqrstuvw"
    runner, engine, draft = drafting(Scripted(repeats(text)))
    said, usage = answer_once(engine, request(text))
    assert said == text
    assert usage.completion_tokens == len(text) + 1
    assert runner.calls.count("verify") + runner.calls.count("decode") < len(text) / 2
    assert draft.trust > 0.9


def test_wrong_guesses_change_nothing_and_end() -> None:
    text = "abcdefghijklmnopqrstuvw"
    small = Scripted(lambda history: 1)
    runner, engine, draft = drafting(small, step_s=0.2)
    assert answer_once(engine, request(text))[0] == text
    assert draft.trust < FIRST_TRUST
    assert runner.calls.count("verify") < 10
    assert len(small.asked) < 3 * len(text)


def test_the_row_of_the_small_model_is_rewound_not_filled_again() -> None:
    text = "abcdefghijklmnopqrstuvw"
    wrong_at_times = repeats(text)
    small = Scripted(lambda history: 1 if len(history) % 5 == 0 else wrong_at_times(history))
    _, engine, _ = drafting(small)
    assert answer_once(engine, request(text))[0] == text
    whole = [*text.encode()] * 2
    assert all(row[: len(text)] == whole[: len(text)] for row in small.asked)
    assert small.computed < 4 * len(text)  # its prompt once, and what it guessed


def test_seeded_sampling_is_the_same_with_guesses() -> None:
    asked = request("some words and some words", temperature=1.5, seed=3, max_tokens=20)
    _, engine, _ = drafting(Scripted(repeats("some words and some words")))
    assert answer_once(engine, asked)[0] == answer_once(fake_engine(FakeRunner()), asked)[0]


def test_a_small_model_that_fails_costs_no_answer() -> None:
    def fail(history: list[int]) -> int:
        raise ValueError("inside of the small one")

    _, engine, draft = drafting(Scripted(fail))
    assert answer_once(engine, request("abcdef"))[0] == "abcdef"
    assert draft.broken
    assert draft.guesses(Sequence.__new__(Sequence), 3) == ()


def test_what_it_takes_to_guess_is_weighed() -> None:
    assert CHEAP.guesses(0.9, guess_s=0.0) == 3
    assert CHEAP.guesses(0.9, guess_s=0.3) >= 1
    assert CHEAP.guesses(0.5, guess_s=0.6) == 0


def copied(out: Path, **changed: Any) -> Bundle:
    """The embedded bundle with other sections in its model.json."""
    source = Bundle.open(embedded_bundle())

    def write(folder: Path) -> None:
        for name in source.files:
            shutil.copyfile(source.file(name), folder / name)
        (folder / "model.json").write_text(json.dumps({**source.model, **changed}), encoding="utf-8")

    return write_bundle(out, name=source.name, files=write, lineage=source.lineage)


def test_real_models_say_the_same_with_and_without(tmp_path: Path) -> None:
    planned = copied(tmp_path / "planned", plan={"run_seconds": [1.0, 1.01, 1.02, 1.03]})
    options = EngineOptions(threads=1, slots=1)
    without, with_draft = Engine.open(embedded_bundle(), options), Engine.open(planned, options, draft=planned)
    draft = with_draft._scheduler._lanes[0]._draft
    assert isinstance(draft, Draft)
    draft._step_s = 0.001  # what it really takes depends on the machine
    runs: list[int] = []
    runner = with_draft._scheduler._lanes[0].runner
    verify = runner.verify
    runner.verify = lambda row, tokens, *rest: (runs.append(len(tokens)), verify(row, tokens, *rest))[1]  # type: ignore
    sampled = request("Say a lot about it.", temperature=0.9, seed=5, max_tokens=16)
    for asked in (request("Which defect is this?", max_tokens=16), sampled):
        assert answer_once(without, asked)[0] == answer_once(with_draft, asked)[0]
    assert max(runs) > 1  # the same model guesses well
    without.close(5)
    with_draft.close(5)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    text = Bundle.open(embedded_bundle()).model["text"]
    other = copied(tmp_path / "other", text={**text, "vocab_size": 100})
    with pytest.raises(Invalid, match="their tokens differ. Name a smaller model with the same tokenizer as `draft`"):
        Draft.open(other, Bundle.open(embedded_bundle()), EngineOptions(threads=1))
