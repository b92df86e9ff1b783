"""Decode the files named on standard input under a limit on memory; print one JSON line for each.

Run as a process of its own: ``python decoding_child.py MEGABYTES``. MEGABYTES bounds the address space beyond what the
interpreter and its libraries take. A file that hangs kills the process by an alarm, a generous one.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import warnings
from pathlib import Path

import numpy as np

from foveola.exchange import Refusal
from foveola.intake.image import decode

HANG_S = 120


def pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])


def look(path: str) -> dict[str, object]:
    signal.alarm(HANG_S)
    data = Path(path).read_bytes()
    try:
        picture = decode(data)
    except Refusal as refusal:
        return {"path": path, "refused": type(refusal).__name__, "status": refusal.status, "message": refusal.message}
    rgb = picture.rgb
    sane = rgb.dtype == np.uint8 and rgb.shape == (picture.original[1], picture.original[0], 3) and rgb.size > 0
    return {"path": path, "format": picture.format, "shape": rgb.shape, "sane": bool(sane)}


def main() -> None:
    warnings.simplefilter("error")
    room = int(sys.argv[1]) * 2**20
    bound = pages() * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    for line in sys.stdin:
        print(json.dumps(look(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
