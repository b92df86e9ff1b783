"""A short run learns, resumes to the same place, and becomes a checkpoint that transformers loads."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason="the workshop is not installed")

from foveola.exchange import Damaged  # noqa: E402
from foveola.tiny import labels, real  # noqa: E402
from foveola.tiny.batches import IGNORE  # noqa: E402
from foveola.tiny.checkpoint import export_checkpoint  # noqa: E402
from foveola.tiny.command import run  # noqa: E402
from foveola.tiny.lessons import Plan, rate_at  # noqa: E402
from foveola.tiny.model import Shape  # noqa: E402
from foveola.tiny.train import answer_loss, gaze_loss, star_mask, told_loss, train  # noqa: E402

SMALL = Shape(vision_width=32, vision_depth=1, vision_heads=2, width=64, inner=64, depth=1, heads=2, kv_heads=1)
QUICK = Plan(steps=4, looking=2, mute=3, decay=1, real=1, scene=1, label=1, page=1, save_every=2, threads=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures in the layout of the real data: every source, a few of each."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    rows = {"defects": [], "ocr": []}

    def picture(part: str, source: str, label: str, name: str, note: dict, size=(64, 64)) -> None:
        folder = root / part / source
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, size, dtype=np.uint8)).save(folder / name)
        rows[part].append(
            {
                "path": f"{source}/{name}",
                "set": source,
                "label": label,
                "annotation": json.dumps(note),
                "sha256": f"{source}{label}{name}",
            }
        )

    for c in real.NEU:
        for i in range(4):
            picture("defects", "neu_det", c, f"{c}_{i}.png", {"boxes": [[c, 10, 10, 40, 40]]})
    for m in real.MAGNETIC:
        for i in range(6):
            mask = None if m == "good" else "mask.png"
            picture("defects", "magnetic_tile", m, f"exp_num_{i * 1000}{m}.png", {"mask": mask})
    mask = np.zeros((64, 64), np.uint8)
    mask[20:30, 20:30] = 255
    Image.fromarray(mask).save(root / "defects" / "magnetic_tile" / "mask.png")
    for i in range(6):
        picture(
            "defects",
            "deeppcb",
            "mostly_open",
            f"{i}_test.png",
            {"boxes": [["open", 50, 50, 80, 80]], "template": f"{i}_test.png"},
            (320, 320),
        )
        picture(
            "defects",
            "bsdata_ballscrew",
            "pitting",
            f"p{i}.png",
            {"boxes": [["pitting", 60, 60, 80, 80]], "sequence": f"s{i}"},
            (160, 200),
        )
        picture("defects", "crackforest", "road_crack", f"r{i}.png", {"seg": "x"})
        picture("ocr", "meter_digit", "3", f"d{i}.png", {"digit": "3"}, (32, 20))
        picture("ocr", "meter_needle", "needle_4", f"n{i}.png", {"needle": 4.2})
    for part, found in rows.items():
        with (root / part / "manifest.csv").open("w", newline="") as out:
            writer = csv.DictWriter(out, list(found[0]))
            writer.writeheader()
            writer.writerows(found)
    return root


@pytest.fixture(scope="module", autouse=True)
def _fonts():
    try:
        labels.font_files()
    except FileNotFoundError:
        pytest.skip("no fonts are installed on this machine")


@pytest.fixture(autouse=True)
def _no_teacher(monkeypatch):
    monkeypatch.setattr("foveola.tiny.train.Teacher.load", classmethod(lambda cls: None))


@pytest.mark.slow
def test_a_resumed_run_ends_where_an_unbroken_one_does(data, tmp_path, monkeypatch):
    train(data, tmp_path / "whole", QUICK, SMALL)
    _stop_after(2, data, tmp_path / "parts", monkeypatch)
    train(data, tmp_path / "parts", QUICK, SMALL)
    whole, parts = (torch.load(tmp_path / n / "state.pt", weights_only=True) for n in ("whole", "parts"))
    assert whole["step"] == parts["step"] == 4
    for name, weight in whole["trainee"].items():
        assert torch.allclose(weight, parts["trainee"][name], atol=1e-6), name

    checkpoint = export_checkpoint(tmp_path / "whole", tmp_path / "checkpoint", shape=SMALL)
    assert checkpoint.lineage[0].step == "tiny.train"
    from transformers import Qwen2VLForConditionalGeneration

    model = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path / "checkpoint", dtype=torch.float32)
    trained = whole["trainee"]["model.model.visual.blocks.0.mlp.fc1.weight"]
    assert torch.allclose(model.model.visual.blocks[0].mlp.fc1.weight, trained, atol=1e-3)

    another = replace(QUICK, seed=1)  # whose fresh weights are others: what is near comes from the checkpoint
    train(data, tmp_path / "on", another, SMALL, start=tmp_path / "checkpoint", at=3)
    on = torch.load(tmp_path / "on" / "state.pt", weights_only=True)
    assert on["step"] == 4
    before, after = (n["trainee"]["model.model.visual.blocks.0.mlp.fc1.weight"] for n in (whole, on))
    assert 0 < float((before - after).abs().max()) < 0.01  # one step away, not fresh

    blind = replace(QUICK, steps=1, looking=0, mute=0, more_turns=1, tower=False)
    train(data, tmp_path / "decoder", blind, SMALL, start=tmp_path / "checkpoint")
    learnt = torch.load(tmp_path / "decoder" / "state.pt", weights_only=True)["trainee"]
    for name, weight in model.state_dict().items():
        changed = not torch.equal(weight, learnt["model." + name])
        assert changed == ("visual" not in name or "merger.mlp" in name), name


def _stop_after(step: int, data, out, monkeypatch) -> None:
    """Ends a run as a power cut would, right after the state of ``step`` was written."""
    from foveola.tiny import train as module

    save = module._save

    def save_and_stop(path, trainee, optimiser, at, plan):
        save(path, trainee, optimiser, at, plan)
        if at == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "_save", save_and_stop)
        train(data, out, QUICK, SMALL)


def test_a_state_of_other_heads_is_told(data, tmp_path):
    torch.save({"trainee": {"heads.box.weight": torch.zeros(4, 64)}, "optimiser": {}, "step": 3}, tmp_path / "state.pt")
    with pytest.raises(Damaged, match=r"state\.pt is of .* another shape, .* `foveola tiny export`, .* --start"):
        train(data, tmp_path, QUICK, SMALL)


def test_the_rate_warms_up_stays_and_falls():
    plan = Plan(steps=1000, looking=200, decay=300, warm_up=10, rate=1.0, least=0.02)
    assert rate_at(plan, 0) == pytest.approx(0.1)
    assert rate_at(plan, 100) == 1.0
    assert rate_at(plan, 200) == pytest.approx(0.1)
    assert rate_at(plan, 600) == 1.0
    assert rate_at(plan, 850) == pytest.approx(0.5)
    assert rate_at(plan, 1000) == pytest.approx(0.02)


def test_a_turn_sees_the_picture_and_itself():
    mask = star_mask(torch.tensor([[0, 0, 1, 1, 2, 2]]))[0, 0]
    assert mask[3].tolist() == [True, True, True, True, False, False]
    assert mask[5].tolist() == [True, True, False, False, True, True]
    assert mask[0].tolist() == [True, False, False, False, False, False]


def test_wrong_settings_are_told(tmp_path):
    import argparse

    from foveola.exchange import Invalid
    from foveola.tiny.command import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(Invalid, match="steps is 0; expected at least 1"):
        run(parser.parse_args(["train", "--data", str(tmp_path), "--steps", "0"]))
    with pytest.raises(Invalid, match="no defects/manifest.csv in the data folder; --data wants the folder"):
        run(parser.parse_args(["train", "--data", str(tmp_path), "--out", str(tmp_path / "o"), "--steps", "1"]))


def test_a_long_answer_does_not_drown_a_short_one():
    """Two turns, of one token and of four: the weights are 1 and 1/2 each."""
    logits = torch.zeros(1, 6, 7)
    logits[0, 0, 3] = 2.0  # the short answer is likely
    targets = torch.tensor([[3, 1, 1, 1, 1, IGNORE]])
    turns = torch.tensor([[1, 2, 2, 2, 2, 0]])
    short = -torch.log_softmax(logits[0, 0], -1)[3]
    long = -torch.log_softmax(logits[0, 1], -1)[1]
    assert answer_loss(logits, targets, turns) == pytest.approx(float((short + 4 * 0.5 * long) / 3), rel=1e-6)


def test_an_unknown_answer_teaches_nothing():
    logits = torch.ones(1, 2, 5, requires_grad=True)
    loss = answer_loss(logits, torch.full((1, 2), IGNORE), torch.ones(1, 2, dtype=torch.long))
    assert float(loss) == 0
    loss.backward()
    assert float(logits.grad.abs().sum()) == 0


def test_heads_look_at_their_halves_and_away_where_nothing_is_seen():
    """Three tokens, the last two of them visual; two answer tokens; the first head sees the left halves."""
    shares = torch.tensor([[[[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]], [[0.6, 0.3, 0.1], [0.1, 0.8, 0.1]]]])
    seen = torch.zeros(1, 2, 2, 2, dtype=torch.bool)
    seen[0, 0, 0, 0] = True  # the left half of the first visual token shows the first answer token; no right half does
    assert float(gaze_loss(shares.log(), seen, 1)) == pytest.approx(-(np.log(0.5) + np.log(0.6)) / 2)
    seen[0, 1, :, 1] = True
    others = np.log(0.1) + np.log(0.9)  # of the second one: the left head looks away, the right one at both
    assert float(gaze_loss(shares.log(), seen, 1)) == pytest.approx(-(np.log(0.5) + np.log(0.6) + others) / 4)


def test_what_an_answer_tells_of_a_place_is_held_against_its_state():
    states = torch.zeros(1, 3, 4)
    states[0, 1] = torch.tensor([7.0, 7.0, -7.0, -7.0])  # normed: ones
    slots, nothing = torch.tensor([[1, 2]]), [float("nan")] * 4
    group = SimpleNamespace(slots=slots, told=torch.tensor([[[1.0, 1.0, -1.0, -1.0], nothing]]))
    assert float(told_loss(torch.nn.Identity(), states, group)) == pytest.approx(0, abs=1e-6)
    group.told[0, 0, 0] = 0.6  # one of four numbers is 0.4 off
    assert float(told_loss(torch.nn.Identity(), states, group)) == pytest.approx((0.4 - 0.025) / 4)
    group.told[0, 0, 1:] = float("nan")  # an answer that tells one edge
    assert float(told_loss(torch.nn.Identity(), states, group)) == pytest.approx(0.4 - 0.025)
    group.told[:] = float("nan")
    assert float(told_loss(torch.nn.Identity(), states, group)) == 0
