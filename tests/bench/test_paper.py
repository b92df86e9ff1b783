from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the workshop is not installed")

from foveola.bench.paper import as_items, draw, read_paper
from foveola.exchange import Invalid
from tests.bench.exam import question


def test_a_drawn_paper_has_as_many_of_every_kind_as_there_are() -> None:
    paper = [question(kind, index=index) for kind, count in (("a", 50), ("b", 50), ("c", 2)) for index in range(count)]
    drawn = draw(paper, 22)
    assert Counter(one.kind for one in drawn) == {"a": 10, "b": 10, "c": 2}
    assert drawn == draw(paper, 22)
    assert drawn != draw(paper, 22, seed=1)
    assert len(draw(paper, 1000)) == 102


def test_questions_become_items() -> None:
    (item,) = as_items([question("steel: defect", label="crazing", image=b"file", text="What?")])
    assert (item.name, item.image, item.text) == ("steel: defect (crazing)", b"file", "What?")


def test_a_folder_that_is_not_the_data(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="lacks defects/manifest.csv; name the project's data folder."):
        read_paper(tmp_path, generated=1)
