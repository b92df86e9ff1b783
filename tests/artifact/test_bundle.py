from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foveola.artifact import Bundle, write_bundle
from foveola.exchange import Damaged
from tests.artifact.making import FINDING, bundle_files, make_bundle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make_bundle(tmp_path / "small")
    return tmp_path / "small"


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def refusal(path: Path, *, verify: bool = True) -> str:
    with pytest.raises(Damaged) as caught:
        Bundle.open(path, verify=verify)
    message = caught.value.message
    assert str(path.parent) not in message
    assert "0x" not in message
    return message


def test_what_was_written_is_read(path: Path) -> None:
    bundle = Bundle.open(path)
    assert bundle.path == path.resolve()
    assert bundle.name == "small"
    assert bundle.lineage == (FINDING,)
    assert bundle.model["family"] == "qwen2_vl"
    assert set(bundle.files) == {"vision.onnx", "graphs/decoder.onnx", "tokenizer.json", "model.json"}
    assert bundle.file("graphs/decoder.onnx").read_bytes() == b"decoder" * 100
    assert bundle.read("vision.onnx") == b"vision" * 100


def test_the_manifest_has_the_documented_form(path: Path) -> None:
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    assert list(manifest) == ["format", "name", "created", "model_hash", "files", "lineage"]
    assert manifest["format"] == "foveola.bundle/1"
    assert manifest["files"]["vision.onnx"]["bytes"] == 600
    assert len(manifest["model_hash"]) == 64


def test_the_hash_follows_the_bytes_and_nothing_else(tmp_path: Path) -> None:
    first = make_bundle(tmp_path / "a")
    again = write_bundle(
        tmp_path / "b", name="other", files=bundle_files(), lineage=[], created="2020-01-01T00:00:00+00:00"
    )
    assert again.model_hash == first.model_hash
    assert again.created == "2020-01-01T00:00:00+00:00"
    changed = make_bundle(tmp_path / "c", evidence_layer=3)
    assert changed.model_hash != first.model_hash


def test_a_missing_file_is_named(path: Path) -> None:
    (path / "vision.onnx").unlink()
    assert refusal(path) == "vision.onnx is missing; manifest.json lists it. Copy the artefact again, whole."


def test_an_additional_file_is_named(path: Path) -> None:
    (path / "graphs" / "extra.bin").write_bytes(b"x")
    assert refusal(path, verify=False).startswith("graphs/extra.bin is not listed in manifest.json")


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_named_even_without_digests(path: Path, verify: bool) -> None:
    os.truncate(path / "graphs" / "decoder.onnx", 699)
    message = refusal(path, verify=verify)
    assert message.startswith("graphs/decoder.onnx is truncated: 699 bytes, expected 700.")


def test_a_longer_file_is_named(path: Path) -> None:
    with (path / "tokenizer.json").open("ab") as stream:
        stream.write(b" ")
    assert refusal(path).startswith("tokenizer.json is too long: 3 bytes, expected 2.")


@pytest.mark.parametrize("name", ["vision.onnx", "graphs/decoder.onnx", "tokenizer.json", "model.json"])
def test_one_flipped_bit_is_found(path: Path, name: str) -> None:
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    assert refusal(path).startswith(f"{name} is damaged: its SHA-256 differs from the seal's.")


def test_reading_a_file_checks_it_once_more(path: Path) -> None:
    bundle = Bundle.open(path)
    (path / "vision.onnx").write_bytes(b"VISION" * 100)
    with pytest.raises(Damaged, match=r"^vision\.onnx is damaged"):
        bundle.read("vision.onnx")
    (path / "vision.onnx").unlink()
    with pytest.raises(Damaged, match=r"^vision\.onnx cannot be read: No such file or directory\.$"):
        bundle.read("vision.onnx")


def test_a_file_that_is_not_part_of_it(path: Path) -> None:
    with pytest.raises(Damaged, match=r"^\.\./secret is not part of the bundle small; it holds graphs/decoder"):
        Bundle.open(path).file("../secret")


@pytest.mark.parametrize("target", ["vision.onnx", "tokenizer.json"])
def test_a_link_inside_is_refused_even_to_the_right_bytes(path: Path, tmp_path: Path, target: str) -> None:
    shutil.move(path / target, tmp_path / "elsewhere")
    (path / target).symlink_to(tmp_path / "elsewhere")
    assert refusal(path) == f"{target} is a link or a special file; a sealed artefact holds regular files only."


def test_a_linked_directory_inside_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.move(path / "graphs", tmp_path / "graphs")
    (path / "graphs").symlink_to(tmp_path / "graphs")
    assert refusal(path).startswith("graphs is a link or a special file")


def test_a_pipe_inside_is_refused_and_not_waited_for(path: Path) -> None:
    (path / "vision.onnx").unlink()
    os.mkfifo(path / "vision.onnx")
    assert refusal(path).startswith("vision.onnx is a link or a special file")


def test_a_name_that_cannot_be_printed_is_shown_in_ascii(path: Path) -> None:
    (path / os.fsdecode(b"bad\xff\n")).write_bytes(b"x")
    assert refusal(path) == "The artefact holds a file whose name cannot be printed: 'bad\\udcff\\n'."


def test_directories_without_end(path: Path) -> None:
    deep = path.joinpath(*["d"] * 400)
    deep.mkdir(parents=True)
    assert refusal(path) == "The artefact has directories more than 16 deep, which none of ours has."


def test_a_link_to_the_whole_bundle_is_followed_once(path: Path, tmp_path: Path) -> None:
    make_bundle(tmp_path / "next", evidence_layer=7)
    (tmp_path / "current").symlink_to(path)
    bundle = Bundle.open(tmp_path / "current")
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to(tmp_path / "next")
    assert bundle.file("model.json").parent == path.resolve()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "it leaves the directory"),
        ("/etc/passwd", "absolute"),
        ("a/../../x", "it leaves the directory"),
        ("a\\..\\x", "backslash"),
        ("./vision.onnx", "not in its shortest form"),
        ("manifest.json", "it is the seal itself"),
    ],
)
def test_a_name_that_leads_outside_is_refused(path: Path, name: str, reason: str) -> None:
    edit_manifest(path, lambda m: m["files"].update({name: {"sha256": "0" * 64, "bytes": 1}}))
    message = refusal(path)
    assert message.startswith(f"manifest.json lists {name}, which is not allowed:")
    assert reason in message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.update(format="foveola.bundle/9"), "has the format 'foveola.bundle/9'; this version reads"),
        (lambda m: m.update(format=3), "has the format something else; this version reads 'foveola.bundle/1'"),
        (lambda m: m.pop("format"), "manifest.json lacks format"),
        (lambda m: m.pop("lineage"), "manifest.json lacks lineage"),
        (lambda m: m.update(name="../x"), "holds no valid name"),
        (lambda m: m.update(created=1), "created is an ISO 8601 date as text"),
        (lambda m: m.update(files=[]), "files is an object that names at least one file"),
        (lambda m: m.update(files={}), "files is an object that names at least one file"),
        (lambda m: m["files"].update({"vision.onnx": 3}), "gives no SHA-256 for vision.onnx"),
        (lambda m: m["files"]["vision.onnx"].update(sha256="A" * 64), "gives no SHA-256 for vision.onnx"),
        (lambda m: m["files"]["vision.onnx"].update(bytes=-1), "gives no size in bytes for vision.onnx"),
        (lambda m: m["files"]["vision.onnx"].update(bytes=True), "gives no size in bytes for vision.onnx"),
        (lambda m: m["files"]["vision.onnx"].update(sha256="0" * 64), "its model_hash does not follow"),
        (lambda m: m.update(model_hash="0" * 64), "its model_hash does not follow"),
        (lambda m: m.update(lineage={}), "lineage is a list of findings"),
        (lambda m: m.update(lineage=[{}]), "in its lineage, a finding has the fields"),
    ],
)
def test_a_manifest_that_is_wrong_says_where(path: Path, change: Callable[[dict[str, Any]], object], text: str) -> None:
    edit_manifest(path, change)
    message = refusal(path)
    assert message.startswith("manifest.json")
    assert text in message


def test_a_manifest_that_is_cut_off(path: Path) -> None:
    os.truncate(path / "manifest.json", 100)
    assert refusal(path) == "manifest.json is not valid JSON; it is damaged or was cut off."


def test_a_directory_without_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()
    assert refusal(path) == "manifest.json is missing; small is not a bundle, or was never finished."


def test_what_is_no_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent") == "absent is no directory; a bundle is one with a manifest.json in it."


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"family": None}, "model.json: family is missing or not text"),
        ({"vision": []}, "model.json: vision is missing or not an object"),
        (
            {"graphs": {"vision": "other.onnx"}},
            "model.json names a file for the graph 'vision' that is not in the bundle",
        ),
        ({"graphs": {"vision": "../vision.onnx"}}, "model.json names a file for the graph 'vision'"),
    ],
)
def test_a_model_that_does_not_fit_the_files_is_not_written(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Damaged) as caught:
        make_bundle(tmp_path / "out", **changes)
    assert text in caught.value.message
    assert os.listdir(tmp_path) == []


def test_a_bundle_without_tokenizer_is_not_written(tmp_path: Path) -> None:
    def files(folder: Path) -> None:
        bundle_files()(folder)
        (folder / "tokenizer.json").unlink()

    with pytest.raises(Damaged, match="tokenizer.json is missing; a bundle carries its tokenizer"):
        write_bundle(tmp_path / "out", name="small", files=files)


def test_a_crash_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def files(folder: Path) -> None:
        bundle_files()(folder)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        write_bundle(tmp_path / "out", name="small", files=files)
    assert os.listdir(tmp_path) == []


def test_a_link_is_not_sealed(tmp_path: Path) -> None:
    def files(folder: Path) -> None:
        bundle_files()(folder)
        (folder / "weights").symlink_to(folder / "vision.onnx")

    with pytest.raises(ValueError, match="weights is a link or a special file; an artefact holds regular files only"):
        write_bundle(tmp_path / "out", name="small", files=files)


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".x", "a b", "x" * 129, "名"])
def test_a_name_that_cannot_be_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name: 1 to 128 letters"):
        write_bundle(tmp_path / "out", name=name, files=bundle_files())
    assert os.listdir(tmp_path) == []


def test_nan_is_no_figure(tmp_path: Path) -> None:
    bad = type(FINDING)("x", "y", before={"kl": float("nan")})
    with pytest.raises(ValueError, match="Out of range float"):
        write_bundle(tmp_path / "out", name="small", files=bundle_files(), lineage=[bad])
    assert os.listdir(tmp_path) == []


def test_overwriting_needs_to_be_asked_for(path: Path) -> None:
    with pytest.raises(FileExistsError):
        make_bundle(path)
    before = Bundle.open(path).model_hash
    write_bundle(path, name="small", files=bundle_files(evidence_layer=5), replace=True)
    assert Bundle.open(path).model_hash != before
    assert os.listdir(path.parent) == ["small"]


def test_a_directory_that_may_not_be_entered(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: Path, **__: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "exists", closed)  # whoever runs tests as root may enter everything
    assert refusal(path) == "small cannot be read: Permission denied. Let whoever reads it enter it."
