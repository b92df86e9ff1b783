"""A recipe carried out: step after step, each a sealed checkpoint, taken up again where it was interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace as replace_fields
from pathlib import Path

from foveola.artifact import Checkpoint, write_checkpoint
from foveola.artifact.checkpoint import SEAL_FILE
from foveola.artifact.digest import digest_file
from foveola.artifact.seal import check_name
from foveola.compress.recipe import Recipe, options_of
from foveola.compress.steps import Progress, Step, Workbench
from foveola.exchange import Invalid, Refusal


def compress(
    source_dir: Path | str,
    recipe: Recipe,
    out_dir: Path | str,
    progress: Progress | None = None,
    *,
    name: str | None = None,
    replace: bool = False,
    origin: Checkpoint | None = None,
) -> Checkpoint:
    """Carry out ``recipe`` on the checkpoint in ``source_dir`` and write ``out_dir``, whole or not at all.

    While it runs, a hidden folder beside ``out_dir`` keeps what is done. A run that was interrupted goes on from there
    when it is started again with the same source and recipe; with others it begins anew. ``origin`` is the checkpoint
    that steps learn from which repair an answer (``tune``), where it is not the source. Raises ``Damaged`` for a
    source that is not whole, ``Invalid`` for options that do not fit it, and whatever else the steps refuse.
    """
    out = Path(os.path.abspath(out_dir))
    if not replace and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Invalid(f"{out.name} exists; ask to replace it (--replace), or name another place.", field="out")
    tell = progress or (lambda what, share: None)
    tell("reading the checkpoint", 0.0)
    checkpoint = Checkpoint.open(source_dir)
    teacher = origin or checkpoint
    called = _valid_name(name or recipe.name or checkpoint.name)
    work = _workplace(out, checkpoint, recipe)
    places = [work / f"{number:02d}-{step.name}" for number, step in enumerate(recipe.steps)]
    done = max((n for n, place in enumerate(places) if (place / "checkpoint").is_dir()), default=-1)
    if done >= 0:
        checkpoint = Checkpoint.open(places[done] / "checkpoint")
    for number in range(done + 1, len(places)):
        step = recipe.steps[number]

        def told(what: str, share: float, number: int = number, step: Step = step) -> None:
            tell(f"{step.name}: {what}", (number + share) / len(places))

        journal = places[number] / "journal"
        journal.mkdir(parents=True, exist_ok=True)
        bench = Workbench(journal, told, recipe.calibration, recipe.seed, teacher)
        try:
            checkpoint = _carry_out(step, checkpoint, places[number] / "checkpoint", bench, called)
        except Refusal:
            if not number and not any(journal.iterdir()):  # refused before anything was done: nothing to go on from
                shutil.rmtree(work)
            raise
        shutil.rmtree(journal)
        if number:
            shutil.rmtree(places[number - 1])
    tell("sealing the checkpoint", 1.0)
    lineage = checkpoint.lineage
    made = checkpoint.path
    final = write_checkpoint(out, name=called, files=lambda f: _link(made, f), lineage=lineage, replace=replace)
    shutil.rmtree(work)
    return final


def _carry_out(step: Step, source: Checkpoint, out: Path, bench: Workbench, name: str) -> Checkpoint:
    """One step into ``out``. Its Finding, with the options that it ran with, ends the lineage."""
    lineage = list(source.lineage)

    def fill(folder: Path) -> None:
        finding = step.run(source, folder, bench)
        lineage.append(replace_fields(finding, options={**options_of(step), **finding.options}))

    return write_checkpoint(out, name=name, files=fill, lineage=lineage)


def _workplace(out: Path, source: Checkpoint, recipe: Recipe) -> Path:
    """The hidden folder of this source and recipe; what another one left there is removed."""
    samples = None if recipe.calibration is None else digest_file(recipe.calibration).sha256
    weights = source.model_hash or [digest_file(source.file(file)).sha256 for file in source.weight_files]
    asked = json.dumps([weights, samples, recipe.to_json()], sort_keys=True)
    fingerprint = hashlib.sha256(asked.encode()).hexdigest()
    work = out.parent / f".{out.name}.compress"
    told = work / "fingerprint"
    if not told.is_file() or told.read_text(encoding="utf-8") != fingerprint:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        told.write_text(fingerprint, encoding="utf-8")
    return work


def _valid_name(name: str) -> str:
    try:
        check_name(name)
    except ValueError as error:
        raise Invalid(f"the checkpoint's name {error}. Give another with --name.", field="name") from None
    return name


def _link(made: Path, folder: Path) -> None:
    """All files of the last step's checkpoint but its seal; their bytes are copied only where they must be."""
    for file in sorted(made.rglob("*")):
        target = folder / file.relative_to(made)
        if file.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif file != made / SEAL_FILE:
            try:
                os.link(file, target)
            except OSError:  # a file system without hard links
                shutil.copyfile(file, target)
