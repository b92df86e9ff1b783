"""``foveola distil`` from records to the new weights of a server that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.artifact import Bundle, Checkpoint
from foveola.cli import main
from foveola.exchange import Invalid
from foveola.loop.command import _classes, _size
from foveola.serve.keys import new_key
from tests.checkpoints import random_checkpoint
from tests.loop.making import write_records
from tests.serve.process import Process

pytestmark = pytest.mark.torch
SMALL = ["--size", "56x56", "--fresh", "6", "--rate", "0.00001", "--no-persons", "--json"]


def order(checkpoint: Path, tmp_path: Path, *more: str, records: int = 16) -> list[str]:
    new, old = tmp_path / "new", tmp_path / "old"
    if not new.exists():
        write_records(new, records, unlabelled=2)
        write_records(old, 8, seed=1)
    return [
        "distil",
        str(checkpoint),
        "--records",
        str(new),
        "--old",
        str(old),
        "--out",
        str(tmp_path / "out"),
        *SMALL,
        *more,
    ]


@pytest.mark.slow
@pytest.mark.process
def test_from_records_to_a_server_that_runs(
    random_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, digest = new_key()
    keys, key = tmp_path / "keys.toml", tmp_path / "key"
    keys.write_text(f'[[key]]\nname = "boss"\nsha256 = "{digest}"\nroles = ["admin"]\n')
    key.write_text(secret)
    serve = ["-m", "foveola", "serve", "--bundle", str(random_bundle), "--port", "0"]
    with Process(*serve, env={"FOVEOLA_SERVE_KEYS_FILE": str(keys)}) as server, server.ready() as client:
        url = f"http://127.0.0.1:{client.base_url.port}"
        source = random_bundle.parent / "checkpoint"
        assert main(order(source, tmp_path, "--patch", url, "--key-file", str(key))) == 0
        assert server.noise == []
    report = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "out/report.json").read_text()) == report
    assert report["head"] == report["classes"] == ["crack", "pit"]
    assert report["before"]["old"]["crack"]["count"] == 2
    assert report["server"]["tensors"] == report["server"]["sent_tensors"]
    assert report["server"]["before"] == Bundle.open(random_bundle).model_hash
    made, bundle = Checkpoint.open(tmp_path / "out/checkpoint"), Bundle.open(tmp_path / "out/bundle")
    assert made.model_hash == report["checkpoint"]["model_hash"]
    assert bundle.model_hash == report["bundle"]["model_hash"]
    assert next(one.step for one in bundle.lineage) == made.lineage[-1].step == "learn.distil"
    assert made.lineage[-1].options["preset"] == "balanced"


def test_what_the_gate_holds_back_leaves_a_report_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = random_checkpoint(tmp_path / "checkpoint")
    asked = order(checkpoint, tmp_path, "--no-bundle", records=5)
    del asked[4:6]  # without old records, and too few new ones to hold any back
    assert main(asked) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["gate"]["reasons"] == [
        "The guard set has no picture of a head class, so nothing can be said; give it some."
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.json", "run.safetensors"]


def test_flags_that_make_no_sense_are_refused() -> None:
    assert _classes(None) is None
    assert _classes("crack, pit") == ("crack", "pit")
    with pytest.raises(Invalid, match="--classes is 'crack'; expected at least two different names"):
        _classes("crack")
    assert _size("56x84") == (56, 84)
    with pytest.raises(Invalid, match="--size is '56'; expected height and width in pixels, as in 112x112"):
        _size("56")


def test_old_records_need_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = random_checkpoint(tmp_path / "checkpoint")
    asked = order(checkpoint, tmp_path)
    lines = (tmp_path / "old/records.jsonl").read_text().replace('"pit"', "null", 1)
    (tmp_path / "old/records.jsonl").write_text(lines)
    assert main(asked) == 2
    assert "The records of --old all need a label" in capsys.readouterr().err
