"""What importing costs: the edge never loads the workshop, the command line loads nothing before it must."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import foveola

WORKSHOP = {"torch", "transformers", "onnx", "onnxscript", "onnx_ir", "matplotlib", "scipy", "safetensors"}
EDGE = ("engine", "guard", "observe", "drift", "bridge", "stream", "serve")


def loaded_after(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after ``statement``."""
    code = (
        f"{statement}\nimport sys, json\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def modules_of(*rooms: str) -> list[str]:
    """Every module of these rooms that exist."""
    root = Path(foveola.__file__).parent
    folders = [root / room for room in rooms if (root / room / "__init__.py").is_file()]
    return [
        f"foveola.{folder.name}{'.' + module.name if module else ''}"
        for folder in folders
        for module in [None, *pkgutil.walk_packages([str(folder)])]
    ]


def test_no_module_of_the_edge_loads_the_workshop() -> None:
    names = modules_of(*EDGE)
    assert "foveola.serve.app" in names
    assert "foveola.engine.engine" in names
    loaded = loaded_after("\n".join(f"import {name}" for name in names))
    assert not loaded & WORKSHOP
    assert "numpy" in loaded


def test_importing_the_server_loads_neither_the_workshop_nor_the_runtime() -> None:
    loaded = loaded_after("import foveola.serve.app, foveola.serve.run, foveola.serve.command, foveola.serve.load")
    assert not loaded & (WORKSHOP | {"onnxruntime"})


@pytest.mark.parametrize("statement", ["import foveola", "import foveola.cli", "import foveola.serve"])
def test_the_front_doors_are_light(statement: str) -> None:
    assert not loaded_after(statement) & (WORKSHOP | {"numpy", "onnxruntime", "fastapi", "pydantic", "rich", "PIL"})


def test_artefacts_are_read_without_the_workshop() -> None:
    loaded = loaded_after("\n".join(f"import {name}" for name in modules_of("artifact", "intake")))
    assert not loaded & WORKSHOP
