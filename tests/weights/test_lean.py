from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.exchange import Damaged  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.held import hold_packed  # noqa: E402
from foveola.weights.lean import lean_model, make_dense  # noqa: E402
from foveola.weights.loading import load  # noqa: E402
from foveola.weights.packed import ROWS, pack, pack_rows  # noqa: E402
from tests.checkpoints import random_checkpoint  # noqa: E402
from tests.family.making import checkpoint  # noqa: E402

pytestmark = pytest.mark.torch


def made(folder: Path, name: str) -> Path:
    return random_checkpoint(folder / "checkpoint") if name == "qwen2_vl" else checkpoint(folder / "checkpoint", name)


def tensors(model: Any) -> dict[str, Any]:
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


# A tied head; buffers of a model within; shards under other names; a head of its own although config.json ties;
# experts, of which several tensors make one parameter.
@pytest.mark.parametrize("name", ["qwen2_vl", "llava", "phi3_v", "internvl", "qwen3_vl_moe"])
def test_it_is_the_model_that_transformers_loads(tmp_path: Path, name: str) -> None:
    opened = Checkpoint.open(made(tmp_path, name))
    family = family_of(opened.config)
    whole = load(opened, family)
    model, read = lean_model(opened, family)
    make_dense(model, read)
    ours, theirs = tensors(model), tensors(whole)
    assert ours.keys() == theirs.keys()
    assert [name for name in theirs if not torch.equal(ours[name], theirs[name])] == []
    ends = [f"{path}.weight" for path in (family.parts.head, family.parts.embedding)]
    assert (ours[ends[0]] is ours[ends[1]]) == (theirs[ends[0]] is theirs[ends[1]])


def test_nothing_is_in_memory_before_it_is_asked_for(tmp_path: Path) -> None:
    opened = Checkpoint.open(made(tmp_path, "qwen2_vl"))
    family = family_of(opened.config)
    model, read = lean_model(opened, family)
    assert all(parameter.is_meta for parameter in model.parameters())
    make_dense(model, read, but=[family.parts.embedding])
    assert [n for n, parameter in model.named_parameters() if parameter.is_meta] == [f"{family.parts.embedding}.weight"]


@pytest.mark.parametrize(("change", "says"), [("drop", "lacks 1 tensors that config.json asks for, model.visual"),
                                              ("widen", "tensors of other sizes than config.json says")])  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_is_read(tmp_path: Path, change: str, says: str) -> None:
    from safetensors.torch import load_file, save_file

    folder = made(tmp_path, "qwen2_vl")
    if change == "drop":
        held = load_file(folder / "model.safetensors")
        del held[next(name for name in held if "visual.merger" in name)]
        save_file(held, folder / "model.safetensors", {"format": "pt"})
    else:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config["text_config"]["intermediate_size"] *= 2
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    opened = Checkpoint.open(folder)
    with pytest.raises(Damaged, match=says):
        lean_model(opened, family_of(opened.config))


def test_layers_that_hold_packed_weights_still_compute() -> None:
    random = torch.Generator().manual_seed(0)
    linear, table = torch.nn.Linear(64, 48), torch.nn.Embedding(48, 64)
    kernel = torch.nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4), bias=False)
    for module, rows, inner in ((linear, 48, 64), (table, 48, 64), (kernel, 8, 48)):
        packed = pack(torch.randn(rows, inner, generator=random), Format(4))
        shape = tuple(module.weight.shape)
        hold_packed(module, packed)
        assert "weight" not in dict(module.named_parameters())
        assert isinstance(module.weight, torch.nn.Parameter)
        assert tuple(module.weight.shape) == shape
        assert module.get_parameter("weight").shape == shape
        if not isinstance(module, torch.nn.Conv3d):
            assert torch.equal(module.weight, packed.dequantised())
    x = torch.randn(5, 64, generator=random)
    assert torch.equal(linear(x), torch.nn.functional.linear(x, linear.weight, linear.bias))
    assert torch.equal(table(torch.tensor([3])), table.weight[3:4])
    assert kernel(torch.randn(1, 3, 2, 4, 4, generator=random)).shape == (1, 8, 1, 1, 1)
    assert isinstance(linear, torch.nn.Linear)


def test_many_rows_are_packed_and_unpacked_in_parts() -> None:
    weight = torch.randn(2 * ROWS + 5, 33, generator=torch.Generator().manual_seed(1))
    whole, parts = pack(weight, Format(4)), pack_rows(weight, Format(4))
    assert torch.equal(whole.values, parts.values)
    assert torch.equal(whole.zeros, parts.zeros)
    assert parts.dequantised().shape == weight.shape
    assert torch.equal(parts.dequantised()[-3:], pack(weight[-3:], Format(4)).dequantised())
