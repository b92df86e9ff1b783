"""How far the engine's evidence agrees with Grad-CAM in torch, on the embedded model.

Grad-CAM (Selvaraju et al. 2017) on the merged visual tokens: what the logit of the answer's first token gains from
each, channels weighted by their mean gradient, negative ones cut off. The evidence is one layer's attention, and needs
no gradient. Both are held against each other on generated parts of one defect, against maps of *another* picture (what
agreement is worth nothing), and against the place of the defect, which is known exactly.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import spearmanr

from foveola.artifact import Bundle
from foveola.bench.contender import Setup
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.bench.rival import Transformers
from foveola.bench.work import encoded
from foveola.drift.observation import pearson
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.exchange import Evidence, Request, Sampling, Turn
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import scenes

Map = NDArray[np.float64]
QUESTIONS = ("What defect is on this surface?", "Where is the defect?")
SIDE_PX, RESAMPLED = 224, 2000


class GradCam:
    """Grad-CAM of a checkpoint in torch, float32."""

    def __init__(self, checkpoint: Path) -> None:
        self._rival = Transformers(Setup(checkpoint, 1, 1))
        self._model = self._rival.model
        self._features: torch.Tensor | None = None
        self._model.model.visual.merger.register_forward_hook(self._take)

    def _take(self, module: torch.nn.Module, given: Any, features: torch.Tensor) -> torch.Tensor:
        self._features = features.detach().requires_grad_()
        return self._features

    def __call__(self, picture: NDArray[np.uint8], question: str) -> Map:
        """The map [rows, columns] of visual tokens."""
        inputs = self._rival.inputs([Image.fromarray(picture)], [question])
        with torch.enable_grad():
            logits = self._model(**inputs).logits[0, -1]
            assert self._features is not None
            (gradient,) = torch.autograd.grad(logits.max(), self._features)
        found = torch.relu(self._features.detach() @ gradient.mean(0))
        _, rows, columns = (int(n) for n in inputs["image_grid_thw"][0])
        return found.reshape(rows // 2, columns // 2).double().numpy()


def evidence_map(evidence: Evidence) -> Map:
    return np.asarray(evidence.weights, np.float64).reshape(evidence.grid)


def spearman(a: Map, b: Map) -> float:
    """Rank correlation; 0 where one of them is flat."""
    return 0.0 if np.ptp(a) == 0 or np.ptp(b) == 0 else float(spearmanr(a.ravel(), b.ravel()).statistic)


def overlap(a: Map, b: Map) -> float:
    """Which share of the tokens that are among the strongest fifth of one map is so in the other."""
    count = max(1, a.size // 5)
    top = [set(np.argsort(one.ravel())[-count:].tolist()) for one in (a, b)]
    return len(top[0] & top[1]) / count


def inside(found: Map, box: tuple[float, float, float, float]) -> tuple[bool, float]:
    """Whether the peak lies on a token that the box touches, and how many times more than its area the box gets."""
    rows, columns = found.shape
    y, x = np.mgrid[0:rows, 0:columns]
    left, top, right, bottom = box
    touched = (x + 1 > left * columns) & (x < right * columns) & (y + 1 > top * rows) & (y < bottom * rows)
    peak = np.unravel_index(int(found.argmax()), found.shape)
    total = float(found.sum())
    return bool(touched[peak]), float(found[touched].sum() / total / touched.mean()) if total > 0 else 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", default=Path("models/foveola-tiny"))
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="made from it; default: the embedded model")
    parser.add_argument("--pictures", type=int, metavar="N", default=60, help="per question (default: 60)")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 6 if arguments.quick else arguments.pictures
    bundle = Bundle.open(arguments.bundle or embedded_bundle())
    engine, cam = Engine.open(bundle), GradCam(arguments.checkpoint)
    figures: dict[str, Any] = {"model": describe_model(bundle), "pictures": count, "questions": {}}
    bars = []
    for question in QUESTIONS:
        tell(question)
        rng = np.random.default_rng(5)
        maps: list[tuple[Map, Map]] = []
        boxes = []
        for n in range(count):
            one = scenes.scene(rng, SIDE_PX, SIDE_PX, counts=(0, 1))
            turn = Turn("user", question, (encoded(one.pixels, "PNG"),))
            _, usage = answer_once(engine, Request(str(n), (turn,), Sampling(max_tokens=1)))
            maps.append((evidence_map(usage.evidence[0]), cam(one.pixels, question)))
            boxes.append(one.defects[0].box)
        found = _figures(maps, boxes)
        figures["questions"][question] = found
        low = found["spearman_more_than_another_pictures"]["low"]
        bars.append(Bar(f"{question} Spearman above that with another picture's map, lower end of 95 %", low, 0.0))
        hits = [found[name]["peak_on_defect"] for name in ("evidence", "grad_cam")]
        bars.append(Bar(f"{question} the evidence's peak is on the defect, share (bar: Grad-CAM's)", *hits))
    engine.close(0.0)
    return figures, bars


def _figures(maps: list[tuple[Map, Map]], boxes: list[tuple[float, float, float, float]]) -> dict[str, Any]:
    others = [(maps[n][0], maps[(n + 1) % len(maps)][1]) for n in range(len(maps))]
    own = np.array([spearman(a, b) for a, b in maps])
    gain = own - np.array([spearman(a, b) for a, b in others])
    rng = np.random.default_rng(0)
    means = gain[rng.integers(0, len(gain), (RESAMPLED, len(gain)))].mean(1)
    told: dict[str, Any] = {
        "pearson": round(float(np.mean([pearson(a, b) for a, b in maps])), 3),
        "spearman": round(float(own.mean()), 3),
        "strongest_fifth_in_common": round(float(np.mean([overlap(a, b) for a, b in maps])), 3),
        "spearman_more_than_another_pictures": {
            "mean": round(float(gain.mean()), 3),
            "low": round(float(np.quantile(means, 0.025)), 3), "high": round(float(np.quantile(means, 0.975)), 3),
        },
    }  # fmt: skip
    for name, place in (("evidence", 0), ("grad_cam", 1)):
        hits, gains = zip(*(inside(pair[place], box) for pair, box in zip(maps, boxes, strict=True)), strict=True)
        told[name] = {"peak_on_defect": round(float(np.mean(hits)), 3), "defect_gets": round(float(np.mean(gains)), 2)}
    return told


SCRIPT = Script("o4", "gradcam", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
