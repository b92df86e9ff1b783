from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from foveola.bench import command
from foveola.bench.options import BenchOptions
from foveola.exchange import Invalid


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"requests": 0}, "requests is 0; expected at least 1."),
        ({"max_tokens": -1}, "max_tokens is -1; expected at least 1."),
        ({"concurrency": ()}, "concurrency needs whole numbers of at least 1, such as 1,4."),
        ({"concurrency": (1, 1)}, "concurrency names a number twice; name each once."),
        ({"rivals": ("llama",)}, "'llama' is no rival; there is transformers, or none."),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as refused:
        BenchOptions(bundle=Path("bundle"), cores=2, **given)
    assert refused.value.message == message
    assert refused.value.field == next(iter(given))


def parsed(*argv: str) -> BenchOptions:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.options_of(parser.parse_args(["--bundle", "bundle", *argv]))


def test_flags_become_options() -> None:
    found = parsed("--requests", "7", "--concurrency", "1,2,8", "--rivals", "none", "--checkpoint", "weights")
    assert (found.requests, found.concurrency, found.rivals) == (7, (1, 2, 8), ())
    assert found.checkpoint == Path("weights")
    assert parsed().concurrency == (1, 4)
    assert parsed().rivals == ("transformers",)


def test_a_quick_run_is_short_unless_told_otherwise() -> None:
    assert parsed("--quick").requests == 8
    assert parsed("--quick").concurrency == (1,)
    assert parsed("--quick", "--requests", "3", "--concurrency", "2").requests == 3


def test_no_more_cores_than_there_are() -> None:
    assert parsed("--cores", "1").cores == 1
    assert parsed("--cores", "100000").cores == parsed().cores


def test_numbers_that_are_none() -> None:
    with pytest.raises(Invalid, match="concurrency is 'one'; expected whole numbers such as 1,4."):
        parsed("--concurrency", "one")


def test_a_page_into_no_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench door is not installed")
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    page = tmp_path / "no such folder" / "page.html"
    with pytest.raises(Invalid, match="lies in a folder that does not exist; make it first"):
        command.run(parser.parse_args(["--bundle", str(tmp_path), "--html", str(page)]))
