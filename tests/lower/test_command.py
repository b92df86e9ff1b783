from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from foveola.artifact import Bundle
from foveola.exchange import Invalid
from foveola.lower import command
from foveola.weights.formats import Format

pytestmark = pytest.mark.torch


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(["--model", "checkpoint", *arguments])


def test_the_flags_of_the_description() -> None:
    options = command.options_of(parsed("--input-shape", "1,3,384,384", "--seq-len", "128"))
    assert options.image_px == (384, 384)
    assert options.text_length == 128
    assert options.decoder == Format(4)


def test_parts_and_patterns_have_their_own_storage() -> None:
    flags = ["--precision", "int8", "--block-size", "64", "--accuracy-level", "1"]
    options = command.options_of(parsed(*flags, "--vision", "fp16", "--set", "*.down_proj=int4@4"))
    assert options.vision == "fp16"
    assert options.decoder == Format(8, 64, 1)
    assert options.overrides == {"*.down_proj": Format(4, 64, 4)}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--precision", "int5"], "bits is 5; the CPU kernels know 2, 4, 8. Choose one of these."),
        (["--head", "half"], "head is 'half'; expected fp32, fp16, int8, int4 or int2"),
        (["--set", "*.down_proj"], "--set is '*.down_proj'; expected PATTERN=STORAGE, as in '*.down_proj=int8'."),
        (["--input-shape", "384"], "input shape is '384'; expected pictures,channels,height,width as in 1,3,384,384."),
        (["--block-size", "48"], "block is 48; the CPU kernels know 16, 32, 64, 128, 256. Choose one of these."),
    ],
)
def test_flags_that_cannot_be(flags: list[str], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        command.options_of(parsed(*flags))
    assert caught.value.message.startswith(message)


def test_a_bundle_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(Invalid) as caught:
        command.run(parsed("--out", str(tmp_path)))
    assert caught.value.message == f"{tmp_path.name} exists; give --replace to replace it, or another --out."


def test_asking_for_help_opens_no_workshop() -> None:
    code = "import sys, foveola.lower.command; print(sorted({'torch', 'transformers', 'onnx_ir'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch, compiled: Callable[[str], Bundle]) -> list[Any]:
    """The call that the command makes, answered with a bundle that is already there."""
    import foveola.lower.compile

    calls: list[Any] = []

    def compile_checkpoint(*arguments: Any, **keywords: Any) -> Bundle:
        calls.append((arguments, keywords))
        arguments[3]("exporting", 0.5)
        return compiled("int4")

    monkeypatch.setattr(foveola.lower.compile, "compile_checkpoint", compile_checkpoint)
    return calls


def test_json_is_what_inspect_says(instead: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(parsed("--json", "--name", "mine")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["kind"] == "bundle"
    assert [finding["step"] for finding in shown["lineage"]] == ["lower.round", "lower.export", "lower.parity"]
    (arguments, keywords), *_ = instead
    assert arguments[:2] == (Path("checkpoint"), Path("checkpoint.bundle"))
    assert keywords == {"name": "mine", "replace": False}


def test_people_get_a_table(
    instead: list[Any], compiled: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run(parsed()) == 0
    shown = capsys.readouterr().out
    assert "compiled into checkpoint.bundle" in shown
    assert compiled("int4").model_hash in shown
    assert f"{compiled('int4').files['decoder.onnx'].bytes:,}" in shown
    assert "lower.parity: nothing: " in shown
