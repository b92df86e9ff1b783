"""A ceiling for the memory of a process that holds an engine, and what tools say about its memory accesses.

Red zones around an engine's buffers are made where the buffers are (``engine/redzones.py``).
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from foveola.exchange import Answer, Busy, Piece, Request
from foveola.guard.verdict import ROUTE, Tell, Verdict, nobody

MIB = 2**20
HARD = 1.25
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """Memory that this process holds, shared pages included; 0 where the system does not tell (not Linux)."""
    try:
        return int(statm.read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


@dataclass(frozen=True, slots=True)
class Ceiling:
    """At ``limit_mib`` newcomers are turned away until memory has gone down; at 1.25 times that the process is ill,
    its readiness fails, and whoever watches restarts it before the system kills it in the middle of an answer."""

    limit_mib: int
    resident: Callable[[], int] = resident_bytes

    @property
    def full(self) -> bool:
        """Whether newcomers have to wait."""
        return self.resident() > self.limit_mib * MIB

    def ailment(self) -> str | None:
        """Why this process should be restarted, in a few words, or None."""
        held = self.resident()
        if held <= self.limit_mib * MIB * HARD:
            return None
        return f"it holds {held // MIB} MiB of memory where {self.limit_mib} are allowed"


def bounded(answer: Answer, ceiling: Ceiling, tell: Tell = nobody) -> Answer:
    """``answer``, which lets nobody in while the ceiling is reached (``Busy``); who is in goes on."""

    async def answering(request: Request) -> AsyncIterator[Piece]:
        if ceiling.full:
            tell(Verdict("memory", "refused", request.id, ROUTE.get(), {"resident_mib": ceiling.resident() // MIB}))
            raise Busy("The engine has reached its memory limit; ask again in a moment.", retry_after_s=2.0)
        async with aclosing(cast("AsyncGenerator[Piece]", answer(request))) as pieces:
            async for piece in pieces:
                yield piece

    return answering


@dataclass(frozen=True, slots=True)
class Fault:
    """One finding of a tool: what was done wrong, and where, as far as the tool knows."""

    kind: str
    where: str


def read_sanitizer(report: str) -> list[Fault]:
    """The findings in the text of NVIDIA's compute-sanitizer (memcheck, racecheck, initcheck).

    Raises ValueError where the text is no finished report: a tool that died has proved nothing.
    """
    faults: list[Fault] = []
    lines = [line.removeprefix("=========").strip() for line in report.splitlines() if line.startswith("=========")]
    finished = False
    for number, line in enumerate(lines):
        if line.startswith(("Invalid ", "Program hit ", "Uninitialized ", "Error: ", "Race reported", "Leaked ")):
            after = lines[number + 1] if number + 1 < len(lines) else ""
            faults.append(Fault(line, after.removeprefix("at ").strip() if after.startswith("at ") else ""))
        if line.startswith("ERROR SUMMARY:"):
            finished = True
            counted = int(line.split()[2])
            faults += [Fault("an error that is counted and not described", "")] * max(0, counted - len(faults))
    if not finished:
        raise ValueError("the report has no ERROR SUMMARY")
    return faults


def read_valgrind(report: bytes) -> list[Fault]:
    """The findings in the XML of valgrind's memcheck: the kind, and the innermost function that has a name.

    Raises ValueError where it is no finished report.
    """
    try:
        root = ElementTree.fromstring(report)
    except ElementTree.ParseError:
        raise ValueError("the report is cut off or no XML") from None
    if root.tag != "valgrindoutput" or not any(one.findtext("state") == "FINISHED" for one in root.iter("status")):
        raise ValueError("valgrind did not finish")
    faults = []
    for error in root.iter("error"):
        names = [name for frame in error.iter("frame") if (name := frame.findtext("fn"))]
        faults.append(Fault(error.findtext("kind") or "error", names[0] if names else ""))
    return faults
