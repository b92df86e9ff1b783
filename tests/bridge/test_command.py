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


def test_an_address_that_is_none_is_refused_before_anything_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("garbage", "host:", "host:port", "a:1,b"):
        assert main(["bridge", "mes", "--bootstrap", address, "--ledger", str(tmp_path / "mes.db")]) == 2
        assert f"--bootstrap is '{address}'; expected HOST:PORT" in capsys.readouterr().err
    assert not (tmp_path / "mes.db").exists()


def test_every_way_is_described() -> None:
    assert command.__doc__ is not None
    with pytest.raises(SystemExit) as ended:
        main(["bridge", "--help"])
    assert ended.value.code == 0
