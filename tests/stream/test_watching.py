"""The embedded model watching: the whole way, and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveola.artifact import Bundle
from foveola.cli import main
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Request, Sampling, Turn
from foveola.intake import decode
from foveola.serve.embedded import embedded_bundle
from foveola.stream.fleet import Drive, frames, run_fleet
from foveola.stream.motion import Camera
from foveola.stream.options import StreamOptions
from foveola.stream.sources import Frame
from foveola.stream.watching import Watcher

QUESTION = "What defect is on this surface?"
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "surface.png"


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    watcher = Watcher(Bundle.open(embedded_bundle()), EngineOptions(threads=1))
    yield watcher
    watcher.close()


def test_the_first_answer_is_the_engines_and_the_second_needs_nobody(watcher: Watcher) -> None:
    data = EXAMPLE.read_bytes()
    engine = Engine.open(embedded_bundle(), EngineOptions(threads=1))
    try:
        request = Request("r", (Turn("user", QUESTION, (data,)),), Sampling(max_tokens=32))
        expected, _ = answer_once(engine, request)
    finally:
        engine.close(0)
    film = [Frame(at, at / 10, decode(data)) for at in range(3)]
    seen = list(watcher.watch(film, watcher.eye(StreamOptions(audit_share=0)), QUESTION))
    assert [one.text for one in seen] == [expected] * 3
    assert [one.answer_reused for one in seen] == [False, True, True]
    assert [one.mode for one in seen] == ["full", "reused", "reused"]
    again = watcher.see(Frame(3, 0.3, decode(data)), watcher.eye(StreamOptions(audit_share=1)), QUESTION)
    assert again.text == expected


def test_another_question_is_asked_of_the_same_features(watcher: Watcher) -> None:
    frame = Frame(0, 0.0, decode(EXAMPLE.read_bytes()))
    eye = watcher.eye(StreamOptions(audit_share=0))
    first = watcher.see(frame, eye, QUESTION)
    second = watcher.see(frame, eye, "Where is the defect?")
    assert (second.mode, second.answer_reused) == ("reused", False)
    assert second.text != first.text


def test_vehicles_at_once_see_what_one_alone_sees(watcher: Watcher) -> None:
    scene = np.asarray(Image.open(EXAMPLE).convert("RGB").resize((400, 224)))
    camera = Camera.of_angle(60, 224, 168)
    drives = [Drive(0.0, seed=1), Drive(0.5, seed=2)]
    films = [list(frames(scene, camera, drive, 3, 10)) for drive in drives]
    run = run_fleet(watcher, films, drives, camera, StreamOptions(), QUESTION)
    assert run.frames_s > 0
    assert [len(seen) for seen in run.seen] == [3, 3]
    assert run.seen[0][1].mode in ("reused", "audit")
    assert run.seen[1][1].mode == "full"
    for number in range(2):
        alone = run_fleet(watcher, [films[number]], [drives[number]], camera, StreamOptions(), QUESTION)
        assert [one.text for one in alone.seen[0]] == [one.text for one in run.seen[number]]


def test_the_command_watches_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for at in range(3):
        (tmp_path / f"{at}.png").write_bytes(EXAMPLE.read_bytes())
    imu = tmp_path / "imu.csv"
    imu.write_text("t,wx,wy,wz\n0,0,0,0\n")
    words = ["stream", str(tmp_path), QUESTION, "--bundle", str(embedded_bundle()), "--frames", "2"]
    assert main([*words, "--json", "--imu", str(imu)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in lines[:-1]] == ["0.png", "1.png"]
    assert lines[-1]["summary"]["frames"] == 2
    assert lines[1]["cells"] > 0
    assert main([*words, "--no-reuse"]) == 0
    shown = capsys.readouterr().out
    assert "2 frames" in shown
    assert "2 full" in shown


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["stream", str(tmp_path), QUESTION, "--bundle", str(embedded_bundle())]
    assert main(words) == 2
    assert "holds no pictures" in capsys.readouterr().err
    assert main([*words, "--frames", "0"]) == 2
    assert "--frames is 0; expected at least 1" in capsys.readouterr().err
    assert main([*words, "--epsilon", "-1"]) == 2
    assert "`epsilon` is -1.0" in capsys.readouterr().err
    for angle in ("0", "400", "nan"):
        assert main([*words, "--fov", angle]) == 2
        assert f"--fov is {angle}; expected an angle above 0 and below 180 degrees" in capsys.readouterr().err
