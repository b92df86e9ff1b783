from __future__ import annotations

from pathlib import Path

import pytest

from foveola.exchange import Damaged, Invalid
from foveola.learn.distil.records import FILE, Record, classes_of, read_records


def written(folder: Path, *lines: str) -> Path:
    (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_records_come_in_their_order_with_what_is_known(tmp_path: Path) -> None:
    folder = written(
        tmp_path,
        '{"image": "a.png", "label": "pit", "boxes": [["pit", 0, 0.1, 0.5, 1]]}',
        "",
        '{"image": "sub/b.png", "label": null}',
        '{"image": "c.png", "label": "crack", "boxes": []}',
    )
    assert read_records(folder) == [
        Record(tmp_path / "a.png", "pit", (("pit", 0.0, 0.1, 0.5, 1.0),)),
        Record(tmp_path / "sub/b.png", None, None),
        Record(tmp_path / "c.png", "crack", ()),
    ]
    assert classes_of(read_records(folder)) == ("crack", "pit")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", "records.jsonl, line 2: this is no JSON; expected one object per line."),
        ("[1]", 'records.jsonl, line 2: expected an object with "image", the path of a picture inside of the folder.'),
        (
            '{"image": "a.png", "labels": "pit"}',
            "records.jsonl, line 2: 'labels' is not known; a record has image, label and boxes.",
        ),
        (
            '{"image": "../a.png"}',
            "records.jsonl, line 2: the picture lies outside of the folder; copy it into it.",
        ),
        (
            '{"image": "a.png", "label": 3}',
            'records.jsonl, line 2: "label" is the name of a class, or null where nobody said.',
        ),
        (
            '{"image": "a.png", "boxes": [["pit", 0.5, 0.1, 0.2, 1]]}',
            'records.jsonl, line 2: "boxes" is a list of [class, x1, y1, x2, y2], shares of the sides from 0 to 1, '
            "the first corner first.",
        ),
        (
            '{"image": "a.png", "boxes": 7}',
            'records.jsonl, line 2: "boxes" is a list of [class, x1, y1, x2, y2], shares of the sides from 0 to 1, '
            "the first corner first.",
        ),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, line: str, message: str) -> None:
    folder = written(tmp_path, '{"image": "a.png"}', line)
    with pytest.raises(Invalid) as refused:
        read_records(folder)
    assert refused.value.message == message


def test_a_folder_without_a_list_or_with_an_empty_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="has no readable records.jsonl; expected a folder of records"):
        read_records(tmp_path)
    with pytest.raises(Invalid, match="holds no record; there is nothing to learn from"):
        read_records(written(tmp_path, ""))


def test_one_class_is_too_few(tmp_path: Path) -> None:
    records = read_records(written(tmp_path, '{"image": "a.png", "label": "pit"}'))
    with pytest.raises(Invalid, match="the records name 1 class; a repair tells at least two apart"):
        classes_of(records)
