"""Write docs/support.md, families x targets x precisions, from the code and the tests themselves.

python bench/support.py            writes it
python bench/support.py --check    changes nothing; exit code 1 where it has drifted
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from foveola.engine.providers import PROVIDERS
from foveola.family import family_of, supported
from foveola.lower.trtllm_devices import DEVICES, LISTED

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "support.md"
TESTED, SAME, EMITTED, NONE = "tested", "as its sibling", "emitted", "–"
_SIBLING = {"mistral": "llama"}
"""Records that are another's under a second name, and are not tried on their own."""
_PRECISIONS = ("fp32", "fp16", "int8", "int4")


def tried(root: Path) -> set[str]:
    """Families that ``tests/family/making.py`` makes checkpoints of, and the one of ``tests/checkpoints.py``."""
    tree = ast.parse((root / "tests/family/making.py").read_text(encoding="utf-8"))
    made = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return (made & set(supported())) | {"qwen2_vl"}


def page(root: Path) -> str:
    """The whole page."""
    return "\n".join([*_families(tried(root)), *_providers(), *_builders(), ""])


def _families(tested: set[str]) -> Iterator[str]:
    yield "# What is supported, and how far it was tried"
    yield ""
    yield "Written by `python bench/support.py`; a test fails when it has drifted. `foveola doctor DIR` says the"
    yield "same of one checkpoint."
    yield ""
    yield "- **tested**: a random checkpoint made by the family's own classes goes all the way to an answer in the"
    yield "  tests: graphs within 1e-4 of the model on pictures of mixed sizes, text equal to the reference's over 64"
    yield "  tokens."
    yield "- **emitted**: written and checked as far as this machine goes; never run on that chip."
    yield ""
    yield "## Families on ONNX Runtime's processor (profile `ort`)"
    yield ""
    yield f"| family | read as | geometry | {' | '.join(_PRECISIONS)} |"
    yield f"|---|---|---|{'---|' * len(_PRECISIONS)}"
    for name in supported():
        family = family_of({"model_type": name})
        mark = TESTED if name in tested else f"{SAME} {_SIBLING[name]}" if name in _SIBLING else EMITTED
        cells = " | ".join(mark if precision == "int4" else _other(name, precision, mark) for precision in _PRECISIONS)
        geometry = family.geometry if family.sees else "text only"
        yield f"| `{name}` | {family.native or family.model_class} | {geometry} | {cells} |"
    yield ""
    yield "The full line is run in int4: decoder in 4 bits, head, embedding and tower in 8;"
    yield "fp32, fp16 and int8 alone are run on Qwen2-VL. Experts stay in fp32."


def _other(name: str, precision: str, mark: str) -> str:
    return TESTED if name == "qwen2_vl" else "same code" if mark != EMITTED else EMITTED


def _providers() -> Iterator[str]:
    yield ""
    yield "## Execution providers"
    yield ""
    yield "| provider | profile | state |"
    yield "|---|---|---|"
    for name in PROVIDERS:
        if name == "cpu":
            yield "| `cpu` | `ort` | tested |"
            yield "| `cpu` | `portable` | tested: operator by operator, and whole graphs against the model |"
        elif name == "openvino":
            yield (
                f"| `{name}` | `portable` | {TESTED} on a processor (`bench/k1_portable.py`): OpenVINO itself reads "
                "whole graphs, and the engine answers on ONNX Runtime's OpenVINO provider as on its own; not with "
                "experts |"
            )
        else:
            yield f"| `{name}` | `portable` | {EMITTED}: chosen by the same code, refused by name where not installed |"


def _builders() -> Iterator[str]:
    yield ""
    yield "## NVIDIA's builders (`foveola compile --target …`)"
    yield ""
    yield f"Devices: {', '.join(f'`{name}` ({device.name})' for name, device in DEVICES.items())}."
    yield "Names, types, sizes, settings and packed bytes are those that nvidia-modelopt writes of the same model"
    yield "(`bench/k2_layouts.py`); no engine was built here."
    yield ""
    yield f"| family | {' | '.join(LISTED)} |"
    yield f"|---|{'---|' * len(LISTED)}"
    for name in supported():
        experts = "moe" in name
        cells = [
            NONE if experts else EMITTED if name in listed else f"{EMITTED}; look it up in NVIDIA's list"
            for listed in LISTED.values()
        ]
        yield f"| `{name}` | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, tell whether it has drifted")
    arguments = parser.parse_args(argv)
    wanted = page(ROOT)
    if arguments.check:
        same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == wanted
        if not same:
            print("docs/support.md is not what the code says; run python bench/support.py")
        return 0 if same else 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
