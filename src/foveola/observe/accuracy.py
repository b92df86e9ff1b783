"""How often answers are right, from those that somebody or something labelled."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict

from foveola.exchange import Refusal
from foveola.observe.records import Record

KEPT_ANSWERS = 4096
WINDOW = 500


class UnknownAnswer(Refusal):
    """A label for an answer that is not, or no longer, known (404)."""

    code = "unknown_answer"
    status = 404


class Accuracy:
    """A watch that remembers the last ``KEPT_ANSWERS`` answers, and takes labels for them by the request's id.

    The rate is over the last ``WINDOW`` labelled answers; ``samples`` says how many there are, so that nobody raises an
    alarm about three of them. An answer that is labelled twice counts once, as it was labelled last.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._labelled: OrderedDict[str, bool] = OrderedDict()

    def __call__(self, record: Record) -> None:
        """Remember an answer."""
        if record.outcome == "answered":
            self._answers[record.id] = record.text
            while len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)

    def label(self, id_: str, *, right: bool | None = None, expected: str | None = None) -> bool:
        """Whether the answer ``id_`` was right: as said, or by comparing it with ``expected``, without regard to case,
        width and surrounding space.

        Raises:
            UnknownAnswer: no such answer is remembered.
        """
        if id_ not in self._answers:
            raise UnknownAnswer(
                f"There is no answer with this id among the last {KEPT_ANSWERS}; send the `id` of a reply, and soon."
            )
        found = right if right is not None else _plain(self._answers[id_]) == _plain(expected or "")
        self._labelled.pop(id_, None)
        self._labelled[id_] = found
        while len(self._labelled) > WINDOW:
            self._labelled.popitem(last=False)
        return found

    @property
    def rate(self) -> float:
        """0..1, NaN without labels."""
        return sum(self._labelled.values()) / len(self._labelled) if self._labelled else float("nan")

    @property
    def samples(self) -> int:
        """How many labelled answers the rate is of."""
        return len(self._labelled)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().casefold()
