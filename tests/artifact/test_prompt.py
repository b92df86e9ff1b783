from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foveola.artifact.finding import Finding
from foveola.artifact.prompt import Prompt, write_prompt
from foveola.cli import main
from foveola.exchange import Damaged

VALUES = np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_prompt(tmp_path / "steel", VALUES, name="steel", base="ab" * 32, lineage=[Finding("federate", "trained")])
    return tmp_path / "steel"


def test_what_was_written_is_read(path: Path) -> None:
    prompt = Prompt.open(path)
    assert (prompt.name, prompt.width, prompt.base) == ("steel", 24, "ab" * 32)
    assert prompt.values.dtype == np.float32
    assert (prompt.values == VALUES).all()
    assert not prompt.values.flags.writeable
    assert prompt.lineage == (Finding("federate", "trained"),)


def test_inspect_shows_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["shape"], told["base"]) == ("prompt", [16, 24], "ab" * 32)
    assert main(["inspect", str(path)]) == 0
    assert "16 x 24" in capsys.readouterr().out


def test_the_hash_follows_the_values(path: Path, tmp_path: Path) -> None:
    again = write_prompt(tmp_path / "again", VALUES, name="other", base="ab" * 32)
    changed = write_prompt(tmp_path / "changed", VALUES + 1, name="steel", base="ab" * 32)
    assert Prompt.open(path).model_hash == again.model_hash != changed.model_hash


def test_a_changed_byte_is_found(path: Path) -> None:
    raw = bytearray((path / "values.f32").read_bytes())
    raw[7] ^= 1
    (path / "values.f32").write_bytes(raw)
    with pytest.raises(Damaged, match=r"values\.f32 is damaged"):
        Prompt.open(path)


@pytest.mark.parametrize("file", ["values.f32", "shape.json"])
def test_a_missing_file_is_named(path: Path, file: str) -> None:
    (path / file).unlink()
    with pytest.raises(Damaged, match=f"{file} is missing"):
        Prompt.open(path)


def test_another_directory_is_no_prompt(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match=r"is no prompt: a directory with a prompt\.json"):
        Prompt.open(tmp_path)


@pytest.mark.parametrize("values", [VALUES[:15], VALUES[:, :0], VALUES[0], np.full((16, 2), np.nan, np.float32)])
def test_other_shapes_and_values_are_not_written(tmp_path: Path, values: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"a prompt (has the shape|holds finite)"):
        write_prompt(tmp_path / "out", values, name="x")
    assert not (tmp_path / "out").exists()


def test_a_seal_over_the_wrong_size_is_refused(path: Path, tmp_path: Path) -> None:
    from foveola.artifact.seal import write_seal

    (path / "values.f32").write_bytes(VALUES.tobytes()[:-4])
    (path / "prompt.json").unlink()
    write_seal(path, "prompt.json", format="foveola.prompt/1", name="steel", created="now", lineage=())
    with pytest.raises(Damaged, match="1532 bytes; 16 rows of 24 float32 are 1536"):
        Prompt.open(path)
