"""What NVIDIA's builders are asked for per device, and which families their published lists name.

Orin and A10G are the devices of the project's own comparison table; more are one entry each.
"""

from __future__ import annotations

from dataclasses import dataclass

TARGETS = ("tensorrt-llm", "tensorrt-edge-llm")


@dataclass(frozen=True, slots=True)
class Device:
    """``memory_gib`` is what weights and cache share; sequence lengths are tokens of prompt and answer together."""

    name: str
    architecture: str
    memory_gib: float
    max_batch: int
    max_input: int
    max_sequence: int
    image_tokens: tuple[int, int]


DEVICES = {
    "orin": Device("Jetson AGX Orin 32 GB", "sm_87", 28.0, 1, 2048, 4096, (8, 2048)),
    "orin-nano": Device("Jetson Orin Nano 8 GB", "sm_87", 6.0, 1, 1024, 2048, (8, 1024)),
    "a10g": Device("A10G", "sm_86", 22.0, 8, 3072, 4096, (8, 4096)),
}

LISTED: dict[str, frozenset[str]] = {
    "tensorrt-llm": frozenset({"llama", "mistral", "llava", "llava_next", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"}),
    "tensorrt-edge-llm": frozenset({"llama", "qwen2_5_vl", "qwen3_vl", "internvl"}),
}
"""Families that the target's documentation lists; others are a note, not a refusal: lists grow."""
