from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.compress.certificate import propagate  # noqa: E402
from foveola.compress.chain import block_paths, links, measured, record  # noqa: E402
from foveola.family import family_of  # noqa: E402
from tests.checkpoints import random_model  # noqa: E402
from tests.compress.samples import example  # noqa: E402


def test_blocks_in_the_order_of_an_input() -> None:
    model = random_model()
    family = family_of(model.config.to_dict())
    paths = block_paths(model, family)
    assert [path.removeprefix("model.") for path in paths] == [
        "visual.blocks.0", "visual.blocks.1", "visual.merger", "language_model.layers.0", "language_model.layers.1"
    ]  # fmt: skip
    recorded = record(model, family, example(model))
    assert [block.path for block in recorded] == paths
    for block in recorded:
        assert torch.allclose(block.function()(block.x), block.y, atol=1e-5)
    # what leaves one block enters the next
    assert torch.equal(recorded[0].y, recorded[1].x)
    assert torch.equal(recorded[2].y, recorded[3].x)


def test_what_is_measured_stays_below_the_certificate_and_near_the_expectation() -> None:
    model = random_model()
    family = family_of(model.config.to_dict())
    one = example(model)
    recorded = record(model, family, one)
    generator = torch.Generator().manual_seed(0)
    rounded = {}
    for block in recorded:
        for name in block.inputs:
            weight = block.module.get_submodule(name).weight
            error = torch.randn(weight.shape, generator=generator)
            rounded[f"{block.path}.{name}"] = weight + error * weight.std() * 1e-3
    chain = propagate(list(links(recorded, rounded, iterations=6)))
    for path, weight in rounded.items():
        model.get_submodule(path).weight.copy_(weight)
    found = measured(recorded, record(model, family, one))
    for error in chain:
        assert found[error.block] <= error.bound
        assert 0.2 < found[error.block] / error.expected < 5
