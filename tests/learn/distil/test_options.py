from __future__ import annotations

import pytest

from foveola.exchange import Invalid
from foveola.learn.distil.options import PRESETS, DistilOptions, preset


def test_the_described_preset_is_the_described_mixture() -> None:
    options = preset("described")
    assert options.alpha == 0.7
    assert options.class_power == 1.0
    assert (options.tau, options.anchor, options.memory) == (0.0, 0.0, "seen")


def test_every_preset_resolves_and_keeps_what_it_is_given() -> None:
    for name in PRESETS:
        options = preset(name, fresh=3, seed=7)
        assert (options.preset, options.fresh, options.seed) == (name, 3, 7)
        assert DistilOptions(**options.to_json()) == options


def test_only_ours_and_replay_look_back() -> None:
    assert {name for name in PRESETS if preset(name).keeps_old} == {"balanced", "replay"}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("alpha", 1.5, "alpha is 1.5; expected a share from 0 to 1, such as 0.7."),
        ("fresh", 0, "fresh is 0; expected at least 1."),
        ("tau", -1.0, "tau is -1.0; expected at least 0."),
        ("temperature", 0.0, "temperature is 0.0; expected more than 0."),
        ("paste", 2.0, "paste is 2.0; expected a share from 0 to 1."),
    ],
)
def test_figures_that_make_no_sense_are_refused(field: str, value: float, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        preset("balanced", **{field: value})
    assert refused.value.message == message


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(Invalid, match="preset is 'magic'; expected one of balanced, described"):
        DistilOptions(preset="magic")
