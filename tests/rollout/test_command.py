from __future__ import annotations

import json
from pathlib import Path

import pytest

from foveola.cli import main
from tests.rollout.making import canary, model


def test_slices_are_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "pack", "1/7", "4/7", "2/7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left"] == []
    assert {one["profile"] for one in found["places"]} == {"1g.10gb", "2g.20gb", "4g.40gb"}
    assert main(["rollout", "pack", "7/7", "1/7"]) == 1
    assert "no room: 1g.10gb" in capsys.readouterr().out
    assert main(["rollout", "pack", "0.2"]) == 2
    assert "it can into: 1/7 (1g.10gb)" in capsys.readouterr().err


def test_envoys_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model(canary=canary())))
    given = ["rollout", "envoy", str(path), "--out", str(tmp_path / "xds"), "--endpoint", "v1=127.0.0.1:1"]
    assert main(given) == 2
    assert "Where is v2? Give --endpoint v2=HOST:PORT." in capsys.readouterr().err
    assert main([*given, "--endpoint", "v2=127.0.0.1:2"]) == 0
    assert capsys.readouterr().out == "v1:90 v2:10\n"
    assert sorted(one.name for one in (tmp_path / "xds").iterdir()) == ["bootstrap.json", "cds.json", "rds.json"]
    assert main([*given, "--endpoint", "v2=127.0.0.1:70000"]) == 2
    assert "expected VERSION=HOST:PORT, the port from 1 to 65535" in capsys.readouterr().err
    path.write_text("[]")
    assert main([*given, "--endpoint", "v2=127.0.0.1:2"]) == 2
    assert "is no VisionLanguageModel in JSON" in capsys.readouterr().err


def test_the_extender_says_where_it_cannot_listen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "extend", "--port", "99999"]) == 2
    assert "Cannot listen on port 99999; choose one from 0 to 65535" in capsys.readouterr().err
    assert main(["rollout", "extend", "--host", "no.such.host.invalid"]) == 2
    assert "Cannot listen on no.such.host.invalid port 8888" in capsys.readouterr().err


def test_the_crds_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "crds"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["spec"]["names"]["kind"] for one in document["items"]] == ["VisionLanguageModel", "VLMService"]
