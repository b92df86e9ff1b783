"""One turn of the loop: read, de-identify, learn, gate, write, compile, patch. Each stage leaves an artefact."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from foveola.artifact import Checkpoint
from foveola.artifact.audit import AuditLog
from foveola.exchange import Invalid
from foveola.guard.privacy import Deidentifier
from foveola.learn.distil.gate import GateOptions
from foveola.learn.distil.options import DistilOptions
from foveola.learn.distil.records import Record, classes_of, read_records
from foveola.learn.distil.train import Told
from foveola.loop.pictures import Pictures
from foveola.loop.qwen2_vl import QUESTION, Qwen2VL
from foveola.loop.repair import Repair, by_class, finding_of, lessons_of, repair
from foveola.loop.writing import PATCH_PATH, check_plain, write_patch, write_repaired
from foveola.lower.compile import compile_checkpoint
from foveola.lower.options import CompileOptions
from foveola.serve.client import key_in
from foveola.serve.patch_command import send

CHECKPOINT, BUNDLE, PATCH, REPORT = "checkpoint", "bundle", "vision.safetensors", "report.json"


@dataclass(frozen=True, slots=True)
class Order:
    """What ``foveola distil`` is to do. ``precision`` None makes no bundle, ``server`` None sends no patch."""

    checkpoint: Path
    records: Path
    out: Path
    options: DistilOptions
    old: Path | None = None
    classes: tuple[str, ...] | None = None
    question: str | None = None
    size: tuple[int, int] = (112, 112)
    points: float = 1.0
    private: bool = True
    name: str | None = None
    precision: str | None = None
    server: str | None = None
    key_file: Path | None = None


def close(order: Order, progress: Progress) -> dict[str, Any]:
    """Carry out ``order`` and return the report, which also lies in ``out``. Raises refusals."""
    source = Checkpoint.open(order.checkpoint)
    check_plain(source)
    new, old = read_records(order.records), read_records(order.old) if order.old is not None else []
    if any(one.label is None for one in old):
        raise Invalid("The records of --old all need a label: they say what must not be forgotten.", field="old")
    classes = order.classes or classes_of([*new, *old])
    question = order.question or QUESTION
    pupil = Qwen2VL.open(source, classes, question, order.size)
    order.out.mkdir(parents=True, exist_ok=True)
    lessons = lessons_of(*_examples(order, new, old, classes, progress))
    task = progress.add_task("learning", total=-(-len(lessons.stream) // order.options.fresh))

    def told(one: Told) -> None:
        progress.update(task, completed=one.step, description=f"learning, loss {one.loss:.2f}")

    found = repair(pupil, lessons, order.options, order.out, GateOptions(points=order.points), told)
    report: dict[str, Any] = _report(found, classes, question) | {"checkpoint": None, "bundle": None, "server": None}
    if found.weights is not None:
        finding = finding_of(found, lessons, order.options, source, {"question": question, "classes": list(classes)})
        out, name = order.out / CHECKPOINT, order.name or source.name
        made = write_repaired(source, found.weights, out, name=name, finding=finding)
        report["checkpoint"] = {"name": made.name, "model_hash": made.model_hash}
        _pass_on(order, made, report, progress)
    (order.out / REPORT).write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return report


def _examples(
    order: Order, new: list[Record], old: list[Record], classes: tuple[str, ...], progress: Progress
) -> tuple[Any, Any]:
    deidentifier = Deidentifier.open(AuditLog(order.out / "privacy.jsonl")) if order.private else None
    pictures = Pictures(deidentifier, order.out / "pictures", order.size)
    task = progress.add_task("pictures", total=len(new) + len(old))
    stream = pictures.examples(new, classes, told=lambda: progress.advance(task))
    return stream, pictures.examples(old, classes, old=True, told=lambda: progress.advance(task))


def _report(found: Repair, classes: tuple[str, ...], question: str) -> dict[str, Any]:
    return {
        "gate": found.verdict.to_json(),
        "question": question,
        "classes": list(classes),
        "head": [classes[label] for label in found.heads],
        "steps": found.steps,
        "before": {where: by_class(getattr(found.before, where), classes) for where in ("old", "new")},
        "after": {where: by_class(getattr(found.after, where), classes) for where in ("old", "new")},
    }


def _pass_on(order: Order, made: Checkpoint, report: dict[str, Any], progress: Progress) -> None:
    """Bundle and patch of the new checkpoint."""
    tensors = write_patch(made, order.out / PATCH)
    if order.precision is not None:
        task = progress.add_task("compiling", total=100)
        options = CompileOptions.of_precision(order.precision)
        bundle = compile_checkpoint(
            made.path, order.out / BUNDLE, options, lambda step, share: progress.update(task, completed=100 * share),
            replace=True,
        )  # fmt: skip
        report["bundle"] = {"name": bundle.name, "model_hash": bundle.model_hash}
    if order.server is not None:
        fields = {"module_path": PATCH_PATH, "strict": "true"}
        key = key_in(order.key_file)
        report["server"] = send(order.server, key, fields, order.out / PATCH, Console(stderr=True, quiet=True))
        report["server"]["sent_tensors"] = tensors
