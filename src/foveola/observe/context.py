"""W3C trace context: what came with a request, and what goes on to whoever is asked because of it.

Spans are made when a request has ended, but services below must name theirs as its children while it runs. So a
request's span has an identifier that follows from the trace and the request, known before the span exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

_PARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A ``traceparent``: trace, span, and flags (1: sampled), as numbers."""

    trace: int
    span: int
    flags: int

    @classmethod
    def of(cls, traceparent: str) -> TraceContext | None:
        """What a ``traceparent`` says; None for one that is none."""
        found = _PARENT.fullmatch(traceparent)
        if found is None:
            return None
        trace, span, flags = (int(part, 16) for part in found.groups())
        return cls(trace, span, flags) if trace and span else None

    def __str__(self) -> str:
        """As the header has it."""
        return f"00-{self.trace:032x}-{self.span:016x}-{self.flags:02x}"


def own_context(traceparent: str, request_id: str) -> TraceContext:
    """The context of a request's own span: in the client's trace, or in one of its own where there is none."""
    parent = TraceContext.of(traceparent)
    digest = blake2b(f"{traceparent} {request_id}".encode(), digest_size=24).digest()
    trace = int.from_bytes(digest[:16]) if parent is None else parent.trace
    flags = 1 if parent is None else parent.flags
    return TraceContext(trace or 1, int.from_bytes(digest[16:]) or 1, flags)
