from __future__ import annotations

import io

import pytest
from rich.console import Console

from foveola.bench.table import number, render
from tests.bench.making import report


def shown(width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(render(report(), width=width))
    return out.getvalue()


def test_the_table_names_everything_that_was_measured() -> None:
    text = shown(140)
    for head in ("platform", "batch", "img/s", "TTFT P50 / P95 ms", "tok/s", "P50 / P95 / P99 ms", "MiB"):
        assert head in text
    line = next(line for line in text.splitlines() if " foveola " in line and "Example CPU" in line)
    assert line.split()[-6:] == ["11.5", "/", "27.3", "/", "29.5", "120"][-6:]
    assert "transformers takes 10.00 times as long as foveola (10.00 to 10.00) at batch 1." in text
    assert "foveola and transformers give the same answer to 3 of 4." in text
    assert "somebody is not measured" in text


def test_a_narrow_terminal_gets_whole_lines() -> None:
    text = shown(90)
    assert "platform" not in text
    assert any(line.startswith("foveola HTTP") and line.rstrip().endswith("120") for line in text.splitlines())


@pytest.mark.parametrize(
    ("value", "wanted"), [(0, "–"), (0.1234, "0.12"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")]
)
def test_numbers_have_the_digits_that_count(value: float, wanted: str) -> None:
    assert number(value) == wanted
