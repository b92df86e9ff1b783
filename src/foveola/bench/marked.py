"""Figures in documents: regions between two comments are filled from ``bench/results``, so that prose cannot drift.

    <!-- figures:bars e1_speed -->        the rest of the line names what is shown
    ...                                   written by this module, by nobody else
    <!-- /figures -->

A region may also stand within a line: ``<!-- figures:value e1_speed figures.ratio.value .1f -->6.8<!-- /figures -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foveola.bench.accuracy_table import WAYS, percent
from foveola.bench.evidence import read
from foveola.bench.machine import MIB, platform_line
from foveola.bench.table import COLUMNS, cells
from foveola.exchange import Refusal

REGION = re.compile(r"(<!-- figures:([^>]*?) -->)(.*?)(<!-- /figures -->)", re.DOTALL)
NOT_YET = "*Not measured yet"
Results = Mapping[str, Mapping[str, Any]]
"""Evidence documents by the stem of their file, such as ``e1_speed``."""


class NoSuchFigure(Refusal):
    """A region asks for something that there is not."""

    code = "no_such_figure"


def load_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Every evidence document in ``folder``. Raises ``Refusal`` naming a file that is none."""
    return {path.stem: read(path) for path in sorted(folder.glob("*.json"))}


def rendered(text: str, results: Results) -> str:
    """``text`` with every region filled. Raises ``NoSuchFigure`` naming the region."""

    def fill(match: re.Match[str]) -> str:
        opening, asked, before, closing = match.groups()
        name, *words = asked.split()
        if name not in SHOWN:
            raise NoSuchFigure(f"There is no figure {name!r}; there are {', '.join(SHOWN)}.")
        content = SHOWN[name](results, words)
        # Within a line stays within a line; a block keeps its own lines.
        inline = name == "value" and "\n" not in before
        return f"{opening}{content}{closing}" if inline else f"{opening}\n{content}\n{closing}"

    return REGION.sub(fill, text)


def drifted(text: str, results: Results) -> list[str]:
    """The regions of ``text`` whose content is not what the results say.

    An empty region is none of them as long as nothing has been measured for it: it claims nothing.
    """
    stale = []
    for match, wanted in zip(REGION.finditer(text), REGION.finditer(rendered(text, results)), strict=True):
        unmeasured = not match[3].strip() and wanted[3].strip().startswith(NOT_YET)
        if match[3] != wanted[3] and not unmeasured:
            stale.append(match[2])
    return stale


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """A Markdown table: the first ``words`` columns to the left, figures to the right."""
    lines = [head, ["---"] * words + ["--:"] * (len(head) - words), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _not_yet(*stems: str) -> str:
    return f"{NOT_YET}: run {', '.join(f'`python bench/{stem}.py`' for stem in stems)}.*"


def _bars(results: Results, stems: Sequence[str]) -> str:
    """``bars [STEM ...]``: the bars of these results, or of all."""
    chosen = stems or sorted(results)
    missing = [stem for stem in chosen if stem not in results]
    rows = [
        [
            bar["name"] if len(chosen) == 1 else f"{bar['name']} (`{stem}`)",
            "–" if bar["value"] is None else f"{bar['value']:.4g}",
            bar["bar"].replace(">=", "≥").replace("<=", "≤"),
            "yes" if bar["ok"] else "**no**",
        ]
        for stem in chosen
        if stem in results
        for bar in results[stem]["bars"]
    ]
    parts = [table(("what", "measured", "wanted", "reached"), rows)] if rows else []
    return "\n\n".join([*parts, *([_not_yet(*missing)] if missing else [])] or [f"{NOT_YET}.*"])


def _machine(results: Results, stems: Sequence[str]) -> str:
    """``machine STEM``: where and when it was measured, in a sentence."""
    (stem,) = _named("machine", stems, 1)
    if stem not in results:
        return _not_yet(stem)
    one = results[stem]
    packages = ("onnxruntime", "torch", "transformers")
    versions = ", ".join(f"{name} {one['versions'][name]}" for name in packages if name in one["versions"])
    memory = f"{one['machine']['memory_gib']:.0f} GiB"
    return f"Measured on {platform_line(one['machine'])}, {memory}, {one['date'][:10]}, {versions}: `{one['command']}`."


def _rivals(results: Results, words: Sequence[str]) -> str:
    """``rivals``: tokens per second of every contender on the same language model."""
    if "e1_rivals" not in results:
        return _not_yet("e1_rivals")
    rows = [
        [
            row["contender"],
            row["storage"],
            f"{row['prefill_tokens_per_s']:.3g}",
            f"{row['decode_tokens_per_s']:.3g}",
        ]
        for row in results["e1_rivals"]["figures"]["rows"]
    ]
    return table(("contender", "weights", "prefill", "decoding"), rows, words=2)


def _value(results: Results, words: Sequence[str]) -> str:
    """``value STEM PATH [FORMAT]``: one number, such as ``value e1_speed figures.ratio.value .1f``."""
    stem, path, *form = _named("value", words, 2)
    if stem not in results:
        return "?"
    found: Any = results[stem]
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    if found is None:
        raise NoSuchFigure(f"{stem}.json has nothing at {path}.")
    return format(found, form[0]) if form else str(found)


def _speed(results: Results, _: Sequence[str]) -> str:
    """``speed``: the engine beside transformers."""
    if "e1_speed" not in results:
        return _not_yet("e1_speed")
    figures = results["e1_speed"]["figures"]
    ratio, same = figures["ratio"], figures["agreement"]
    told = (
        f"{ratio['rival']} takes {ratio['value']:.1f} times as long ({ratio['low']:.1f} to {ratio['high']:.1f}); "
        f"the same answer to {same['same']} of {same['count']} questions."
    )
    return f"{_rows(figures['rows'])}\n\n{told}"


def _detectors(results: Results, stems: Sequence[str]) -> str:
    """``detectors STEM``: false alarms and delays of everybody who watched the same frames."""
    (stem,) = _named("detectors", stems, 1)
    if stem not in results:
        return _not_yet(stem)
    found = results[stem]["figures"]["detectors"]
    shifts = next(iter(found.values()))["delay_frames"]
    rows = [
        [name, f"{one['false_alarms_per_10k']:g}", *(_delay(one, shift) for shift in shifts)]
        for name, one in found.items()
    ]
    return table(("detector", "false in 10 000", *shifts), rows)


def _delay(one: Mapping[str, Any], shift: str) -> str:
    """Frames until it was found, and how many of five streams were missed where any was."""
    missed = one["missed_of_5"][shift]
    return "–" if missed == 5 else str(one["delay_frames"][shift]) if not missed else f"{missed} of 5 missed"


def _vlm_bench(results: Results, _: Sequence[str]) -> str:
    """``vlm-bench``: the whole table of ``foveola bench``."""
    if "v_bench" not in results:
        return _not_yet("v_bench")
    figures = results["v_bench"]["figures"]
    return "\n\n".join([_rows(figures["rows"]), *figures["not_measured"]])


def _rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the VLM-Bench table."""
    lines = [[row["platform"], row["contender"], *cells(row)] for row in rows]
    return table(("platform", "contender", *COLUMNS), lines, words=2)


def _accuracy(results: Results, _: Sequence[str]) -> str:
    """``accuracy``: per kind, language and wording, then the classes of steel and magnetic tiles."""
    if "tiny_accuracy" not in results:
        return _not_yet("tiny_accuracy")
    one = results["tiny_accuracy"]
    figures = one["figures"]
    kinds = dict.fromkeys(way.partition("|")[0] for way in figures["ways"])
    rows = []
    for kind in kinds:
        found = [figures["ways"].get(f"{kind}|{lang}|{wording}") for lang, wording in WAYS]
        count = max(score["count"] for score in found if score)
        rows.append([kind, *(percent(score) if score else "–" for score in found), str(count)])
    head = ("right, %", "English", "English, untrained words", "Chinese", "Chinese, untrained words", "asked each")
    parts = [table(head, rows)]
    for kind, classes in figures["classes"].items():
        lines = [[label, percent(score), str(score["count"])] for label, score in classes.items()]
        if lines:
            parts.append(table((kind, "right, %", "pictures"), lines))
    model = figures["model"]
    parts.append(
        f"{figures['questions']} questions to `{model['name']}` ({model['bytes'] / MIB:.1f} MiB, graphs and tokenizer "
        f"`{model['computes']}`), {one['date'][:10]}."
    )
    return "\n\n".join(parts)


def _confusion(results: Results, _: Sequence[str]) -> str:
    """``confusion``: what steel defects are taken for."""
    if "tiny_accuracy" not in results:
        return _not_yet("tiny_accuracy")
    found = results["tiny_accuracy"]["figures"]["confusion"]
    answers = list(dict.fromkeys([*found, *(name for row in found.values() for name in row)]))
    rows = [[label, *(str(row.get(name, "")) for name in answers)] for label, row in found.items()]
    return table(("is ↓ called →", *answers), rows)


def _named(name: str, words: Sequence[str], least: int) -> Sequence[str]:
    if len(words) < least:
        raise NoSuchFigure(f"The figure {name!r} needs {least} words after its name, got {len(words)}.")
    return words


SHOWN: dict[str, Callable[[Results, Sequence[str]], str]] = {
    "bars": _bars,
    "machine": _machine,
    "value": _value,
    "speed": _speed,
    "rivals": _rivals,
    "detectors": _detectors,
    "vlm-bench": _vlm_bench,
    "accuracy": _accuracy,
    "confusion": _confusion,
}
