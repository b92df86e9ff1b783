"""Every alert fires when it should and not otherwise, says promtool."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from foveola.observe import definitions as names
from foveola.observe.alerts import ALERTS
from foveola.observe.command import RULES, TESTS
from foveola.observe.dashboards import PANELS, WIDTH, dashboard

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
KNOWN = {d.name + end for d in names.ALL for end in ("", "_total", "_bucket", "_sum", "_count")}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    from foveola.cli import main

    out = tmp_path_factory.mktemp("observe")
    assert main(["observe", "export", str(out)]) == 0
    return out


@promtool
def test_promtool_accepts_the_rules(exported):
    done = subprocess.run(["promtool", "check", "rules", RULES], cwd=exported, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@promtool
def test_every_alert_fires_and_keeps_quiet(exported):
    done = subprocess.run(["promtool", "test", "rules", TESTS], cwd=exported, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@promtool
def test_a_wrong_alert_would_be_noticed(exported, tmp_path):
    """The tests of the alerts can fail."""
    shutil.copytree(exported, tmp_path / "x")
    rules = tmp_path / "x" / RULES
    rules.write_text(rules.read_text().replace("< 0.92", "< 0.12"))
    done = subprocess.run(["promtool", "test", "rules", TESTS], cwd=tmp_path / "x", capture_output=True, text=True)
    assert done.returncode != 0
    assert "FoveolaAccuracyLow" in done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda a: a.name)
def test_alerts_ask_for_metrics_that_exist(alert):
    used = set(re.findall(r"\b(?:ocr|foveola)_\w+", alert.expr))
    assert used
    assert used <= KNOWN


def test_panels_ask_for_metrics_that_exist():
    for panel in PANELS:
        for query, _ in panel.queries:
            used = set(re.findall(r"\b(?:ocr|foveola)_\w+", query))
            assert used, panel.title
            assert used <= KNOWN, panel.title


def test_every_metric_is_on_the_dashboard():
    shown = " ".join(query for panel in PANELS for query, _ in panel.queries)
    assert [d.name for d in names.ALL if d.name not in shown] == ["foveola_tokens", "foveola_cancelled"]


def test_panels_do_not_overlap():
    taken = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= WIDTH
        taken |= cells


def test_variables_narrow_every_query():
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            assert 'model_version=~"$model_version"' in target["expr"]
            assert 'region=~"$region"' in target["expr"]
    assert {v["name"] for v in dashboard()["templating"]["list"]} == {"source", "model_version", "region"}


def test_a_folder_that_cannot_be_is_told(tmp_path, capsys):
    from foveola.cli import main

    (tmp_path / "file").write_text("")
    assert main(["observe", "export", str(tmp_path / "file")]) == 2
    assert "file cannot be written (File exists); name a folder that may be." in capsys.readouterr().err


def test_bounds_of_alerts_are_drawn():
    bounds = {p["title"]: p["fieldConfig"]["defaults"].get("thresholds") for p in dashboard()["panels"]}
    drawn = {title: found["steps"][1]["value"] for title, found in bounds.items() if found}
    assert drawn == {"Accuracy": 0.92, "Drift: share of the bound": 1.0}
    assert f"< {drawn['Accuracy']}" in ALERTS[0].expr
