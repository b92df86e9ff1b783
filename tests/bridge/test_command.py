from __future__ import annotations

from pathlib import Path

import pytest

from foveola.bridge import command, encoder
from foveola.cli import main
from tests.bridge.making import letters, plant


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "e5_encoder", lambda: letters)


def test_an_instruction_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["bridge", "say", "CMD=HOLD;LOT=L2417", "--sources", str(plant(tmp_path)), "--source", "scan-01"]
    assert main(given) == 0
    assert capsys.readouterr().out.startswith("LOT_HOLD: send, ambiguity 0.")
    assert main([*given, "--json"]) == 0
    assert '"resolved_intent": "LOT_HOLD"' in capsys.readouterr().out


def test_a_source_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bridge", "say", "stop", "--sources", str(plant(tmp_path)), "--source", "x"]) == 2
    assert "There is no source 'x'" in capsys.readouterr().err


def test_every_way_is_described() -> None:
    assert command.__doc__ is not None
    with pytest.raises(SystemExit) as ended:
        main(["bridge", "--help"])
    assert ended.value.code == 0
