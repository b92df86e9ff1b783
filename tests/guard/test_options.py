from __future__ import annotations

from pathlib import Path

import pytest

from foveola.guard.options import WORD_ACTIONS, GuardOptions, routes_of
from foveola.options import BadSetting, resolve


def test_nothing_is_guarded_by_default() -> None:
    assert not GuardOptions().active
    assert GuardOptions(words=Path("a.words")).active


def test_routes_differ() -> None:
    assert routes_of("words_routes", "/v1/a=off, /v1/b = stop,", WORD_ACTIONS) == {"/v1/a": "off", "/v1/b": "stop"}
    assert GuardOptions(allowlist_routes="/v1/a=audit", allowlist_file=Path("a")).allowlisting


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"FOVEOLA_GUARD_WORDS_ACTION": "beep"}, "`words_action` is 'beep'; expected one of off, mask, drop, stop"),
        ({"FOVEOLA_GUARD_WORDS_ROUTES": "a=off"}, "expected /path=setting"),
        ({"FOVEOLA_GUARD_ALLOWLIST": "enforce"}, "`allowlist` needs digests"),
        ({"FOVEOLA_GUARD_ALLOWLIST_LIVE": "a.db"}, "go together"),
    ],
)
def test_a_setting_that_cannot_hold_names_its_source(settings: dict[str, str], told: str) -> None:
    with pytest.raises(BadSetting, match=told):
        resolve(GuardOptions, "guard", environ=settings)
