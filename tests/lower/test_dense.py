from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from foveola.lower.dense import Dense, Parallel, fold_patch_kernel, layer  # noqa: E402
from foveola.lower.nbits import QLinear  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.packed import pack  # noqa: E402

pytestmark = pytest.mark.torch
QKV = [f"model.language_model.layers.0.self_attn.{name}_proj" for name in "qkv"]
PATCH = "model.visual.patch_embed.proj"


def by_the_model(model: Any, x: Any) -> Any:
    return torch.cat([model.get_submodule(path)(x) for path in QKV], dim=-1)


def test_layers_over_the_same_input_become_one(model: Any) -> None:
    x = torch.randn(2, 3, 64)
    made = layer(model, QKV, {})
    assert isinstance(made, Dense)
    assert torch.allclose(made(x), by_the_model(model, x), atol=1e-5)


def test_packed_layers_of_one_format_become_one(model: Any) -> None:
    packed = {path: pack(model.get_submodule(path).weight, Format(4)) for path in QKV}
    made = layer(model, QKV, packed)
    assert isinstance(made, QLinear)
    for path in QKV:
        model.get_submodule(path).weight.copy_(packed[path].dequantised())
    x = torch.randn(2, 3, 64)
    assert torch.allclose(made(x), by_the_model(model, x), atol=1e-5)


def test_layers_of_different_formats_stay_apart(model: Any) -> None:
    packed = {QKV[0]: pack(model.get_submodule(QKV[0]).weight, Format(4))}
    made = layer(model, QKV, packed)
    assert isinstance(made, Parallel)
    assert [type(one) for one in made.layers] == [QLinear, Dense, Dense]
    model.get_submodule(QKV[0]).weight.copy_(packed[QKV[0]].dequantised())
    x = torch.randn(2, 3, 64)
    assert torch.allclose(made(x), by_the_model(model, x), atol=1e-5)


def test_a_layer_that_is_widened_at_load_knows_what_is_stored(model: Any) -> None:
    packed = pack(model.get_submodule(QKV[0]).weight, Format(8, expand=True))
    made = layer(model, QKV[:1], {QKV[0]: packed})
    assert isinstance(made, Dense)
    assert made.packed is not None
    assert torch.equal(made.weight, packed.dequantised().t())


def test_equal_frames_of_a_still_picture_fold_into_one(model: Any) -> None:
    pixels = torch.randn(5, 3, 14, 14)
    twice = pixels[:, :, None].expand(-1, -1, 2, -1, -1).reshape(5, -1)
    wanted = model.model.visual.patch_embed(twice)
    assert torch.allclose(pixels.flatten(1) @ fold_patch_kernel(model.get_submodule(PATCH)).t(), wanted, atol=1e-5)
    assert torch.allclose(layer(model, [PATCH], {})(pixels.flatten(1)), wanted, atol=1e-5)
