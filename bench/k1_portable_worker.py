"""Runs graphs by OpenVINO, in an environment of its own: FOLDER ROLE=FILE …, inputs and outputs as FOLDER/ROLE.npz."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import openvino as ov

folder = Path(sys.argv[1])
core = ov.Core()
for entry in sys.argv[2:]:
    role, _, file = entry.partition("=")
    feeds = dict(np.load(folder / f"{role}.npz"))
    compiled = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(feeds)
    np.savez(folder / f"{role}.out.npz", **{next(iter(output.names)): found[output] for output in compiled.outputs})
print(json.dumps(ov.__version__))
