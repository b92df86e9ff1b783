from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.compress.recipe import Recipe  # noqa: E402
from foveola.compress.rounding import Round  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.compress.samples import read_examples  # noqa: E402
from foveola.compress.tune import Tune, answers_of_whole, divergence  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.loading import load  # noqa: E402
from foveola.weights.store import packed_formats, read_packed  # noqa: E402

pytestmark = pytest.mark.torch
NEAREST = Round(("model.language_model.layers.*",), "int4/32")
TUNE = Tune(passes=3, rate=5e-3, held_out=4)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "samples.jsonl"
    lines = [json.dumps({"text": f"a scratch at the top left, {n} pits in the centre, a crack"}) for n in range(12)]
    path.write_text("\n".join(lines))
    return path


def test_answers_come_nearer_and_codes_stay(checkpoint: Path, samples: Path, tmp_path: Path) -> None:
    plain = compress(checkpoint, Recipe((NEAREST,)), tmp_path / "plain")
    tuned = compress(checkpoint, Recipe((NEAREST, TUNE), calibration=samples), tmp_path / "tuned")
    source = Checkpoint.open(checkpoint)
    family = family_of(source.config)
    examples = read_examples(samples, source, family)
    whole = answers_of_whole(load(source, family), family, examples)
    before, after = (divergence(load(one, family), examples, whole) for one in (plain, tuned))
    assert after < 0.9 * before
    told = tuned.lineage[-1]
    assert told.step == "compress.tune"
    assert told.after["kl"] < told.before["kl"]
    assert len(told.options["losses"]) == 3 * 9 // 2
    moved = 0
    for path, (form, inner) in packed_formats(tuned.config).items():
        was, now = (read_packed(one, path, form, inner) for one in (plain, tuned))
        assert torch.equal(was.values, now.values)
        assert torch.equal(was.zeros, now.zeros)
        moved += int(not torch.equal(was.scales, now.scales))
    assert moved == 2 * 7
    sizes = [sum(info.bytes for info in one.tensors.values()) for one in (plain, tuned)]
    assert sizes[0] == sizes[1]


def test_what_is_no_better_is_not_kept(checkpoint: Path, samples: Path, tmp_path: Path) -> None:
    wild = Tune(passes=1, rate=0.9, held_out=4)
    tuned = compress(checkpoint, Recipe((NEAREST, wild), calibration=samples), tmp_path / "tuned")
    plain = compress(checkpoint, Recipe((NEAREST,)), tmp_path / "plain")
    assert tuned.lineage[-1].changed.startswith("nothing: ")
    path, (form, inner) = next(iter(packed_formats(tuned.config).items()))
    assert torch.equal(*(read_packed(one, path, form, inner).scales for one in (plain, tuned)))


def test_it_needs_something_to_tune_and_to_learn_from(checkpoint: Path, samples: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no packed matrices to tune; round it first"):
        compress(checkpoint, Recipe((TUNE,), calibration=samples), tmp_path / "out")
    with pytest.raises(Invalid, match=r"add \[calibration\] samples = FILE"):
        compress(checkpoint, Recipe((NEAREST, TUNE)), tmp_path / "out")
    with pytest.raises(Invalid, match="there are 12 samples, and one in 8 is held out"):
        compress(checkpoint, Recipe((NEAREST, Tune()), calibration=samples), tmp_path / "out")
    rounded = compress(checkpoint, Recipe((NEAREST,)), tmp_path / "rounded")
    with pytest.raises(Invalid, match="Put awq and tune into one recipe and begin with whole weights"):
        compress(rounded.path, Recipe((TUNE,), calibration=samples), tmp_path / "out")


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="rate is above 0"):
        Tune(rate=0.0)
