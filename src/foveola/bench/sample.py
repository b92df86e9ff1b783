"""What is asked and what is measured: plain data that also travels between processes as JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

STAGES = ("decode_image", "preprocess", "vision", "prefill", "decode")


@dataclass(frozen=True, slots=True)
class Item:
    """A picture as a client sends it, encoded, and a question about it."""

    name: str
    image: bytes
    text: str

    def to_json(self) -> dict[str, str]:
        """With the picture in base64."""
        return {"name": self.name, "image": base64.b64encode(self.image).decode(), "text": self.text}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> Item:
        """The inverse of ``to_json``."""
        return cls(data["name"], base64.b64decode(data["image"]), data["text"])


@dataclass(frozen=True, slots=True)
class Sample:
    """One answered request, from bytes in to text out.

    ``latency_s``: until the whole answer was there. ``first_s``: until its first piece was. ``tokens`` counts the
    one that ends the answer; ``decode_s`` is the time from the first token to the last. ``stages_s`` has the keys of
    ``STAGES``; what they leave of the latency is waiting and transport.
    """

    text: str
    latency_s: float
    first_s: float
    tokens: int
    stages_s: Mapping[str, float]

    @property
    def decode_s(self) -> float:
        """Seconds from the first token to the last."""
        return self.stages_s["decode"]

    @property
    def other_s(self) -> float:
        """Seconds in none of the stages."""
        return max(0.0, self.latency_s - sum(self.stages_s.values()))


@dataclass(frozen=True, slots=True)
class Block:
    """Some requests in a row, or at once, by one contender; ``samples`` are in the order of the items."""

    samples: tuple[Sample, ...]
    wall_s: float

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"samples": [asdict(sample) for sample in self.samples], "wall_s": self.wall_s}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Block:
        """The inverse of ``to_json``."""
        return cls(tuple(Sample(**sample) for sample in data["samples"]), data["wall_s"])
