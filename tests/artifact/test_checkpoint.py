from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from foveola.artifact import Checkpoint, write_checkpoint
from foveola.exchange import Damaged
from tests.artifact.making import FINDING, checkpoint_files, safetensors


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain").mkdir()
    checkpoint_files(tmp_path / "plain")
    return tmp_path / "plain"


def shard(folder: Path, weight_map: Any) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model-1.safetensors").write_bytes(safetensors({"a": ("F32", [1], bytes(4))}))
    (folder / "model-2.safetensors").write_bytes(safetensors({"b": ("F32", [2], bytes(8))}))
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def refusal(path: Path) -> str:
    with pytest.raises(Damaged) as caught:
        Checkpoint.open(path)
    assert str(path.parent) not in caught.value.message
    return caught.value.message


def test_a_plain_checkpoint(plain: Path) -> None:
    checkpoint = Checkpoint.open(plain)
    assert checkpoint.name == "plain"
    assert checkpoint.config["model_type"] == "qwen2_vl"
    assert {name: (t.dtype, t.shape) for name, t in checkpoint.tensors.items()} == {
        "a.weight": ("F32", (2, 3)),
        "b": ("BF16", (4,)),
    }
    assert checkpoint.parameters == 10
    assert checkpoint.weight_files == ("model.safetensors",)
    assert checkpoint.model_hash is None
    assert checkpoint.lineage == ()


def test_shards(plain: Path) -> None:
    shard(plain, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    checkpoint = Checkpoint.open(plain)
    assert checkpoint.tensors["b"].file == "model-2.safetensors"
    assert checkpoint.weight_files == ("model-1.safetensors", "model-2.safetensors")
    assert checkpoint.parameters == 3


@pytest.mark.parametrize(
    ("weight_map", "text"),
    [
        ([], "model.safetensors.index.json holds no weight_map"),
        ({"a": 1, "b": "model-2.safetensors"}, "one is not text"),
        ({"a": "../model-1.safetensors"}, "names ../model-1.safetensors; shards are .safetensors files inside"),
        ({"a": "/x/model-1.safetensors"}, "names /x/model-1.safetensors; shards are"),
        ({"a": "pytorch_model.bin"}, "names pytorch_model.bin; shards are .safetensors files"),
        ({"a": "model-3.safetensors"}, "model-3.safetensors is missing"),
        (
            {"a": "model-1.safetensors", "b": "model-1.safetensors"},
            "model-1.safetensors lacks the tensor 'b' that model.safetensors.index.json places there",
        ),
        (
            {"c": "model-1.safetensors"},
            "model-1.safetensors holds the tensor 'a', which model.safetensors.index.json does not place there",
        ),
    ],
)
def test_an_index_that_is_wrong(plain: Path, weight_map: Any, text: str) -> None:
    shard(plain, weight_map)
    assert text in refusal(plain)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "weights.pkl"])
def test_pickled_weights_are_refused_by_name(plain: Path, name: str) -> None:
    os.rename(plain / "model.safetensors", plain / name)
    assert refusal(plain) == (
        f"{name} is not read: a pickle runs the code that is in it. "
        "Convert the weights to model.safetensors first, on a machine that may run it."
    )


def test_without_weights(plain: Path) -> None:
    (plain / "model.safetensors").unlink()
    assert refusal(plain) == "model.safetensors is missing; there is no model.safetensors.index.json either."


def test_truncated_weights_are_named(plain: Path) -> None:
    size = (plain / "model.safetensors").stat().st_size
    os.truncate(plain / "model.safetensors", size - 1)
    assert refusal(plain) == "model.safetensors is truncated: its tensors need 32 bytes, it has 31."


def test_without_config(plain: Path) -> None:
    (plain / "config.json").unlink()
    assert refusal(plain) == "config.json is missing."


def test_what_is_no_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent") == "absent is no directory; a checkpoint is one with config.json in it."


def test_files_may_be_links_where_nothing_is_sealed(plain: Path, tmp_path: Path) -> None:
    # The cache of the Hugging Face hub keeps the content elsewhere.
    os.rename(plain / "model.safetensors", tmp_path / "blob")
    (plain / "model.safetensors").symlink_to(tmp_path / "blob")
    assert Checkpoint.open(plain).parameters == 10


def test_a_written_checkpoint_is_sealed(tmp_path: Path) -> None:
    written = write_checkpoint(tmp_path / "out", name="tiny", files=checkpoint_files, lineage=[FINDING])
    again = Checkpoint.open(tmp_path / "out")
    assert again == written
    assert again.name == "tiny"
    assert again.lineage == (FINDING,)
    assert again.model_hash is not None
    assert len(again.model_hash) == 64


def test_a_sealed_checkpoint_notices_a_change(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "out", name="tiny", files=checkpoint_files)
    data = bytearray((tmp_path / "out" / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "out" / "model.safetensors").write_bytes(data)
    assert refusal(tmp_path / "out").startswith("model.safetensors is damaged: its SHA-256 differs")
    (tmp_path / "out" / "more.json").write_text("{}")
    assert refusal(tmp_path / "out").startswith("more.json is not listed in foveola.json")


def test_a_checkpoint_that_cannot_be_opened_is_not_written(tmp_path: Path) -> None:
    def files(folder: Path) -> None:
        checkpoint_files(folder)
        (folder / "model.safetensors").write_bytes(b"short")

    with pytest.raises(Damaged, match=r"model\.safetensors is truncated"):
        write_checkpoint(tmp_path / "out", name="tiny", files=files)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("chat_template.jinja", "T"),
        ("chat_template.json", json.dumps({"chat_template": "T"})),
        ("tokenizer_config.json", json.dumps({"chat_template": "T"})),
    ],
)
def test_the_chat_template_wherever_it_is(plain: Path, file: str, content: str) -> None:
    assert Checkpoint.open(plain).chat_template() is None
    (plain / file).write_text(content, encoding="utf-8")
    assert Checkpoint.open(plain).chat_template() == "T"


def test_side_files_are_optional(plain: Path) -> None:
    checkpoint = Checkpoint.open(plain)
    assert checkpoint.side_file("preprocessor") is None
    (plain / "preprocessor_config.json").write_text('{"min_pixels": 3136}', encoding="utf-8")
    assert checkpoint.side_file("preprocessor") == {"min_pixels": 3136}


def test_a_file_outside_is_not_given_out(plain: Path) -> None:
    (plain.parent / "secret").write_text("x")
    assert Checkpoint.open(plain).file("config.json") == plain.resolve() / "config.json"
    with pytest.raises(Damaged, match=r"^\.\./secret is missing from the checkpoint plain\.$"):
        Checkpoint.open(plain).file("../secret")
