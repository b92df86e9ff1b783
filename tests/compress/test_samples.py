from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from PIL import Image  # noqa: E402

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.compress.samples import Sample, parse_samples, read_examples  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402

pytestmark = pytest.mark.torch


def write(folder: Path, *lines: object) -> Path:
    Image.fromarray(np.full((64, 96, 3), 90, np.uint8)).save(folder / "part.png")
    path = folder / "samples.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_samples_become_what_the_model_takes(checkpoint: Path, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"text": "Which defect is on this part? " * 20},
        {"prompt": "Where is it?", "answer": "a scratch", "image": "part.png"},
        {"prompt": "Where?", "answer": "centre"},
    )
    source = Checkpoint.open(checkpoint)
    text, picture, plain = read_examples(path, source, family_of(source.config), longest=32)
    assert text.inputs["input_ids"].shape == (1, 32)
    assert text.answers_at.sum() == 31
    assert torch.equal(text.targets, text.inputs["input_ids"][0, 1:])
    rows, columns = picture.inputs["image_grid_thw"][0, 1:].tolist()
    assert picture.is_vision.sum() == rows * columns // 4 > 0
    assert picture.inputs["pixel_values"].shape == (rows * columns, 1176)
    ids = picture.inputs["input_ids"][0]
    assert torch.equal(ids[1:][picture.answers_at[0, :-1]], picture.targets)
    assert picture.targets[-1] == 2  # <|im_end|>
    assert not plain.is_vision.any()
    assert "pixel_values" not in plain.inputs


def test_a_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    assert parse_samples(write(tmp_path, {"text": "a"}, "")) == [Sample(text="a", where="line 1 of samples.jsonl")]
    for line, message in (
        ("[1]", "line 2 of samples.jsonl is no JSON object of texts; expected text, prompt, answer, image."),
        ({"text": 1}, "line 2 of samples.jsonl is no JSON object of texts; expected text, prompt, answer, image."),
        ({"words": "a"}, "line 2 of samples.jsonl has 'words'; expected text, prompt, answer, image."),
        ({"prompt": "a"}, "line 2 of samples.jsonl has neither text alone nor prompt with answer; give one of them."),
        (
            {"prompt": "a", "answer": "b", "image": "gone.png"},
            "line 2 of samples.jsonl names the picture gone.png, which does not exist.",
        ),
    ):
        with pytest.raises(Invalid) as caught:
            parse_samples(write(tmp_path, {"text": "a"}, line))
        assert caught.value.message == message
    for raw, message in (
        (b'{"text": "caf\xe9"}', "line 1 of x.jsonl is no UTF-8; save the file in that encoding."),
        (b"[" * 100_000, "line 1 of x.jsonl is no JSON object of texts; expected text, prompt, answer, image."),
        (b'{"text": " "}', "text of line 1 of x.jsonl is empty; write what it says, or leave the line out."),
        (
            b'{"text": "\\ud800 abc"}',
            "text of line 1 of x.jsonl holds half a character (a lone surrogate); write it whole.",
        ),
    ):
        (tmp_path / "x.jsonl").write_bytes(raw)
        with pytest.raises(Invalid) as caught:
            parse_samples(tmp_path / "x.jsonl")
        assert caught.value.message == message
    (tmp_path / "x.jsonl").write_bytes('\ufeff{"text": "one\u2028line"}\r\n{"text": "two"}'.encode())
    assert [one.text for one in parse_samples(tmp_path / "x.jsonl")] == ["one\u2028line", "two"]
    with pytest.raises(Invalid, match="samples.jsonl holds no samples; write one JSON object a line."):
        parse_samples(write(tmp_path, ""))


def test_samples_that_the_model_cannot_take_are_named(checkpoint: Path, tmp_path: Path) -> None:
    opened = Checkpoint.open(checkpoint)
    family = family_of(opened.config)
    with pytest.raises(Invalid, match=r"text of line 1 of samples.jsonl is one token, and there is nothing to predict"):
        read_examples(write(tmp_path, {"text": "A"}), opened, family)
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    line = {"prompt": "What is it?", "answer": "a pit", "image": "cut.png"}
    with pytest.raises(Invalid, match=r"^line 2 of samples.jsonl: the picture cut.png cannot be used\. "):
        read_examples(write(tmp_path, {"text": "some words"}, line), opened, family)
