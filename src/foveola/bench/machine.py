"""The machine that figures belong to, told so that they can be compared, without telling who owns it."""

from __future__ import annotations

import os
import platform
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from foveola.engine.options import usable_cores

MIB = 1024 * 1024
BUSY = 0.2  # of all cores' time: more is told to whoever reads the figures
_PACKAGES = ("onnxruntime", "numpy", "pillow", "tokenizers", "torch", "transformers")
_VECTORS = ("avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx", "asimddp", "sve", "asimd", "neon")


def describe_machine() -> dict[str, Any]:
    """Processor, cores that may be used, memory, system, and ``busy``: the share (0..1) of all cores' time that others
    take, watched for half a second. To be called before one is the load oneself."""
    return {
        "cpu": cpu_model(),
        "vector": next((name for name in _VECTORS if name in _cpu_words()), ""),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MIB / 1024, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "busy": round(busy_share(), 2),
    }


def describe_versions() -> dict[str, str]:
    """Python, this package, and what computes for it and for its rivals; what is not installed is left out."""
    import foveola

    found = {"python": platform.python_version(), "foveola": foveola.__version__}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def busy_share(watch_s: float = 0.5) -> float:
    """The share of all cores' time in which they work, 0..1, watched for ``watch_s`` seconds."""
    before = _cpu_times()
    time.sleep(watch_s)
    after = _cpu_times()
    if before is None or after is None:  # not Linux
        import psutil

        return float(psutil.cpu_percent(interval=watch_s)) / 100
    idle, total = (now - then for now, then in zip(after, before, strict=True))
    return 1 - idle / total if total else 0.0


def busy_note(machine: Mapping[str, Any]) -> list[str]:
    """A line where others computed on this machine when the run began; times are theirs too then."""
    if machine["busy"] < BUSY:
        return []
    return [
        f"The machine was busy when this began (others took {machine['busy']:.0%} of its cores): the times are longer "
        "than they had to be, and even ratios shift, since libraries that spin while they wait suffer most."
    ]


def _cpu_times() -> tuple[int, int] | None:
    """Idle and all ticks of all cores since the start. See proc(5): user nice system idle iowait irq softirq steal."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    ticks = [int(word) for word in words[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def cpu_model() -> str:
    """The processor's name, as the system tells it."""
    for line in _cpu_lines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return []


def _cpu_words() -> frozenset[str]:
    lines = [line for line in _cpu_lines() if line.partition(":")[0].strip() in ("flags", "Features")]
    return frozenset(lines[0].split()) if lines else frozenset()


def platform_line(machine: dict[str, Any]) -> str:
    """The machine in a few words, for the table's first column."""
    vector = f", {machine['vector']}" if machine["vector"] else ""
    return f"{machine['cpu']}, {machine['cores']} cores{vector}"


def command_line(argv: Sequence[str], root: Path) -> str:
    """The command as it can be repeated elsewhere: paths below ``root`` relative to it, others by their last part."""
    program = _short(argv[0], root) if _below(argv[0], root) else Path(argv[0]).name
    words = [program, *(_short(word, root) for word in argv[1:])]
    return shlex.join(["python", *words] if program.endswith(".py") else words)


def _below(word: str, root: Path) -> bool:
    return Path(word).resolve().is_relative_to(root.resolve())


def _short(word: str, root: Path) -> str:
    return "=".join(_short_value(value, root) for value in word.split("="))


def _short_value(value: str, root: Path) -> str:
    path = Path(value)
    if path.is_absolute() or ".." in path.parts or (path.exists() and os.sep in value):
        return str(path.resolve().relative_to(root.resolve())) if _below(value, root) else f"…/{path.resolve().name}"
    return value


def peak_memory(pid: int | None = None) -> int:
    """Bytes of memory that a process (this one by default) has ever held at once, shared pages included.

    Where the system does not keep the high-water mark of others (it does on Linux), what it holds now.
    """
    held = _status(pid, "VmHWM")
    return held if held is not None else _held_now(pid)


def held_memory(pid: int | None = None) -> int:
    """Bytes of memory that a process (this one by default) holds now (resident set size)."""
    held = _status(pid, "VmRSS")
    return held if held is not None else _held_now(pid)


def _status(pid: int | None, field: str) -> int | None:
    try:
        text = Path(f"/proc/{pid or os.getpid()}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return None


def _held_now(pid: int | None) -> int:
    import psutil

    return int(psutil.Process(pid).memory_info().rss)


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, on the first ``cores`` cores that it may use."""
    if not hasattr(os, "sched_setaffinity"):  # macOS knows no such thing: the thread counts alone must do
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def read_bandwidth(threads: int, mib: int = 512, rounds: int = 5) -> float:
    """Bytes per second that ``threads`` threads read together, each from its own memory: the best of a few rounds."""
    arrays = [np.ones(mib * 1024 * 1024 // 8 // threads, np.float64) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(rounds):
            started = time.perf_counter()
            list(pool.map(np.add.reduce, arrays))
            best = max(best, sum(array.nbytes for array in arrays) / (time.perf_counter() - started))
    return best
