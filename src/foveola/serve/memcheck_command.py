"""``foveola memcheck BUNDLE``: run a bundle under all that watches memory here, and say what could not be watched.

The gate before a release: exit code 1 when any tool found something, 0 when none did.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from foveola.exchange import Refusal
from foveola.guard.memory import Fault, read_sanitizer, read_valgrind

FOUND = 1
SIZES = ((28, 28), (640, 480), (97, 211), (1600, 900))
TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Checked:
    """What one tool did: ``runs`` and ``faults``, or ``not_checked`` saying why it could not."""

    tool: str
    runs: int = 0
    faults: tuple[Fault, ...] = ()
    not_checked: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.add_argument("bundle", metavar="DIR", type=Path, help="the bundle that is to be released")
    parser.add_argument("--valgrind", action="store_true", help="also run it under valgrind on the CPU (many minutes)")
    parser.add_argument("--json", action="store_true", help="print what each tool found, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Run every tool and print what it found."""
    checks: list[Callable[[], Checked]] = [lambda: red_zones(arguments.bundle), lambda: sanitizer(arguments.bundle)]
    if arguments.valgrind:
        checks.append(lambda: valgrind(question(arguments.bundle)))
    else:
        checks.append(lambda: Checked("valgrind", not_checked="not asked for; add --valgrind"))
    results = []
    for check in checks:
        results.append(check())
        if not arguments.json:
            print(_line(results[-1]), flush=True)
    if arguments.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
    return FOUND if any(result.faults for result in results) else 0


def _line(result: Checked) -> str:
    if result.not_checked is not None:
        return f"{result.tool}: not checked: {result.not_checked}"
    found = "".join(f"\n  {fault.kind}  {fault.where}" for fault in result.faults)
    return f"{result.tool}: {len(result.faults)} findings in {result.runs} runs{found}"


def red_zones(bundle: Path) -> Checked:
    """Answer pictures of many shapes with red zones of 4 KiB around every bound buffer, looked at after every run."""
    from foveola.engine.engine import Engine
    from foveola.engine.options import EngineOptions
    from foveola.engine.redzones import MemoryOverrun
    from foveola.exchange import Damaged, Request, Sampling, Turn, Unavailable

    try:
        engine = Engine.open(bundle, replace(EngineOptions(), red_zone_bytes=4096, red_zone_every=1))
    except Damaged as error:  # before an engine is ready it runs every graph once
        if not isinstance(error.__cause__, MemoryOverrun):
            raise
        return Checked("red zones", 1, (Fault(str(error.__cause__), "in the first run of its graphs"),))
    runs = 0
    try:
        for number, size in enumerate(SIZES):
            turn = Turn("user", "What is shown here? " * (1 + 7 * number), (_picture(size),))
            for _ in engine.pieces(Request(str(number), (turn,), Sampling(max_tokens=8 + number))):
                runs += 1
    except Unavailable:
        why = engine.health().why
        if why is None:
            raise
        return Checked("red zones", runs, (Fault(why, "see the log for the buffer"),))
    finally:
        engine.close(0.0)
    return Checked("red zones", runs)


def _picture(size: tuple[int, int]) -> bytes:
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).save(file, "PNG")
    return file.getvalue()


def question(bundle: Path) -> list[str]:
    """A command that asks the bundle one small question without a picture's file: the picture comes on its input."""
    return [sys.executable, "-m", "foveola", "ask", "-", "What is this?", "--max-tokens", "2", "--bundle", str(bundle)]


def sanitizer(bundle: Path) -> Checked:
    """Under NVIDIA's compute-sanitizer, where there is a GPU, the tool, and a runtime that uses the GPU."""
    import onnxruntime

    tool = shutil.which("compute-sanitizer")
    lacking = [
        what
        for what, there in (
            ("an NVIDIA GPU", _answers(["nvidia-smi", "-L"])),
            ("compute-sanitizer (CUDA toolkit)", tool is not None),
            ("onnxruntime-gpu", "CUDAExecutionProvider" in onnxruntime.get_available_providers()),
        )
        if not there
    ]
    if lacking or tool is None:
        return Checked("compute-sanitizer", not_checked=f"this machine lacks {', '.join(lacking)}")
    done = _run([tool, "--tool", "memcheck", "--leak-check", "no", *question(bundle)])
    try:
        return Checked("compute-sanitizer", 1, tuple(read_sanitizer(done.stdout.decode(errors="replace"))))
    except ValueError as error:
        return Checked("compute-sanitizer", not_checked=f"it ended with code {done.returncode} and {error}")


def valgrind(command: Sequence[str]) -> Checked:
    """``command`` under valgrind's memcheck, Python's own allocator out of the way."""
    tool = shutil.which("valgrind")
    if tool is None:
        return Checked("valgrind", not_checked="it is not installed")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = _run(
            [tool, "--xml=yes", f"--xml-file={report}", "--undef-value-errors=no", *command], PYTHONMALLOC="malloc"
        )
        try:
            return Checked("valgrind", 1, tuple(read_valgrind(report.read_bytes())))
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else "no report"
            return Checked("valgrind", not_checked=f"it ended with code {done.returncode} and {reason}")


def _run(command: Sequence[str], **environ: str) -> subprocess.CompletedProcess[bytes]:
    import os

    try:
        return subprocess.run(
            command,
            input=_picture((56, 56)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, **environ},
        )
    except subprocess.TimeoutExpired:
        raise Refusal(f"{Path(command[0]).name} did not end within {TIMEOUT_S:g} s; try a smaller bundle.") from None


def _answers(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
