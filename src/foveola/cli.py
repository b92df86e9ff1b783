"""The command ``foveola``: one verb per room, each imported only when it is asked for.

A verb's module has ``add_arguments(parser)`` and ``run(arguments) -> exit code``. What cannot be done is a refusal:
its message on stderr, exit code 2, no traceback.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import foveola
from foveola.exchange import Refusal
from foveola.options import BadSetting

REFUSED, INTERRUPTED = 2, 130


class Verb(NamedTuple):
    """Where a verb lives, what it does, and the door (extra of pyproject.toml) that it needs beyond serving."""

    module: str
    help: str
    door: str | None = None


VERBS = {
    "serve": Verb("foveola.serve.command", "serve a model over HTTP"),
    "key": Verb("foveola.serve.key_command", "make an API key for the server"),
    "patch": Verb("foveola.serve.patch_command", "replace a part of the weights of a server that runs"),
    "confidence": Verb("foveola.serve.confidence_command", "learn when a small model's answer may be trusted"),
    "ask": Verb("foveola.serve.ask", "ask about one picture, here in the terminal"),
    "guard": Verb("foveola.guard.command", "make and try what guards: words, allow-lists, privacy"),
    "seal": Verb("foveola.artifact.sealed_command", "encrypt the files of a bundle", "guard"),
    "rekey": Verb("foveola.artifact.sealed_command", "seal a bundle under another key", "guard"),
    "audit": Verb("foveola.artifact.audit_command", "check that an audit log is still what was written"),
    "stream": Verb("foveola.stream.command", "watch a camera, a video or a folder, and look only at what changed"),
    "observe": Verb("foveola.observe.command", "write dashboards and alert rules for Grafana and Prometheus"),
    "label": Verb("foveola.serve.label_command", "tell a server which of its answers were right: its accuracy"),
    "drift": Verb("foveola.serve.drift_command", "make a reference of how pictures should be, and judge others by it"),
    "memcheck": Verb("foveola.serve.memcheck_command", "run a bundle under everything that watches memory"),
    "inspect": Verb("foveola.artifact.command", "show what a bundle or a checkpoint is and where it comes from"),
    "compress": Verb("foveola.compress.command", "make a checkpoint smaller, by a recipe", "workshop"),
    "doctor": Verb("foveola.lower.doctor", "say whether a checkpoint is supported, and what of it would be used"),
    "compile": Verb("foveola.lower.command", "turn a checkpoint into a bundle", "workshop"),
    "rewrite": Verb("foveola.lower.rewrite.command", "fuse an ONNX graph for a chip, each step proven", "workshop"),
    "plan": Verb("foveola.lower.plan_command", "measure this machine and choose what suits it", "workshop"),
    "trim": Verb("foveola.bench.trim_command", "give a bundle a smaller head for one domain, proven", "workshop"),
    "tiny": Verb("foveola.tiny.command", "train the embedded model", "workshop"),
    "distil": Verb("foveola.loop.command", "learn a line's rare defects, and hand the better model on", "workshop"),
    "federate": Verb("foveola.learn.federate.command", "train a visual prompt over many nodes, simulated"),
    "bridge": Verb("foveola.bridge.command", "understand instructions and hand them to the MES", "bridge"),
    "rollout": Verb("foveola.rollout.command", "roll out over a cluster: operator, GPU parts, Envoy", "rollout"),
    "bench": Verb("foveola.bench.command", "measure a bundle, and rivals, on this machine", "bench"),
}


class Missing(Refusal):
    """A verb needs packages that are not installed."""

    code = "missing_door"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (``sys.argv`` by default) and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that knows no Chinese is no reason to fail
    try:
        asked = next((word for word in given if not word.startswith("-")), "")
        module = _load(VERBS[asked]) if asked in VERBS else None
        arguments = _parser(asked, module).parse_args(given)
        return int(module.run(arguments)) if module is not None else REFUSED
    except (Refusal, BadSetting) as refusal:
        print(f"foveola: {refusal}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its exit
        return 1
    except OSError as error:  # a full disk, a folder that may not be written, a file that went away
        named = f" ({error.filename})" if error.filename else ""
        print(f"foveola: {error.strerror or error}{named}; put that right and run it again.", file=sys.stderr)
        return REFUSED


def _load(verb: Verb) -> ModuleType:
    try:
        return importlib.import_module(verb.module)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name == "foveola" or not name:
            raise
        door = f"pip install 'foveola[{verb.door}]'" if verb.door else "pip install foveola"
        raise Missing(f"The package {name} is not installed, and this verb needs it: {door}.") from None


def _parser(asked: str, module: ModuleType | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="foveola", description="Vision-language models from checkpoint to line.")
    parser.add_argument("--version", action="version", version=f"foveola {foveola.__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, verb in VERBS.items():
        described = verbs.add_parser(name, help=verb.help, description=f"{verb.help[:1].upper()}{verb.help[1:]}.")
        if name == asked and module is not None:
            module.add_arguments(described)
    return parser
