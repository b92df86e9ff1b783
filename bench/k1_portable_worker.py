"""Runs graphs elsewhere, in an environment of its own: inputs and outputs as FOLDER/ROLE.npz, what is told as JSON.

``openvino FOLDER ROLE=FILE …`` by OpenVINO itself; ``provider FOLDER BUNDLE TOKENS PATH …`` by Foveola's own engine
with ONNX Runtime's OpenVINO provider. PATHs are where Foveola and its packages are; this environment's own go first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(how: str, folder: Path, *rest: str) -> dict[str, Any]:
    return {"openvino": by_openvino, "provider": by_provider}[how](folder, *rest)


def by_openvino(folder: Path, *entries: str) -> dict[str, Any]:
    import openvino as ov

    core = ov.Core()
    for entry in entries:
        role, _, file = entry.partition("=")
        feeds = dict(np.load(folder / f"{role}.npz"))
        compiled = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        found = compiled(feeds)
        np.savez(folder / f"{role}.out.npz", **{next(iter(output.names)): found[output] for output in compiled.outputs})
    return {"version": ov.__version__}


def by_provider(folder: Path, place: str, tokens: str, *paths: str) -> dict[str, Any]:
    sys.path += paths
    import onnxruntime as ort
    from bench.k1_portable import answer

    from foveola.artifact import Bundle
    from foveola.engine.options import EngineOptions
    from foveola.engine.sessions import open_session

    bundle, used = Bundle.open(place), set()
    for role, file in bundle.model["graphs"].items():
        session = open_session(bundle, file, EngineOptions(threads=1, provider="openvino"))
        names = [output.name for output in session.get_outputs()]
        feeds = dict(np.load(folder / f"{role}.npz"))
        np.savez(folder / f"{role}.out.npz", **dict(zip(names, session.run(names, feeds), strict=True)))
        used.add(session.get_providers()[0])
    text = answer(bundle, int(tokens), "openvino")
    return {"version": ort.__version__, "providers": sorted(used), "text": text}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])))
