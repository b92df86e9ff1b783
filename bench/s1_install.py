"""A fresh environment: seconds from nothing to the first answer, and megabytes on disk.

`make serve` in small: a new virtual environment, `pip install` of this package for serving only, then one question on
the command line. The package cache is warm: a first installation that is not measured fills it (--cold leaves it out).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.work import generated_items
from foveola.exchange import Unavailable
from foveola.serve.embedded import embedded_bundle

DISK_MB, SECONDS = 400.0, 90.0
MB = 1_000_000
ROOT = Path(__file__).resolve().parent.parent
TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="ask this one instead of the embedded model")
    parser.add_argument("--cold", action="store_true", help="do not fill the package cache first")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    bundle = (arguments.bundle or embedded_bundle()).resolve()
    given = ["--bundle", str(bundle)] if arguments.bundle else []
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "part.png"
        picture.write_bytes(generated_items(1)[0].image)
        if not (arguments.cold or arguments.quick):
            tell("filling the package cache")
            install(Path(folder) / "warm", quick=False)
        tell("installing")
        home = Path(folder) / "venv"
        started = time.perf_counter()
        install(home, quick=arguments.quick)
        installed_s = time.perf_counter() - started
        answer = command([str(home / "bin" / "foveola"), "ask", str(picture), "Pass or fail?", *given]).strip()
        answered_s = time.perf_counter() - started
        on_disk = size_of(home)
        without_torch = subprocess.run([str(home / "bin" / "python"), "-c", TORCH], check=False).returncode == 0
    figures = {
        "install_s": round(installed_s, 2),
        "first_answer_s": round(answered_s, 2),
        "first_answer": answer,
        "disk_mb": round(on_disk / MB, 1),
        "cache": "as it was" if arguments.cold or arguments.quick else "warm",
    }
    bars = (
        Bar("environment on disk, MB", on_disk / MB, DISK_MB, at_most=True),
        Bar("from nothing to the first answer, s", answered_s, SECONDS, at_most=True),
        *([] if arguments.quick else [Bar("no torch in it", float(without_torch), 1.0)]),  # quick runs borrow packages
    )
    return figures, bars


def install(home: Path, *, quick: bool) -> None:
    """A quick run borrows the packages of this interpreter and installs only ours: same path, nothing fetched."""
    shared = ["--system-site-packages"] if quick else []
    command([sys.executable, "-m", "venv", *shared, str(home)])
    pip = [
        str(home / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
        "--no-compile",
    ]
    if quick:
        lib = next((home / "lib").glob("python*")) / "site-packages"
        (lib / "borrowed.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
        command([*pip, "--no-deps", "--no-build-isolation", str(ROOT)])
        return
    command([*pip, str(ROOT)])


def command(words: list[str]) -> str:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Unavailable(f"{Path(words[0]).name} {' '.join(words[1:4])} ended with {done.returncode}: {last}")
    return done.stdout


def size_of(folder: Path) -> int:
    """Bytes on disk, in whole blocks, links not followed, a file with two names counted once."""
    blocks = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        blocks[status.st_ino] = status.st_blocks * 512
    return sum(blocks.values())


SCRIPT = Script("s1", "install", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
