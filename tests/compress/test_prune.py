from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.artifact import Bundle, Checkpoint, write_checkpoint  # noqa: E402
from foveola.compress.cut import Costs, decide  # noqa: E402
from foveola.compress.example import predicted, text_example  # noqa: E402
from foveola.compress.masks import Search, gather_importance, gather_moments, search_gates  # noqa: E402
from foveola.compress.prune import PruneOptions, finding_of, prune_model, write_narrowed  # noqa: E402
from foveola.compress.recipe import recipe_of  # noqa: E402
from foveola.compress.recover import Recovery, recover, teach  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.compress.units import narrow, unit_groups  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.loading import load  # noqa: E402
from foveola.weights.widths import sizes_of  # noqa: E402
from tests.checkpoints import random_checkpoint, random_model  # noqa: E402
from tests.compress.samples import example  # noqa: E402


def _parts() -> tuple[Any, Any, dict[str, Any]]:
    model = random_model()
    config = model.config.to_dict()
    return model, family_of(config), config


def test_a_unit_that_does_nothing_is_worth_nothing() -> None:
    model, family, config = _parts()
    group = unit_groups(model, family, config, ("decoder",))[1]
    model.get_submodule(group.consumer).weight[:, 7] = 0
    importance = gather_importance(model, [group], [example(model, seed) for seed in range(3)])
    for scores in (importance.taylor(), importance.fisher()):
        assert scores[group.name][7] == 0
        assert (scores[group.name] > 0).sum() == group.count - 1


def test_the_fisher_score_foretells_the_loss_better_than_chance() -> None:
    model, family, config = _parts()
    examples = [example(model, seed) for seed in range(6)]
    group = unit_groups(model, family, config, ("decoder",))[1]
    scores = gather_importance(model, [group], examples).fisher()[group.name]
    order = scores.argsort()

    def distance(keep: Any) -> float:
        whole = teach(model, examples)
        small, _, _ = _parts()
        narrow(small, group, keep.sort().values)
        total = 0.0
        for one, target in zip(examples, whole, strict=True):
            logits = predicted(small, one)[0].log_softmax(-1)
            total += float((target.answers.exp() * (target.answers - logits)).sum())
        return total

    assert distance(order[40:]) < distance(order[:-40])


def test_the_search_closes_gates_towards_the_share() -> None:
    model, family, config = _parts()
    groups = unit_groups(model, family, config)
    unit_costs = {group.name: 1.0 for group in groups}
    search = Search(steps=12, share=0.5, form="normalised", rate=0.5)
    gates, losses = search_gates(model, groups, [example(model, 0)], unit_costs, search)
    assert set(gates) == {group.name for group in groups}
    assert losses[-1]["kept"] < losses[0]["kept"]
    assert all(np.isfinite(list(step.values())).all() for step in losses)


def test_uniform_and_dp_keep_whole_tiles_within_the_budget() -> None:
    model, family, config = _parts()
    groups = [g for g in unit_groups(model, family, config) if g.kind == "channels"]
    torch.manual_seed(0)
    scores = {group.name: torch.rand(group.count) for group in groups}
    costs = {group.name: Costs(1.0) for group in groups}
    for allocation in ("uniform", "dp"):
        keep = decide(model, groups, scores, 0.3, 16, costs, allocation)  # type: ignore[arg-type]
        assert all(len(kept) % 16 == 0 for kept in keep.values())
    assert sum(len(kept) for kept in keep.values()) <= 0.7 * sum(group.count for group in groups)
    with pytest.raises(Invalid, match="share is 1; expected 0 to below 1"):
        decide(model, groups, scores, 1.0, 16, costs)


def test_repair_comes_nearer_to_the_whole_model_than_cutting() -> None:
    examples_of = [example(random_model(), seed) for seed in range(8)]
    whole = teach(random_model(), examples_of)
    distances = {}
    for repair in (False, True):
        model, family, config = _parts()
        options = PruneOptions(share=0.3, repair=repair, allocation="uniform", kinds=("channels",))
        prune_model(model, family, config, examples_of, options)
        found = teach(model, examples_of)
        distances[repair] = sum(float((a.states - b.states).square().sum()) for a, b in zip(found, whole, strict=True))
    assert distances[True] < 0.8 * distances[False]


def test_recovery_lowers_the_loss_and_leaves_the_model_frozen() -> None:
    model, family, config = _parts()
    examples = [example(model, seed) for seed in range(4)]
    targets = teach(model, examples)
    prune_model(model, family, config, examples, PruneOptions(share=0.4, score="magnitude", repair=False))
    losses = recover(model, family, examples, targets, Recovery(steps=15, rate=2e-3, hard=0.0, batch=2))
    assert np.mean(losses[-3:]) < 0.8 * losses[0]
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_only_the_projector_learns_where_that_is_asked_for() -> None:
    model, family, _ = _parts()
    examples = [example(model, 0)]
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    recover(model, family, examples, teach(model, examples), Recovery(2, rate=0.1, parameters="projector"))
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed and all(".merger." in name for name in changed)


def test_options_that_do_not_fit_are_told() -> None:
    with pytest.raises(Invalid, match="the chip is 'abacus'"):
        PruneOptions(chip="abacus")
    with pytest.raises(Invalid, match="kinds names 'toes'; expected channels, heads or both"):
        PruneOptions(kinds=("toes",))
    for settings, message in (
        ({"share": float("nan")}, "share is nan; expected a share between 0 and 1"),
        ({"share": 1.0}, "share is 1.0; expected a share between 0 and 1"),
        ({"recover_steps": -1}, "recover_steps is -1; expected 0 or more"),
        ({"ridge": float("inf")}, "ridge is inf; expected a number above 0"),
        ({"a": 1.5}, "a is 1.5; expected a share from 0 to 1"),
        ({"rows": {"tail": 3}}, "rows has tail = 3; expected vision or decoder, at least 1"),
    ):
        with pytest.raises(Invalid, match=message):
            PruneOptions(**settings)


def test_texts_without_a_picture_are_worth_something_to_the_decoder_alone() -> None:
    model, family, config = _parts()
    ids = torch.randint(10, 60, (12,))
    text = text_example(ids)
    alone = gather_importance(model, unit_groups(model, family, config), [text]).fisher()
    halves = {group.name: group.half for group in unit_groups(model, family, config)}
    assert all(bool(score.any()) == (halves[name] == "decoder") for name, score in alone.items())
    both = gather_importance(model, unit_groups(model, family, config), [text, example(model, 0)]).fisher()
    assert all(bool(score.any()) for score in both.values())
    with pytest.raises(Invalid, match="no calibration sample has a picture, and the vision tower is to be pruned"):
        prune_model(model, family, config, [text], PruneOptions())
    prune_model(model, family, config, [text, text], PruneOptions(halves=("decoder",)))


def test_moments_are_those_of_what_the_consumer_reads() -> None:
    model, family, config = _parts()
    groups = unit_groups(model, family, config)
    found = gather_moments(model, groups, [example(model, 0)])
    assert {name: moments.tokens for name, moments in found.items() if "visual" in name} == {
        group.name: 16 for group in groups if group.half == "vision"
    }
    assert found[groups[-1].name].gram.shape == (160, 160)


def test_a_recipe_prunes_and_the_lineage_says_what_is_left(tmp_path: Path) -> None:
    source = random_checkpoint(tmp_path / "source")
    (tmp_path / "samples.jsonl").write_text('{"text": "a scratch at the top left, a pit in the centre"}\n')
    step = {"use": "prune", "share": 0.25, "halves": ["decoder"], "kinds": ["channels"]}
    document = {"calibration": {"samples": "samples.jsonl"}, "step": [step]}
    made = compress(source, recipe_of(document, tmp_path), tmp_path / "out")
    finding = made.lineage[-1]
    kept = finding.options["kept"]
    assert sum(after for _, after in kept.values()) <= 0.75 * sum(before for before, _ in kept.values())
    assert finding.after["channel_utilisation"] == 1
    assert set(made.config["foveola_widths"]) == {
        f"model.language_model.layers.{n}.mlp.{name}_proj"
        for n in range(2)
        for name in ("gate", "up", "down")
        if kept[f"model.language_model.layers.{n}.channels"][1] < 160
    }
    with pytest.raises(Invalid, match=r"give the recipe \[calibration\] samples = FILE"):
        compress(source, recipe_of({"step": [step]}, tmp_path), tmp_path / "other")


def _png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.slow
def test_a_pruned_checkpoint_compiles_and_answers_as_its_own_model(tmp_path: Path) -> None:
    from foveola.engine.engine import Engine
    from foveola.engine.options import EngineOptions
    from foveola.exchange import Request, Sampling, Turn
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions

    source = Checkpoint.open(random_checkpoint(tmp_path / "whole"))
    family = family_of(source.config)
    model = load(source, family)
    usual = sizes_of(model)
    options = PruneOptions(share=0.4, chip="ascend-910b", precision="fp16")
    pruned = prune_model(model, family, source.config, [example(model, seed) for seed in range(2)], options)
    made = write_checkpoint(
        tmp_path / "small",
        name="small",
        files=lambda folder: write_narrowed(source, model, usual, folder),
        lineage=(finding_of(pruned, options, 1.0),),
    )
    assert made.parameters < 0.9 * source.parameters
    again = load(made, family)
    one = example(model, 5)
    with torch.no_grad():
        assert torch.equal(predicted(again, one)[0], predicted(model, one)[0])
    bundle = compile_checkpoint(made.path, tmp_path / "bundle", CompileOptions(image_px=(112, 112), max_length=512))
    assert bundle.lineage[0].step == "compress.prune"
    engine = Engine.open(Bundle.open(bundle.path), EngineOptions(threads=1))
    try:
        request = Request("1", (Turn("user", "what is it", (_png(),)),), Sampling(max_tokens=4))
        pieces = list(engine.pieces(request))
    finally:
        engine.close(0.0)
    assert pieces[-1].usage is not None and pieces[-1].usage.completion_tokens >= 1
