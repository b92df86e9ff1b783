"""Loading the embedded model from a sealed bundle (SM4-GCM) against the plain one: from the folder to a ready engine.

Both are loaded in turn, each time anew; the figure is the ratio of the median times.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.artifact.sealed import open_sealed, seal_bundle
from foveola.artifact.sealed_key import SealKey, SealOptions
from foveola.bench.evidence import Bar, Script, Tell
from foveola.engine.engine import Engine
from foveola.serve.embedded import embedded_bundle

RATIO = 1.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", default=15)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    key = SealKey(bytes(range(16)))
    rounds = 2 if arguments.quick else arguments.rounds
    plain_s: list[float] = []
    sealed_s: list[float] = []
    decrypt_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        plain = Bundle.open(embedded_bundle())
        sealed = seal_bundle(plain, Path(folder) / "sealed", key).path
        for number in range(rounds + 1):
            for path, times in ((plain.path, plain_s), (sealed, sealed_s)):
                began = time.perf_counter()
                bundle = Bundle.open(path) if times is plain_s else open_sealed(path, SealOptions(), key)
                engine = Engine.open(bundle)
                times.append(time.perf_counter() - began)
                engine.close(0.0)
            began = time.perf_counter()
            for name in plain.files:
                bundle.read(name)
            decrypt_s.append(time.perf_counter() - began)
            tell(f"round {number}: plain {plain_s[-1]:.3f} s, sealed {sealed_s[-1]:.3f} s")
    plain_median, sealed_median = statistics.median(plain_s[1:]), statistics.median(sealed_s[1:])  # the first warms up
    size = sum(digest.bytes for digest in plain.files.values())
    figures = {
        "bytes": size,
        "rounds": rounds,
        "plain_s": round(plain_median, 4),
        "sealed_s": round(sealed_median, 4),
        "decrypt_s": round(statistics.median(decrypt_s[1:]), 4),
        "decrypt_mb_s": round(size / 1e6 / statistics.median(decrypt_s[1:]), 1),
    }
    return figures, [Bar("sealed load over plain load", sealed_median / plain_median, RATIO, at_most=True)]


SCRIPT = Script("g5", "sealed_load", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).resolve().parent))
