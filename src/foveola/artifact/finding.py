"""One line of lineage: what a step changed, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Figure = float | int | str
_FIELDS = ("step", "changed", "before", "after", "measured", "seconds", "options")


@dataclass(frozen=True, slots=True)
class Finding:
    """Evidence that a step of ``compress`` or a pass of ``lower`` leaves behind.

    ``step`` names the technique, ``changed`` says in words what it did. ``before`` and ``after`` hold the same
    figures on both sides (bytes, error, counts; the unit is part of the key, as in ``size_bytes``).
    ``measured`` is False when the figures come from a model of the hardware. ``options`` is the resolved
    configuration of the step, as JSON data.
    """

    step: str
    changed: str
    before: Mapping[str, Figure] = field(default_factory=dict)
    after: Mapping[str, Figure] = field(default_factory=dict)
    measured: bool = True
    seconds: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """This finding as plain JSON data; the inverse of ``from_json``."""
        return {
            "step": self.step,
            "changed": self.changed,
            "before": dict(self.before),
            "after": dict(self.after),
            "measured": self.measured,
            "seconds": self.seconds,
            "options": dict(self.options),
        }

    @classmethod
    def from_json(cls, data: object) -> Finding:
        """The finding that ``data`` describes. Raises ValueError naming the field that is missing or wrong."""
        if not isinstance(data, dict):
            raise ValueError(f"a finding is a JSON object, not {_kind(data)}")
        strange = sorted(set(data) ^ set(_FIELDS))
        if strange:
            raise ValueError(f"a finding has the fields {', '.join(_FIELDS)}; missing or unknown: {', '.join(strange)}")
        for name in ("step", "changed"):
            if not isinstance(data[name], str):
                raise ValueError(f"the field {name} of a finding is text, not {_kind(data[name])}")
        if not isinstance(data["measured"], bool):
            raise ValueError(f"the field measured of a finding is true or false, not {_kind(data['measured'])}")
        if not _is_number(data["seconds"]) or data["seconds"] < 0:
            raise ValueError("the field seconds of a finding is a number of at least 0")
        if not isinstance(data["options"], dict):
            raise ValueError(f"the field options of a finding is an object, not {_kind(data['options'])}")
        return cls(
            step=data["step"],
            changed=data["changed"],
            before=_figures(data["before"], "before"),
            after=_figures(data["after"], "after"),
            measured=data["measured"],
            seconds=float(data["seconds"]),
            options=data["options"],
        )


def _figures(data: object, name: str) -> dict[str, Figure]:
    if not isinstance(data, dict):
        raise ValueError(f"the field {name} of a finding is an object, not {_kind(data)}")
    for key, value in data.items():
        if not isinstance(value, str) and not _is_number(value):
            raise ValueError(f"the figure {key} in {name} of a finding is a number or text, not {_kind(value)}")
    return data


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
