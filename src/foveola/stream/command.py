"""``foveola stream SOURCE QUESTION``: watch a folder, a video or a camera; a line per frame, a summary at the end."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from foveola.exchange import Invalid
from foveola.options import BadSetting, resolve
from foveola.stream.options import WINDOWS, StreamOptions
from foveola.stream.watching import Seen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments; ``[stream]`` of foveola.toml and FOVEOLA_STREAM_* set what is not given."""
    parser.add_argument("source", metavar="SOURCE", help="a folder of pictures, a video file, or rtsp://…")
    parser.add_argument("question", help="what to ask about every frame")
    parser.add_argument("--bundle", metavar="DIR", type=Path, required=True, help="the bundle to ask")
    parser.add_argument("--imu", metavar="FILE", type=Path, help="CSV with the columns t, wx, wy, wz (seconds, rad/s)")
    parser.add_argument("--fov", metavar="DEG", type=float, default=60.0, help="horizontal field of view (default: 60)")
    parser.add_argument("--fps", metavar="N", type=float, help="frames per second of a folder (default: 10)")
    parser.add_argument("--window", choices=WINDOWS, help="rule of the window (default: derived)")
    parser.add_argument(
        "--epsilon", metavar="N", type=float, help="grey levels by which a block may differ (default: 3)"
    )
    parser.add_argument("--partial", action="store_true", default=None, help="compute changed parts alone")
    parser.add_argument("--no-reuse", action="store_false", dest="reuse", default=None, help="compute every frame")
    parser.add_argument("--max-tokens", metavar="N", type=int, default=32, help="of an answer (default: 32)")
    parser.add_argument("--frames", metavar="N", type=int, help="stop after so many frames")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings file (default: foveola.toml, if any)")
    parser.add_argument("--json", action="store_true", help="print JSON lines, the summary last")


def run(arguments: argparse.Namespace) -> int:
    """Watch and return 0. Raises refusals: no such source, a bundle that is damaged, readings that are none."""
    names = ("fps", "window", "epsilon", "partial", "reuse")
    flags = {name: getattr(arguments, name) for name in names}
    options = resolve(StreamOptions, "stream", file=arguments.config, environ=os.environ, flags=flags)
    if not 0 < arguments.fov < 180:
        raise BadSetting(f"--fov is {arguments.fov:g}; expected an angle above 0 and below 180 degrees.")
    if arguments.frames is not None and arguments.frames < 1:
        raise BadSetting(f"--frames is {arguments.frames}; expected at least 1.")

    from foveola.artifact import Bundle
    from foveola.stream.motion import STILL, Camera, Gyroscope
    from foveola.stream.sources import open_source
    from foveola.stream.watching import Watcher

    gyroscope = STILL if arguments.imu is None else Gyroscope.read(arguments.imu)
    frames = open_source(arguments.source, options.fps)
    with Console(stderr=True).status("Loading the model…"):
        watcher = Watcher(Bundle.open(arguments.bundle))
    seen: list[Seen] = []
    try:
        eye = None
        for frame in frames:
            if eye is None:
                camera = None
                if arguments.imu is not None:
                    camera = Camera.of_angle(arguments.fov, *frame.picture.original)
                eye = watcher.eye(options, camera=camera, gyroscope=gyroscope)
            seen.append(watcher.see(frame, eye, arguments.question, max_tokens=arguments.max_tokens))
            print(json.dumps(asdict(seen[-1]), ensure_ascii=False) if arguments.json else line(seen[-1]), flush=True)
            if arguments.frames is not None and len(seen) >= arguments.frames:
                break
    finally:
        watcher.close()
    if not seen:
        raise Invalid("The source gave no frame; look at it with a player.", field="source")
    told = summary(seen)
    print(json.dumps({"summary": told}) if arguments.json else _words(told))
    return 0


def line(seen: Seen) -> str:
    """One frame in the terminal."""
    how = "same answer" if seen.answer_reused else seen.mode
    audit = "" if seen.error is None else f" audit {seen.error:.4f}"
    spent = 1000 * (seen.look_s + seen.ask_s)
    return f"{seen.index:6d} {seen.time_s:8.2f}s {how:11s} {spent:7.1f} ms  ω {seen.omega:.2f}{audit}  {seen.text}"


def summary(seen: list[Seen]) -> dict[str, Any]:
    """Frames per second of work, how often what was reused, and what the audits found."""
    spent = sum(one.look_s + one.ask_s for one in seen)
    errors = [one.error for one in seen if one.error is not None]
    return {
        "frames": len(seen),
        "frames_per_s": round(len(seen) / spent, 2) if spent else None,
        "modes": dict(Counter(one.mode for one in seen)),
        "answers_reused": sum(one.answer_reused for one in seen),
        "cells_reused": round(sum(one.reused for one in seen) / sum(one.cells for one in seen), 4),
        "audits": len(errors),
        "audit_error": round(sum(errors) / len(errors), 6) if errors else None,
    }


def _words(told: dict[str, Any]) -> str:
    modes = ", ".join(f"{count} {mode}" for mode, count in told["modes"].items())
    audit = "no audits" if told["audit_error"] is None else f"{told['audits']} audits, error {told['audit_error']:.5f}"
    return (
        f"{told['frames']} frames, {told['frames_per_s']} per second of work; {modes}; "
        f"{told['answers_reused']} answers reused; {audit}."
    )
