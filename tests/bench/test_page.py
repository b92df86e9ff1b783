from __future__ import annotations

import base64
import re

import pytest

from foveola.bench.page import render_page
from tests.bench.making import report


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = render_page(report(), {"latency": b"<svg/>", "stages": b"<svg/>", "ratios": b"<svg/>"})
    assert not re.findall(r"https?://", page)
    assert "<script" not in page
    assert "<link" not in page
    assert page.count("data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode()) == 3


def test_the_page_tells_what_the_table_tells() -> None:
    page = render_page(report(), {})
    for text in ("VLM-Bench: example", "Example CPU, 2 cores, avx2", "10.0×", "11.5 / 27.3 / 29.5", "75.0%"):
        assert text in page
    assert "somebody is not measured" in page
    assert "foveola bench --quick" in page


def test_answers_cannot_become_markup() -> None:
    page = render_page(report(), {})
    assert "&lt;b&gt;fail&lt;/b&gt;" in page
    assert "<b>fail" not in page


def test_plots_are_drawn_for_what_was_measured_and_are_the_same_each_time() -> None:
    pytest.importorskip("matplotlib", reason="the bench door is not installed")
    from foveola.bench.plots import draw_plots

    plots = draw_plots(report())
    assert set(plots) == {"latency", "stages", "ratios"}
    assert all(b"<svg" in svg for svg in plots.values())
    assert plots == draw_plots(report())
    alone = {**report(), "ratios": []}
    assert set(draw_plots(alone)) == {"latency", "stages"}
    assert draw_plots(alone, kind="png")["stages"].startswith(b"\x89PNG")
