"""From a training run to a checkpoint in the Hugging Face layout, sealed, with its history."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch

from foveola.artifact import Checkpoint, Finding, write_checkpoint
from foveola.exchange import Damaged
from foveola.tiny.model import PATCH, Shape, build_model
from foveola.tiny.tokens import load_tokenizer

# Pictures are brought to between 8 x 8 and 12 x 12 patches, the sizes that training shows.
MIN_PIXELS = 64 * PATCH * PATCH
MAX_PIXELS = 144 * PATCH * PATCH
PREPROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": PATCH,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "do_convert_rgb": True,
    "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS},
}


def export_checkpoint(run: Path, out: Path, *, shape: Shape | None = None, card: Path | None = None) -> Checkpoint:
    """Writes the weights of the training state in ``run`` as a checkpoint at ``out``, 16-bit, replacing what is there.

    Raises ``Damaged`` where ``run`` holds no training state.
    """
    state = run / "state.pt"
    if not state.is_file():
        raise Damaged("state.pt is missing from the run; `foveola tiny train` writes it every few minutes.")
    saved = torch.load(state, weights_only=True)
    tokenizer = load_tokenizer(run / "tokenizer")
    model = build_model(shape or Shape(), tokenizer)
    prefix = "model."
    model.load_state_dict({k[len(prefix) :]: v for k, v in saved["trainee"].items() if k.startswith(prefix)})
    model.half()  # type: ignore[no-untyped-call]
    count = sum(p.numel() for p in model.parameters())

    def fill(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR, indent=1) + "\n")
        if card is not None:
            shutil.copyfile(card, folder / "model_card.md")

    learnt = Finding(
        step="tiny.train",
        changed=f"{count} parameters trained from random weights",
        after={"steps": int(saved["step"]), "parameters": count, "dtype": "float16"},
        options={"shape": asdict(shape or Shape()), "plan": saved.get("plan", {})},
    )
    return write_checkpoint(out, name="foveola-tiny", files=fill, lineage=(learnt,), replace=True)
