"""The far end of ``remote``: one contender in a process of its own, told what to do in JSON lines.

Commands come on standard input, replies go to what was standard output; whatever libraries print goes to standard
error, so that it can't be taken for a reply.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TextIO

from foveola.bench.contender import CannotTakePart, Setup
from foveola.bench.machine import peak_memory
from foveola.bench.sample import Block, Item
from foveola.exchange import Refusal

# kind -> module and class, and the door that it needs; imported only in the process that runs it.
KINDS = {
    "engine": ("foveola.bench.local", "LocalEngine", None),
    "transformers": ("foveola.bench.rival", "Transformers", "workshop"),
}


class Runs(Protocol):
    """The part of a contender that lives here."""

    def run(self, items: list[Item], concurrency: int) -> Block:
        """Answer items."""

    def close(self) -> None:
        """Free everything."""


def open_kind(kind: str, setup: Setup) -> Runs:
    """Build the contender ``kind``. Raises ``CannotTakePart`` where its packages are not installed."""
    module, name, door = KINDS[kind]
    try:
        built: Callable[[Setup], Runs] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if door is None or (error.name or "").startswith("foveola"):
            raise
        package = (error.name or "").partition(".")[0]
        raise CannotTakePart(f"the package {package} is not installed; pip install 'foveola[{door}]'") from None
    return built(setup)


def main() -> int:
    """Serve one contender until standard input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    contender: Runs | None = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "open" in command:
                told = command["open"]
                setup = Setup(Path(told["source"]), told["threads"], told["max_tokens"])
                contender = open_kind(told["kind"], setup)
                _reply(replies, {"opened": True})
            elif "run" in command and contender is not None:
                items = [Item.from_json(item) for item in command["run"]["items"]]
                _reply(replies, {"block": contender.run(items, command["run"]["concurrency"]).to_json()})
            else:
                _reply(replies, {"peak_memory": peak_memory()})
        except Refusal as refusal:
            _reply(replies, {"refused": {"code": refusal.code, "message": refusal.message}})
    if contender is not None:
        contender.close()
    return 0


def _reply(out: TextIO, document: dict[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False), file=out, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
