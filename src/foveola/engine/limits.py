"""What a client may ask of the sampler: every field is checked before any work is done.

The engine checks although the HTTP layer parses, since answers are also asked for from the command line, by
the benchmark and by other rooms.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from foveola.exchange import Invalid, Request, Sampling

MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_SEED = 2**64 - 1
MAX_TOP_K = 2**31 - 1
MAX_LOGPROBS = 20
MAX_PRIORITY = 100
MAX_CLIENT_CHARS = 256


def check_request(request: Request, *, max_length: int) -> None:
    """Raise ``Invalid`` naming the field unless what ``request`` asks of the engine is in its range."""
    check_sampling(request.sampling, max_length=max_length)
    _whole("priority", request.priority, -MAX_PRIORITY, MAX_PRIORITY)
    if not isinstance(request.client, str) or len(request.client) > MAX_CLIENT_CHARS:
        raise Invalid(f"client is not a name of at most {MAX_CLIENT_CHARS} characters.", field="client")
    if request.deadline_s is not None:
        _number("deadline_s", request.deadline_s, "a finite number of seconds above 0", lambda x: x > 0)


def check_sampling(sampling: Sampling, *, max_length: int) -> None:
    """Raise ``Invalid`` naming the field unless every value of ``sampling`` is of its type and in its range.

    ``max_length`` is the model's context in tokens; no answer can be longer than that.
    """
    _whole("max_tokens", sampling.max_tokens, 1, max_length)
    _number("temperature", sampling.temperature, "a finite number of at least 0", lambda x: x >= 0)
    _number("top_p", sampling.top_p, "a number above 0 and at most 1", lambda x: 0 < x <= 1)
    _whole("top_k", sampling.top_k, 0, MAX_TOP_K)
    if sampling.seed is not None:
        _whole("seed", sampling.seed, 0, MAX_SEED)
    if sampling.logprobs is not None:
        _whole("logprobs", sampling.logprobs, 0, MAX_LOGPROBS)
    _stops(sampling.stop)


def _whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise Invalid(f"{name} is {_show(value)}; expected a whole number from {low} to {high}.", field=name)


def _number(name: str, value: object, expected: str, holds: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value) or not holds(value):
        raise Invalid(f"{name} is {_show(value)}; expected {expected}.", field=name)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond the range of a float
        return False


def _stops(stops: object) -> None:
    if not isinstance(stops, tuple) or len(stops) > MAX_STOPS:
        count = len(stops) if isinstance(stops, tuple) else "not a sequence of"
        raise Invalid(f"stop holds {count} strings; expected at most {MAX_STOPS}.", field="stop")
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise Invalid(
                f"stop holds {_show(stop)}; expected strings of 1 to {MAX_STOP_CHARS} characters.", field="stop"
            )


def _show(value: object) -> str:
    """The value as the client sent it, cut to a length that fits in a message."""
    if isinstance(value, int | float | str | None):
        try:
            text = repr(value)
        except ValueError:  # Python refuses to print integers of thousands of digits
            return "a number of thousands of digits"
        return text if len(text) <= 40 else text[:37] + "..."
    return f"a {type(value).__name__}"
