"""The described rule, as an indicator: cosine of neighbouring maps, their sliding mean, and two counters.

It is shown because people know it. It does not tell drift from its absence (unrelated smooth maps agree to more than
0.82 in most cases), so nothing is decided on it: see ``monitor``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from foveola.drift.observation import Floats, cosine

Level = Literal["ok", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The described figures: the mean of the last ``window`` cosines is compared with ``slo``; ``warning`` undercut
    ``warnings`` times in a row is a warning, ``critical`` undercut ``criticals`` times in a row is critical."""

    window: int = 5
    slo: float = 0.82
    warning: float = 0.80
    warnings: int = 5
    critical: float = 0.75
    criticals: int = 3


class DescribedRule:
    """Feed it the maps of one camera in order."""

    def __init__(self, options: RuleOptions | None = None) -> None:
        self._options = options or RuleOptions()
        self._before: Floats | None = None
        self._cosines: deque[float] = deque(maxlen=self._options.window)
        self._below_warning = self._below_critical = 0

    @property
    def mean(self) -> float | None:
        """The sliding mean; None before two maps came."""
        return sum(self._cosines) / len(self._cosines) if self._cosines else None

    @property
    def holds(self) -> bool:
        """Whether the sliding mean meets the SLO (or is not known yet)."""
        return self.mean is None or self.mean >= self._options.slo

    def update(self, heat_map: Floats) -> Level:
        """The rule's level after one more map."""
        if self._before is not None:
            self._cosines.append(cosine(self._before, heat_map))
        self._before = heat_map
        mean, options = self.mean, self._options
        if mean is None:
            return "ok"
        self._below_warning = self._below_warning + 1 if mean < options.warning else 0
        self._below_critical = self._below_critical + 1 if mean < options.critical else 0
        if self._below_critical >= options.criticals:
            return "critical"
        return "warning" if self._below_warning >= options.warnings else "ok"
