"""Where traces go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Settings: table ``[traces]`` of foveola.toml, ``FOVEOLA_TRACES_*``. Without ``endpoint`` nothing is traced.

    Raises ``ValueError`` that names the field when a value is out of range.
    """

    endpoint: str = ""  # where OTLP over HTTP goes, such as http://collector:4318/v1/traces

    def __post_init__(self) -> None:
        """Check the address."""
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"`endpoint` is {self.endpoint!r}; expected an address that begins with http:// or https://."
            )
