from __future__ import annotations

import hashlib
from pathlib import Path

from foveola.artifact.digest import FileDigest, digest_file, model_hash

A, B = FileDigest("a" * 64, 1), FileDigest("b" * 64, 2)


def test_digest_and_size_of_a_file(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "f").write_bytes(data)
    assert digest_file(tmp_path / "f") == FileDigest(hashlib.sha256(data).hexdigest(), len(data))


def test_the_hash_is_what_its_description_says() -> None:
    text = '{"x":"' + "a" * 64 + '","y/z":"' + "b" * 64 + '"}'
    assert model_hash({"y/z": B, "x": A}) == hashlib.sha256(text.encode()).hexdigest()


def test_the_hash_does_not_depend_on_order() -> None:
    assert model_hash({"x": A, "y": B}) == model_hash({"y": B, "x": A})


def test_the_hash_depends_on_content_and_on_names() -> None:
    hashes = {model_hash(files) for files in ({"x": A}, {"x": B}, {"y": A}, {"x": A, "y": A}, {"x": A, "y": B})}
    assert len(hashes) == 5
