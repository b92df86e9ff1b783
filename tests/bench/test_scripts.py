from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foveola.bench.evidence import Script
from foveola.bench.marked import load_results
from tests.bench.scripts import ROOT, load
from tests.bench.test_marked import ACCURACY, SPEED

# They write documents; the worker measures in a rival's environment.
NO_EVIDENCE = ("figures", "model_card", "support", "token_maps", "repair_plot", "federated_plot",
               "e1_rivals_worker", "k1_portable_worker", "k2_layouts_worker", "o3_panels")  # fmt: skip
STEMS = sorted(path.stem for path in (ROOT / "bench").glob("*.py") if path.stem not in NO_EVIDENCE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small repository with results and two documents."""
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench" / "results" / "e1_speed.json").write_text(json.dumps(SPEED))
    (tmp_path / "README.md").write_text("# A\n<!-- figures:speed -->\n<!-- /figures -->\n")
    (tmp_path / "docs" / "speed.md").write_text("<!-- figures:bars e1_speed --><!-- /figures -->\n")
    return tmp_path


def test_figures_are_written_and_then_hold(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = load("figures")
    assert figures.main(["--root", str(repository), "--check"]) == 1
    shown = capsys.readouterr().out
    assert "README.md: the figures 'speed' are not those of bench/results; run python bench/figures.py" in shown
    assert f"docs{os.sep}speed.md" in shown
    assert figures.main(["--root", str(repository)]) == 0
    assert "6.8 times as long" in (repository / "README.md").read_text()
    assert figures.main(["--root", str(repository), "--check"]) == 0
    (repository / "README.md").write_text((repository / "README.md").read_text().replace("6.8 times", "68 times"))
    assert figures.main(["--root", str(repository), "--check"]) == 1


def test_a_region_that_asks_for_nothing_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (repository / "README.md").write_text("<!-- figures:nonsense --><!-- /figures -->")
    assert load("figures").main(["--root", str(repository), "--check"]) == 2
    assert "There is no figure 'nonsense'" in capsys.readouterr().err


def test_the_documents_of_this_repository_have_not_drifted(capsys: pytest.CaptureFixture[str]) -> None:
    assert load("figures").main(["--check"]) == 0, capsys.readouterr().out


def test_the_model_card_is_its_text_with_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "card.in.md").write_text("# Card\n<!-- figures:accuracy -->\n<!-- /figures -->\nLimits.\n")
    (tmp_path / "tiny_accuracy.json").write_text(json.dumps(ACCURACY))
    given = ["--text", str(tmp_path / "card.in.md"), "--result", str(tmp_path / "tiny_accuracy.json")]
    card = ["--out", str(tmp_path / "card.md")]
    model_card = load("model_card")
    assert model_card.main([*given, *card, "--check"]) == 1
    assert model_card.main([*given, *card]) == 0
    text = (tmp_path / "card.md").read_text()
    assert "| steel: defect | 97.0 (95–99) |" in text
    assert text.endswith("<!-- /figures -->\nLimits.\n")
    assert model_card.main([*given, *card, "--check"]) == 0
    assert model_card.main([*card, "--result", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read as evidence" in capsys.readouterr().err


def test_the_text_of_the_model_card_has_a_place_for_figures() -> None:
    assert "<!-- figures:accuracy -->" in (ROOT / "src/foveola/tiny/model_card.in.md").read_text(encoding="utf-8")


def test_every_claim_has_a_script() -> None:
    assert {"e1_speed", "s1_http_overhead", "s1_install", "s1_startup", "tiny_accuracy"} <= set(STEMS)


@pytest.mark.parametrize("stem", STEMS)
def test_a_script_is_called_after_its_claim(stem: str) -> None:
    if stem == "tiny_accuracy":
        pytest.importorskip("transformers", reason="the workshop is not installed")
    script = load(stem).SCRIPT
    assert isinstance(script, Script)
    assert f"{script.id}_{script.name}" == stem
    assert script.about


def test_committed_results_are_whole_and_of_a_script_that_exists() -> None:
    for stem, document in load_results(ROOT / "bench" / "results").items():
        assert stem.removesuffix("_small") in STEMS  # a run with fewer samples than the bar asks for, told as such
        assert stem.startswith(document["id"])
        assert "quick" not in document["figures"]


def test_the_first_question_of_the_start_is_about_a_drawn_defect() -> None:
    import numpy as np

    from foveola.tiny import scenes

    startup = load("s1_startup")
    assert startup.first_picture(None).startswith(b"\x89PNG")
    one = scenes.scene(np.random.default_rng(11), 224, 224, counts=(0, 1, 0, 0, 0))
    assert one.names == ("scratch",)


def test_disk_blocks_are_counted_once_per_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10_000)
    alone = load("s1_install").size_of(tmp_path)
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    assert alone >= 10_000
    assert load("s1_install").size_of(tmp_path) - alone < 10_000
