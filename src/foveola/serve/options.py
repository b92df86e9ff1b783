"""What the server can be told, with units in the names."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
ROLES = ("all", "vision", "language")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Settings of ``foveola serve``: table ``[serve]`` of foveola.toml, ``FOVEOLA_SERVE_*``, flags.

    Raises ``ValueError`` that names the field when a value is out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8080  # 0: any free port, told in the log
    bundle: Path | None = None  # None: the embedded model
    role: str = "all"  # all; vision: only sees, for others; language: has a vision service see
    vision_url: str = ""  # of the vision service, for the role language
    vision_key_file: Path | None = None  # a file with the key that opens it
    draft: Path | None = None  # a bundle with the same tokens that guesses ahead for the other (docs/engine.md)
    prompts_dir: Path | None = None  # visual prompts, a directory each, that requests and keys may name
    visual_prompt: str = ""  # the one for pictures where neither the request nor its key names one
    prometheus: str = ""  # address of the Prometheus that scrapes all versions: the console shows their shares
    region: str = ""  # the label `region` of all metrics: a line, a hall, a plant
    keys_file: Path | None = None  # who may ask (docs/serving.md); None: everybody, and nobody is an admin
    requests_per_minute: int = 0  # from one address without a key; 0: no limit
    max_image_bytes: int = 20 * MIB  # of one encoded picture
    max_prompt_bytes: int = 256 * KIB  # of the prompt, as JSON
    max_patch_bytes: int = 4096 * MIB  # of new weights, sent by an admin
    max_requests: int = 64  # being read, queued or answered at once; one more is told 429
    max_held_bytes: int = 256 * MIB  # of all bodies being read or answered; above it new ones are told 429
    read_timeout_s: float = 30.0  # from the headers to the end of the body
    answer_timeout_s: float = 120.0  # from the end of the body to the end of the answer
    stall_s: float = 60.0  # not ready when an answer is due and the engine has been silent for so long
    drain_s: float = 30.0  # after SIGTERM running requests may take so long

    def __post_init__(self) -> None:
        """Check every range."""
        if not self.host.strip():
            raise ValueError("`host` is empty; expected a name or an address to listen on.")
        if self.role not in ROLES:
            raise ValueError(f"`role` is {self.role!r}; expected {', '.join(ROLES)}.")
        if (self.role == "language") != bool(self.vision_url):
            raise ValueError("`vision_url` belongs to the role language, and is needed there; set both or none.")
        if self.visual_prompt and self.prompts_dir is None:
            raise ValueError("`visual_prompt` names a prompt in `prompts_dir`; set that too.")
        if self.prometheus and not self.prometheus.startswith(("http://", "https://")):
            raise ValueError(
                f"`prometheus` is {self.prometheus!r}; expected an address that begins with http:// or https://."
            )
        if not 0 <= self.port <= 65535:
            raise ValueError(f"`port` is {self.port}; expected 0 to 65535.")
        if self.requests_per_minute < 0:
            raise ValueError(f"`requests_per_minute` is {self.requests_per_minute}; expected at least 0.")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and value < 1:
                raise ValueError(f"`{field.name}` is {value}; expected at least 1.")
            if field.name.endswith("_s") and not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{field.name}` is {value}; expected a number of seconds above 0.")

        if self.max_held_bytes < self.max_body_bytes:
            raise ValueError(
                f"`max_held_bytes` is {self.max_held_bytes}; expected at least {self.max_body_bytes}, one whole body."
            )

    @property
    def max_body_bytes(self) -> int:
        """Bytes of a whole request body: a picture in base64 (4/3, line breaks included) and its prompt."""
        return self.max_image_bytes * 3 // 2 + self.max_prompt_bytes + 16 * KIB
