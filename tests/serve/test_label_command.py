"""Labels from the terminal, to a real server process: its accuracy, and how many answers it is the share of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from foveola.cli import main
from foveola.serve.label_command import interval
from tests.serve.process import Process

SAID = "划痕 in the\nmiddle"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    go = tmp_path_factory.mktemp("go") / "go"
    with Process("-m", "tests.serve.fake_server", str(go)) as process, process.ready() as client:
        yield client


def labelled(server: httpx.Client, *words: str) -> int:
    return main(["label", *words, "--url", str(server.base_url), "--json"])


def test_pictures_are_asked_and_labelled(
    server: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(b"the fake looks at no picture")
    rows = [{"image": "a.png", "expected": SAID.upper()}, {"image": "a.png", "question": "what?", "expected": "pit"}]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert labelled(server, str(tmp_path / "samples.jsonl")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sent"], told["right"], told["accuracy"], told["samples"]) == (2, 1, 0.5, 2)
    assert 0 < told["low"] < 0.5 < told["high"] < 1


def test_answers_are_labelled_by_their_id(
    server: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [server.post("/v1/vlm/invoke", json={"prompt": "a"}).json()["id"] for _ in range(3)]
    assert labelled(server, "--id", ids[0], "--wrong") == 0
    (tmp_path / "samples.csv").write_text(f"id,right,expected\n{ids[1]},yes,\n{ids[2]},,pit\n", encoding="utf-8")
    assert labelled(server, str(tmp_path / "samples.csv")) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["sent"], first["right"]) == (1, 0)
    assert (second["sent"], second["right"]) == (2, 1)
    assert second["samples"] == first["samples"] + 2


def test_an_answer_that_is_not_known_is_told(server: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert labelled(server, "--id", "never", "--right") == 2
    assert "no answer with this id" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "message"), [
    ("", "x.jsonl holds no samples"),
    ("{", "x.jsonl, line 1: expected a JSON object"),
    ('{"id": "a", "image": "b", "right": true}', "sample 1: expected either the `id` of a reply or an `image`"),
    ('{"id": "a"}', "expected either `right` (true or false) or `expected`"),
    ('{"id": "a", "right": "perhaps"}', "`right` is 'perhaps'; expected true or false"),
    ('{"id": "a", "verdict": 1}', "`verdict` is not known"),
    ('{"image": "none.png", "expected": "pit"}', "there is no picture none.png"),
])  # fmt: skip
def test_what_is_no_sample_is_told_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (tmp_path / "x.jsonl").write_text(text, encoding="utf-8")
    assert main(["label", str(tmp_path / "x.jsonl"), "--url", "http://127.0.0.1:1"]) == 2
    assert message in capsys.readouterr().err


def test_one_thing_is_labelled_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["label"]) == 2
    assert "either a file of samples, or one answer" in capsys.readouterr().err


def test_the_interval_is_wide_for_few() -> None:
    low, high = interval(3, 3)
    assert low < 0.5 and high == pytest.approx(1.0)  # three of three say little
    low, high = interval(90, 100)
    assert 0.82 < low < 0.84 and 0.94 < high < 0.95
