from __future__ import annotations

from pathlib import Path

import pytest

from foveola.artifact.seal import MAX_JSON_BYTES, name_problem, parse_json, read_json
from foveola.exchange import Damaged


@pytest.mark.parametrize("name", ["model.json", "graphs/decoder.onnx", "a-b_c.1", "产品.json", ".hidden"])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "", "..", "../x", "a/../b", "a/..", "/etc/passwd", "//x", "./x", "a//b", "a/./b", "a/", "C:x", "a\\b",
        "..\\x", "a\nb", "a\0b", "x" * 513,
    ],
)  # fmt: skip
def test_bad_names(name: str) -> None:
    assert name_problem(name) is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"{", b'{"a": 1', b"{\xff}", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 2}}', b"[" * 100_000, b'{"a": ' + b"9" * 10_000 + b"}", b'{"a": 1} x',
    ],
    ids=range(11),
)  # fmt: skip
def test_broken_or_ambiguous_json_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(Damaged, match=r"^model\.json is not valid JSON; it is damaged or was cut off\.$"):
        parse_json(raw, "model.json")


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null"])
def test_json_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(Damaged, match=r"^model\.json holds no JSON object\.$"):
        parse_json(raw, "model.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match=r"^model\.json is missing\.$"):
        read_json(tmp_path, "model.json")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "model.json").mkdir()
    with pytest.raises(Damaged, match=r"^model\.json is not a regular file\.$"):
        read_json(tmp_path, "model.json")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.json").open("wb") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(Damaged, match="model.json is longer than 67108864 bytes"):
        read_json(tmp_path, "model.json")
