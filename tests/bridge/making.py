"""What the tests of the bridge are made of: a small plant, and an encoder that is quick."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foveola.bridge.context import ContextBook
from foveola.bridge.encoder import Vectors
from foveola.bridge.intents import load_intents
from foveola.bridge.normalise import Normaliser
from foveola.bridge.payload import BridgePayload, Candidate, Context, RawInstruction
from foveola.bridge.score import load_calibration
from foveola.bridge.sources import load_sources

ALL = ("INSP_PASS", "INSP_FAIL", "TOOL_SWAP", "LINE_STOP", "LINE_START", "REWORK", "SCRAP", "REINSPECT", "CALL_MAINT",
       "MOVE_LOT")  # fmt: skip
EVERYTHING = (*ALL, "LOT_HOLD", "LOT_RELEASE")


def entry(id: str, kind: str, place: str, allowed: Sequence[str]) -> str:
    names = ", ".join(f'"{name}"' for name in allowed)
    return f'[[source]]\nid = "{id}"\ntype = "{kind}"\nplace = "{place}"\nchannel = "key-{id}"\nallowed = [{names}]\n'


PLANT = "\n".join(
    (
        entry("voice-03", "voice", "ST04", ALL),
        entry("ocr-01", "ocr", "ST04", EVERYTHING),
        entry("scan-01", "scanner", "ST04", EVERYTHING),
        entry("agv-07", "agv", "HALL", ("MOVE_LOT", "CALL_MAINT", "LINE_STOP")),
    )
)


def plant(folder: Path) -> Path:
    path = folder / "sources.toml"
    path.write_text(PLANT, encoding="utf-8")
    return path


def letters(texts: Sequence[str]) -> Vectors:
    """An encoder that knows only which letters follow one another: hashed pairs, unit vectors [N, 256]."""
    found = np.zeros((len(texts), 256), np.float32)
    for row, text in zip(found, texts, strict=True):
        padded = f" {text.lower()} "
        for first, second in itertools.pairwise(padded):
            row[zlib.crc32((first + second).encode()) % 256] += 1
        row /= max(float(np.linalg.norm(row)), 1e-6)
    return found


def normaliser(folder: Path) -> Normaliser:
    intents = load_intents()
    return Normaliser(intents, load_sources(plant(folder), intents), ContextBook(), letters, load_calibration())


def raw(text: str, src: str = "ocr-01", **fields: object) -> RawInstruction:
    given: dict[str, object] = {"id": "i1", "src_id": src, "channel": f"key-{src}", "at_s": 1000.0, "arrived_s": 1000.0}
    return RawInstruction(text=text, **(given | fields))  # type: ignore[arg-type]


def payload(id: str = "p1", intent: str | None = "REWORK", verdict: str = "send", **fields: object) -> BridgePayload:
    given: dict[str, object] = {
        "text": "返工", "ambiguity_score": 0.1, "audit_required": False, "wrong": 0.01, "margin": 0.8,
        "candidates": (Candidate("REWORK", 0.9), Candidate("SCRAP", 0.1)),
        "context": Context("ST04", 1000.0, "L2417"), "entities": {"lot": "L2417"}, "src_id": "ocr-01",
    }  # fmt: skip
    return BridgePayload(id=id, resolved_intent=intent, verdict=verdict, **(given | fields))  # type: ignore[arg-type]
