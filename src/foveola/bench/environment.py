"""The environment of child processes: the same number of threads for everybody, and nothing fetched."""

from __future__ import annotations

import os

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def child_environment(threads: int) -> dict[str, str]:
    """This process's environment with ``threads`` for every library that reads one, and the hub switched off."""
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}
    shared = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**os.environ, **dict.fromkeys(_THREADS, str(threads)), **quiet, **shared}
