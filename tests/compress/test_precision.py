from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.compress.bits import Limits  # noqa: E402
from foveola.compress.example import predicted  # noqa: E402
from foveola.compress.gptq import gptq  # noqa: E402
from foveola.compress.interplay import measure_interplay  # noqa: E402
from foveola.compress.latency import LatencyTable  # noqa: E402
from foveola.compress.precision import (  # noqa: E402
    PRESETS,
    answers_of,
    choose,
    measured_times,
    options_of,
    packing,
    round_in_place,
    row_bytes,
    ties_of,
)
from foveola.compress.recipe import recipe_of  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.compress.sensitivity import Sensitivity, measure  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.loading import load  # noqa: E402
from tests.checkpoints import random_checkpoint, random_model  # noqa: E402
from tests.compress.samples import example  # noqa: E402

_FORMATS = (Format(2, 64), Format(4, 32), Format(8, 32))


def _known(outer: int, inner: int) -> Sensitivity:
    return Sensitivity(torch.eye(inner), torch.ones(outer))


def test_rows_lie_on_boundaries_or_the_format_is_left_out() -> None:
    assert row_bytes(96, Format(2, 32)) == 24
    found = options_of(torch.randn(4, 96), _known(4, 96), [Format(2, 32), Format(2, 64), Format(4, 32)])
    assert [option.storage for option in found] == ["int2/64@4", "int4/32@4"]
    with pytest.raises(Invalid, match="rows of 96 weights end on 128-bit boundaries in none of int2/32@4; allow a"):
        options_of(torch.randn(4, 96), _known(4, 96), [Format(2, 32)])


def test_more_bits_cost_less_and_weigh_more() -> None:
    found = options_of(torch.randn(16, 128), _known(16, 128), _FORMATS)
    assert found[0].cost > found[1].cost > found[2].cost
    assert found[0].bytes < found[1].bytes < found[2].bytes


def test_two_bits_are_tried_where_there_is_a_trial() -> None:
    weight, known = torch.randn(16, 128), _known(16, 128)
    predicted, tried = options_of(weight, known, _FORMATS), options_of(weight, known, _FORMATS, trial=lambda w: 7.0)
    assert [one.cost for one in tried] == [7.0 if one.bits == 2 else one.cost for one in predicted]
    assert any(one.bits == 2 for one in tried)


def test_gptq_costs_less_than_the_nearest_where_inputs_correlate() -> None:
    torch.manual_seed(0)
    x = torch.randn(500, 8) @ torch.randn(8, 64) + 0.1 * torch.randn(500, 64)
    known = Sensitivity(x.T @ x / 500, torch.ones(16))
    weight = torch.randn(16, 64)
    costs = [
        known.cost(weight, packing(rounding)(weight, known.gram, Format(4, 32)).dequantised())
        for rounding in ("nearest", "gptq")
    ]
    assert costs[1] < 0.7 * costs[0]


def test_two_bits_do_not_spend_their_values_on_a_blocks_extremes() -> None:
    torch.manual_seed(1)
    x = torch.randn(400, 128)
    known = Sensitivity(x.T @ x / 400, torch.ones(32))
    weight, form = torch.randn(32, 128), Format(2, 64)
    clipped, plain = (made(weight, known.gram, form).dequantised() for made in (packing("gptq"), gptq))
    assert known.cost(weight, clipped) < 0.8 * known.cost(weight, plain)


def test_the_choice_beats_uniform_bits_on_the_answers() -> None:
    model = random_model()
    config = model.config.to_dict()
    examples = [example(model, seed) for seed in range(4)]
    paths = [p for p, m in model.named_modules() if isinstance(m, torch.nn.Linear) and p.endswith("_proj")]
    known = measure(model, paths, answers_of(model, examples))
    whole = [predicted(model, one)[0].log_softmax(-1) for one in examples]

    def divergence(storage: dict[str, str]) -> float:
        other = random_model()
        forms = {str(form): form for form in _FORMATS}
        pack = packing("nearest")
        packed = {p: pack(other.get_submodule(p).weight, known[p].gram, forms[s]) for p, s in storage.items()}
        round_in_place(other, packed)
        return sum(
            float((a.exp() * (a - predicted(other, one)[0].log_softmax(-1))).sum())
            for a, one in zip(whole, examples, strict=True)
        )

    found, options = choose(model, known, _FORMATS, Limits(bits=4.0), ties=ties_of(family_of(config), paths))
    assert found.bits <= 4.0
    assert set(options) == set(paths)
    chosen = divergence(dict(found.storage))
    assert chosen <= divergence(dict.fromkeys(paths, "int4/32@4")) * 1.05
    for block in range(2):
        at = f"model.language_model.layers.{block}.self_attn."
        assert len({found.storage[f"{at}{name}_proj"] for name in "qkv"}) == 1


def test_costs_are_the_mean_of_what_is_predicted_and_what_directions_tell() -> None:
    model = random_model()
    samples = answers_of(model, [example(model, seed) for seed in range(2)])
    paths = [f"model.language_model.layers.0.mlp.{part}_proj" for part in ("up", "down")]
    known = measure(model, paths, samples)
    forms = (Format(2, 64), Format(8, 32))
    _, predicted = choose(model, known, forms, Limits(bits=4.0))
    _, met = choose(model, known, forms, Limits(bits=4.0), meeting=samples)
    errors = {
        (path, str(form)): packing("nearest")(weight, known[path].gram, form).dequantised() - weight
        for path in paths
        for form in forms
        for weight in [model.get_submodule(path).weight]
    }
    alone = measure_interplay(model, errors, samples).alone()
    for path in paths:
        for one, other in zip(predicted[path], met[path], strict=True):
            assert other.cost == pytest.approx((one.cost * alone[path, one.storage]) ** 0.5, rel=1e-2)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_presets_say_weights_and_activations() -> None:
    assert PRESETS["int4+fp16"] == ("int4/32", "fp16")
    assert PRESETS["int8+fp32"] == ("int8/32", "fp32")


def test_times_are_measured_once_and_kept(tmp_path: Path) -> None:
    table = LatencyTable()
    times = measured_times(table, 8)
    first = times(64, 32, Format(4, 32))
    assert first == times(64, 32, Format(4, 32))
    assert min(first) > 0
    table.write(tmp_path / "table.json")
    assert LatencyTable.read(tmp_path / "table.json").microseconds == table.microseconds
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(Invalid, match="other.json is no latency table; measure one"):
        LatencyTable.read(tmp_path / "other.json")


def test_a_recipe_packs_what_was_chosen_and_records_why(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "source")
    samples = tmp_path / "samples.jsonl"
    lines = [{"text": "Which defect is on this part? a scratch at the top"}, {"prompt": "Where?", "answer": "a pit"}]
    samples.write_text("\n".join(json.dumps(line) for line in lines))
    dma = {"room_bytes": 16384, "bytes_per_us": 1000.0, "macs_per_us": 1e5, "rows": 16}
    document = {
        "calibration": {"samples": "samples.jsonl"},
        "step": [
            {
                "use": "precision",
                "patterns": ["*layers*_proj"],
                "dma": dma,
                "bits": 4.0,
                "storages": ["int2/64", "int8/32"],
            }
        ],
    }
    made = compress(source, recipe_of(document, tmp_path), tmp_path / "out")
    record = json.loads((made.path / "precision.json").read_text())
    assert record["bits"] <= 4.0
    assert len(record["layers"]) == 14
    assert [block["block"] for block in record["blocks"]] == [f"model.language_model.layers.{n}" for n in range(2)]
    assert all(0 < block["measured"] <= block["bound"] for block in record["blocks"])
    plan = json.loads((made.path / "prefetch.json").read_text())
    assert plan["modelled"] and {one["layer"] for one in plan["transfers"]} == set(record["layers"])
    assert all(layer["row_bytes"] % 16 == 0 for layer in record["layers"].values())
    assert made.lineage[-1].step == "compress.precision"
    assert made.lineage[-1].after["weight_bytes"] < made.lineage[-1].before["weight_bytes"]
    again = load(Checkpoint.open(made.path), family_of(made.config))
    storage = record["layers"]["model.language_model.layers.0.mlp.up_proj"]["storage"]
    values = again.get_submodule("model.language_model.layers.0.mlp.up_proj").weight[0, :32].unique()
    assert len(values) <= (4 if storage.startswith("int2") else 256)


def test_without_samples_it_says_what_is_missing(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "source")
    with pytest.raises(Invalid, match=r"give the recipe \[calibration\] samples = FILE"):
        compress(source, recipe_of({"step": [{"use": "precision", "bits": 4.0}]}, tmp_path), tmp_path / "out")
