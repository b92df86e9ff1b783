"""``foveola rewrite`` as it is called."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("onnx_ir")

import onnx_ir as ir

from foveola.cli import REFUSED, main
from foveola.lower.rewrite.chips import CHIPS
from foveola.lower.rewrite.corpus import Maker, convolution
from foveola.lower.rewrite.emit import command_of


@pytest.fixture
def model(tmp_path: Path) -> Path:
    make = Maker(("batch", 8, 6, 6), 0)
    ir.save(make.model(make.add("Relu", convolution(make, "x", 8, 16))), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_it_writes_graphs_a_report_and_the_compilers_command(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["rewrite", str(model), "--chip", "mlu270", "--dim", "batch=1", "--out", str(out), "--emit", "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["applied"] == {"WinogradConvRelu": 1}
    assert report["measured"]["before"]["kernels"] == 2
    assert report["measured"]["after"]["kernels"] == 1
    assert report == json.loads((out / "report.json").read_text())
    assert sorted(file.name for file in out.iterdir()) == ["build.sh", "model.onnx", "report.json", "vendor.onnx"]
    fused, plain = ir.load(out / "model.onnx"), ir.load(out / "vendor.onnx")
    assert len(fused.functions) == 1
    assert not plain.functions
    assert [node.op_type for node in plain.graph] == ["Conv", "Relu"]
    assert "--input_dims 1,8,6,6" in (out / "build.sh").read_text()
    assert os.access(out / "build.sh", os.X_OK)
    assert main(words) == REFUSED
    assert "out exists; give --replace to replace it, or another --out." in capsys.readouterr().err
    assert main([*words, "--replace"]) == 0


def test_people_get_a_table_that_says_what_is_modelled(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rewrite", str(model), "--chip", "ascend910b"]) == 0
    told = capsys.readouterr().out
    assert "1 x ConvRelu" in told
    assert "latency is modelled" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--chip", "tpu"], "chip 'tpu' is not known; known are mlu270, ascend910b, edgetpu."),
        (["--chip", "mlu270", "--emit"], "--emit writes into a directory; give --out."),
        (["--chip", "mlu270", "--dim", "batch"], "'batch' was given; write NAME=SIZE."),
        (["--chip", "mlu270", "--dim", "batch=-1"], "write whole numbers from 1, as in 1,3,224,224."),
        (["--chip", "mlu270", "--beam", "0"], "--beam is 0; it is 1 to 1024."),
    ],
)
def test_what_cannot_be_done_is_said(
    model: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rewrite", str(model), *words]) == REFUSED
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chip", "told"),
    [
        ("ascend910b", "atc --model=vendor.onnx --framework=5 --output=model --soc_version=Ascend910B1"),
        ("mlu270", "onnx_build --onnx vendor.onnx"),
        ("edgetpu", "edgetpu_compiler -s -o . tflite/vendor_full_integer_quant.tflite"),
    ],
)
def test_emitted_scripts_are_shell(chip: str, told: str, tmp_path: Path) -> None:
    text = command_of(CHIPS[chip], {"x": [1, 3, "h", 8], "a b": [2]})
    assert told in text
    (tmp_path / "build.sh").write_text(text)
    assert subprocess.run(["sh", "-n", str(tmp_path / "build.sh")], check=False).returncode == 0
    if chip == "ascend910b":
        assert "'--input_shape=x:1,3,-1,8;a b:2'" in text
