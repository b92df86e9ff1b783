from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch")

from foveola.artifact import Checkpoint, Finding  # noqa: E402
from foveola.compress.recipe import Recipe  # noqa: E402
from foveola.compress.rounding import Round  # noqa: E402
from foveola.compress.run import compress  # noqa: E402
from foveola.compress.steps import Workbench, keep_side_files, step  # noqa: E402
from foveola.exchange import Invalid  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.loading import load  # noqa: E402

pytestmark = pytest.mark.torch


@step("copy")
@dataclass(frozen=True)
class Copy:
    """Copies; before that it does what a test asks for."""

    name: ClassVar[str]
    before: Callable[[Workbench], None] = lambda bench: None

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        self.before(bench)
        for file in source.weight_files:
            (folder / file).write_bytes(source.file(file).read_bytes())
        index = source.path / "model.safetensors.index.json"
        if index.exists():
            (folder / index.name).write_bytes(index.read_bytes())
        keep_side_files(source, folder)
        return Finding(step="compress.copy", changed="nothing")


def hidden(tmp_path: Path) -> list[str]:
    return [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")]


def test_every_step_leaves_its_finding_with_the_options_it_ran_with(checkpoint: Path, tmp_path: Path) -> None:
    made = compress(checkpoint, Recipe((Copy(), Round(("*.down_proj",), "int8/64"))), tmp_path / "out", name="small")
    assert [finding.step for finding in made.lineage] == ["compress.copy", "compress.round"]
    assert made.lineage[1].options == {"use": "round", "patterns": ["*.down_proj"], "storage": "int8/64"}
    assert made.name == "small"
    assert Checkpoint.open(tmp_path / "out").model_hash == made.model_hash
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (checkpoint / "tokenizer.json").read_bytes()
    assert hidden(tmp_path) == []


def test_rounded_weights_are_read_back_as_they_were_written(checkpoint: Path, tmp_path: Path) -> None:
    from foveola.weights.formats import Format
    from foveola.weights.packed import pack

    source = Checkpoint.open(checkpoint)
    made = compress(checkpoint, Recipe((Round(),)), tmp_path / "out")
    family = family_of(source.config)
    before, after = load(source, family), load(made, family)
    path = "model.language_model.layers.1.mlp.down_proj.weight"
    wanted = pack(before.get_parameter(path), Format(4)).dequantised()
    assert torch.equal(after.get_parameter(path), wanted)
    # Head and embedding are tied in the source, and stay so.
    assert torch.equal(after.lm_head.weight, after.get_parameter("model.language_model.embed_tokens.weight"))
    kernel = after.get_parameter("model.visual.patch_embed.proj.weight")
    assert torch.equal(kernel[:, :, 0], kernel[:, :, 1])
    finding = made.lineage[-1]
    assert finding.before["weight_bytes"] > 4 * finding.after["weight_bytes"]
    assert 0.02 < finding.after["relative_weight_error"] < 0.12


def test_a_run_that_was_interrupted_goes_on_where_it_was(checkpoint: Path, tmp_path: Path) -> None:
    ran: list[str] = []

    def first(bench: Workbench) -> None:
        ran.append("first")

    def second(bench: Workbench) -> None:
        seen = bench.journal / "seen"
        ran.append("second" if not seen.exists() else "second again")
        if not seen.exists():
            seen.touch()
            raise KeyboardInterrupt

    recipe = Recipe((Copy(first), Copy(second)))
    with pytest.raises(KeyboardInterrupt):
        compress(checkpoint, recipe, tmp_path / "out")
    assert hidden(tmp_path) == [".out.compress"]
    assert not (tmp_path / "out").exists()
    made = compress(checkpoint, recipe, tmp_path / "out")
    assert ran == ["first", "second", "second again"]
    assert len(made.lineage) == 2
    assert hidden(tmp_path) == []


def test_another_recipe_begins_anew(checkpoint: Path, tmp_path: Path) -> None:
    def fail(bench: Workbench) -> None:
        (bench.journal / "left").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compress(checkpoint, Recipe((Copy(fail),)), tmp_path / "out")

    def look(bench: Workbench) -> None:
        assert not (bench.journal / "left").exists()

    compress(checkpoint, Recipe((Copy(look),), seed=1), tmp_path / "out")


def test_blocks_that_are_done_are_not_done_again(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foveola.compress import stream

    read = stream.read_tensor
    asked: list[str] = []

    def stopping(source: Checkpoint, name: str) -> object:
        asked.append(name)
        if "layers.1.input_layernorm" in name and len(asked) < 200 and "stopped" not in asked:
            asked.append("stopped")
            raise KeyboardInterrupt
        return read(source, name)

    monkeypatch.setattr(stream, "read_tensor", stopping)
    with pytest.raises(KeyboardInterrupt):
        compress(checkpoint, Recipe((Round(),)), tmp_path / "out")
    done = asked[: asked.index("stopped") - 1]
    before = len(asked)
    compress(checkpoint, Recipe((Round(),)), tmp_path / "out")
    again = asked[before:]
    assert any("layers.1.input_layernorm" in name for name in again)
    assert not {name for name in done if "layers.0." in name} & set(again)


def test_a_pattern_that_matches_nothing_is_an_error_and_nothing_is_written(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        compress(checkpoint, Recipe((Round(("model.vision_tower.*",)),)), tmp_path / "out")
    assert caught.value.message.startswith("the pattern 'model.vision_tower.*' matches no module; modules have names ")
    assert not list(tmp_path.iterdir()), "nothing is left to go on from"


def test_what_is_there_is_kept_unless_asked(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(Invalid) as caught:
        compress(checkpoint, Recipe((Copy(),)), tmp_path / "out")
    assert caught.value.message == "out exists; ask to replace it (--replace), or name another place."
    compress(checkpoint, Recipe((Copy(),)), tmp_path / "out", replace=True)
    assert not (tmp_path / "out" / "mine").exists()


def test_a_name_that_cannot_be_one_is_refused_first(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="the checkpoint's name 'a/b' is no name"):
        compress(checkpoint, Recipe((Copy(),)), tmp_path / "out", name="a/b")
