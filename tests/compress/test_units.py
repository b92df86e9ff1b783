from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.compress.units import UnitGroup, gated, narrow, unit_groups  # noqa: E402
from foveola.exchange import Damaged, Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.widths import fitted_class, set_heads, sizes_of, widths_of  # noqa: E402
from tests.checkpoints import random_model  # noqa: E402
from tests.compress.samples import picture_and_text  # noqa: E402

CONFIG = {"model_type": "qwen2_vl"}


def _named(groups: tuple[UnitGroup, ...], end: str) -> UnitGroup:
    return next(group for group in groups if group.name.endswith(end))


def test_units_of_a_model_with_their_sizes() -> None:
    model = random_model()
    config = model.config.to_dict()
    groups = unit_groups(model, family_of(config), config)
    sizes = {group.name: (group.half, group.count, group.width) for group in groups}
    assert sizes["model.visual.blocks.0.heads"] == ("vision", 2, 32)
    assert sizes["model.visual.blocks.1.channels"] == ("vision", 128, 1)
    assert sizes["model.language_model.layers.0.heads"] == ("decoder", 1, 64)
    assert sizes["model.language_model.layers.1.channels"] == ("decoder", 160, 1)
    assert len(groups) == 8
    with pytest.raises(Invalid, match="halves names 'ears'; expected vision, decoder or both"):
        unit_groups(model, family_of(config), config, ("ears",))


@pytest.mark.parametrize("end", ["visual.blocks.1.heads", "visual.blocks.0.channels", "layers.1.channels"])
def test_taking_units_out_is_the_same_as_closing_their_gates(end: str) -> None:
    model = random_model()
    config = model.config.to_dict()
    family = family_of(config)
    groups = unit_groups(model, family, config)
    group = _named(groups, end)
    keep = torch.arange(0, group.count, 2)
    gate = torch.zeros(group.count)
    gate[keep] = 1
    inputs = picture_and_text(model)
    with torch.no_grad():
        with gated(model, [group], {group.name: gate}):
            closed = model(**inputs).logits
        narrow(model, group, keep)
        set_heads(model, family, config)
        out = model(**inputs).logits
    assert torch.allclose(closed, out, atol=1e-4)


def test_a_head_that_is_no_whole_tile_is_kept_with_its_neighbour() -> None:
    group = UnitGroup("x", "vision", "heads", {}, "y", torch.arange(6 * 24).view(6, 24))
    assert group.units_per_tile(16) == 2
    assert group.units_per_tile(8) == 1
    assert group.unit_of_column().tolist()[23:25] == [0, 1]


def test_a_narrowed_model_is_built_again_from_its_config(tmp_path: Path) -> None:
    model = random_model()
    config = model.config.to_dict()
    family = family_of(config)
    usual = sizes_of(model)
    for group in unit_groups(model, family, config):
        if group.kind == "channels" or group.half == "vision":
            narrow(model, group, torch.arange(max(1, group.count // 2)))
    set_heads(model, family, config)
    widths = widths_of(model, usual, config)
    assert widths["model.visual.blocks.0.mlp.fc2"] == [64, 64]
    again = fitted_class(type(model), config | {"foveola_widths": widths})(model.config)
    again.load_state_dict(model.state_dict())
    inputs = picture_and_text(model)
    with torch.no_grad():
        assert torch.equal(again.eval()(**inputs).logits, model(**inputs).logits)
    assert fitted_class(type(model), config) is type(model)


@pytest.mark.parametrize("widths", [7, {"a": 3}, {"a": [0, 1]}, {"a": [1, 2, 3]}, {"a": [True, 1]}, {"a": [1, 2**40]}])
def test_malformed_widths_are_refused(widths: object) -> None:
    model = random_model(layers=1)
    with pytest.raises(Damaged, match=r"config.json: foveola_widths gives \[outputs, inputs\]"):
        fitted_class(type(model), {**CONFIG, "foveola_widths": widths})


def test_widths_of_a_layer_that_is_not_there_are_refused() -> None:
    model = random_model(layers=1)
    config = model.config.to_dict() | {"foveola_widths": {"model.nothing": [1, 1]}}
    with pytest.raises(Damaged, match="foveola_widths for 'model.nothing', where this model has no linear layer"):
        fitted_class(type(model), config)(model.config)
