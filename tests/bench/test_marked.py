from __future__ import annotations

from typing import Any

import pytest

from foveola.bench.marked import NoSuchFigure, drifted, rendered
from tests.bench.making import MACHINE, report


def document(**figures: Any) -> dict[str, Any]:
    return {
        "id": "e1",
        "date": "2026-11-30T08:00:00+00:00",
        "machine": MACHINE,
        "versions": {"onnxruntime": "1.32.0"},
        "command": "python bench/e1_speed.py",
        "figures": figures,
        "bars": [
            {"name": "times as long", "value": 6.8312, "bar": ">= 6", "ok": True},
            {"name": "added | ms", "value": None, "bar": "<= 3", "ok": False},
        ],
    }


def score(share: float, count: int = 100) -> dict[str, Any]:
    return {"share": share, "interval": [share - 0.02, share + 0.02], "right": round(share * count), "count": count}


SPEED = document(
    rows=report()["rows"][:1],
    ratio={"rival": "transformers", "value": 6.83, "low": 6.5, "high": 7.2},
    agreement={"same": 398, "count": 400},
)
ACCURACY = document(
    questions=400,
    model={"name": "tiny", "bytes": 9 * 2**20, "computes": "abcd"},
    ways={
        "steel: defect|en|train": score(0.97),
        "steel: defect|zh|train": score(0.96),
        "lot code|en|train": score(0.9),
    },
    classes={"steel: defect": {"crazing": score(0.95, 20)}, "magnetic: defect": {}},
    confusion={"crazing": {"crazing": 19, "patches": 1}},
)
RESULTS = {"e1_speed": SPEED, "tiny_accuracy": ACCURACY}


def region(asked: str, content: str = "\n") -> str:
    return f"<!-- figures:{asked} -->{content}<!-- /figures -->"


def test_bars_become_a_table_and_nothing_else_changes() -> None:
    text = rendered(f"# Title\n\n{region('bars e1_speed')}\n\nThe end.\n", RESULTS)
    assert text.startswith("# Title\n\n<!-- figures:bars e1_speed -->\n| what |")
    assert "| times as long | 6.831 | ≥ 6 | yes |" in text
    assert "| added \\| ms | – | ≤ 3 | **no** |" in text
    assert text.endswith("<!-- /figures -->\n\nThe end.\n")


def test_rendering_twice_changes_nothing() -> None:
    text = "\n".join(region(asked) for asked in ("bars", "speed", "accuracy", "confusion", "machine e1_speed"))
    once = rendered(text, RESULTS)
    assert rendered(once, RESULTS) == once
    assert drifted(once, RESULTS) == []


def test_drift_names_the_regions_that_are_stale() -> None:
    text = rendered(f"{region('bars e1_speed')}\n{region('speed')}", RESULTS)
    faster = {**SPEED, "bars": [{"name": "times as long", "value": 9.9, "bar": ">= 6", "ok": True}]}
    assert drifted(text, {"e1_speed": faster}) == ["bars e1_speed"]
    assert drifted(text.replace("6.831", "7"), RESULTS) == ["bars e1_speed"]


def test_speed_and_machine_say_what_was_compared_and_where() -> None:
    text = rendered(region("speed") + region("machine e1_speed"), RESULTS)
    assert "| Example CPU, 2 cores, avx2 | foveola | 1 | 63.5 |" in text
    assert "transformers takes 6.8 times as long (6.5 to 7.2); the same answer to 398 of 400 questions." in text
    assert "Measured on Example CPU, 2 cores, avx2, 16 GiB, 2026-11-30, onnxruntime 1.32.0" in text


def test_the_whole_table_with_what_could_not_be_measured() -> None:
    bench = document(rows=report()["rows"], not_measured=["somebody is not measured: no weights."])
    text = rendered(region("vlm-bench"), {"v_bench": bench})
    assert "| platform | contender | batch | img/s | TTFT P50 / P95 ms | tok/s | P50 / P95 / P99 ms | MiB |" in text
    assert "| foveola HTTP | 1 |" in text
    assert "somebody is not measured: no weights." in text


def test_accuracy_has_ways_and_classes_and_confusions() -> None:
    text = rendered(region("accuracy") + region("confusion"), RESULTS)
    assert "| steel: defect | 97.0 (95–99) | – | 96.0 (94–98) | – | 100 |" in text
    assert "| crazing | 95.0 (93–97) | 20 |" in text
    assert "400 questions to `tiny` (9.0 MiB, graphs and tokenizer `abcd`), 2026-11-30." in text
    assert "| crazing | 19 | 1 |" in text
    assert "magnetic" not in text


def test_a_value_may_stand_within_a_line() -> None:
    text = f"It is {region('value e1_speed figures.ratio.value .1f', 'x')} times faster."
    assert rendered(text, RESULTS) == (
        "It is <!-- figures:value e1_speed figures.ratio.value .1f -->6.8<!-- /figures --> times faster."
    )


@pytest.mark.parametrize("asked", ["bars e1_speed", "speed", "accuracy", "confusion", "machine e1_speed", "vlm-bench"])
def test_what_was_not_measured_says_which_script_to_run(asked: str) -> None:
    text = rendered(region(asked), {})
    assert "*Not measured yet: run `python bench/" in text
    assert drifted(text, {}) == []
    assert drifted(region(asked), {}) == []  # an empty region claims nothing
    assert drifted(region(asked, "\nTen times faster.\n"), {}) == [asked]
    assert drifted(region(asked), RESULTS) == ([] if asked == "vlm-bench" else [asked])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("nothing", "There is no figure 'nothing'; there are bars, machine, value"),
        ("value e1_speed", "The figure 'value' needs 2 words after its name, got 1."),
        ("value e1_speed figures.speed", "e1_speed.json has nothing at figures.speed."),
    ],
)
def test_a_region_that_asks_for_what_there_is_not(asked: str, message: str) -> None:
    with pytest.raises(NoSuchFigure, match=message):
        rendered(region(asked), RESULTS)


def test_detectors_stand_beside_each_other() -> None:
    one = {
        "false_alarms_per_10k": 0.33,
        "delay_frames": {"dirt": 9, "light": 201},
        "missed_of_5": {"dirt": 0, "light": 5},
    }
    other = {**one, "missed_of_5": {"dirt": 2, "light": 0}}
    document_ = document(detectors={"ours": one, "rule": other})
    text = rendered(region("detectors o4_drift"), {"o4_drift": document_})
    assert "| detector | false in 10 000 | dirt | light |" in text
    assert "| ours | 0.33 | 9 | – |" in text
    assert "| rule | 0.33 | 2 of 5 missed | 201 |" in text


def test_rivals_stand_in_a_table_with_what_their_weights_are() -> None:
    row = {"contender": "llama.cpp", "storage": "Q4_0", "prefill_tokens_per_s": 165.15, "decode_tokens_per_s": 46.86}
    text = rendered(region("rivals"), {"e1_rivals": {"figures": {"rows": [row]}}})
    assert "| llama.cpp | Q4_0 | 165 | 46.9 |" in text
    assert "e1_rivals.py" in rendered(region("rivals"), {})
