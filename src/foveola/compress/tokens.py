"""The step ``tokens``: a model learns, briefly, to answer from some of a picture's visual tokens as it did from all.

    loss = hard · CE(targets) + soft · KL(all tokens ‖ some) + semantic · L_sem
    L_sem = ‖A_full P - A_comp‖² / (L · H · T)

``A_full`` [T, n] is the attention of the text to all visual tokens in one head of one layer, ``A_comp`` [T, M] that to
those kept, and P [n, M] the assignment that adds up what each kept token stands for: without it the two maps have
different shapes. The mean runs over L layers, H heads and T tokens of the text.

What comes out is a checkpoint of the same shape; compile it with ``--select-after`` as the step's ``after``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from foveola.artifact import Checkpoint, Finding
from foveola.compress.example import Example
from foveola.compress.recover import Parameters, Recovery, train
from foveola.compress.samples import read_examples
from foveola.compress.selecting import Selecting
from foveola.compress.steps import Workbench, keep_side_files, step
from foveola.exchange import Invalid
from foveola.family import Family, family_of
from foveola.weights.loading import load
from foveola.weights.skeleton import stored_names

HELD_OUT = 8
"""Every so many examples one is for measuring only."""


@dataclass(frozen=True, slots=True)
class AllTokens:
    """What a model says to an example when it sees everything.

    ``answers`` [answer, V]: log-probabilities. ``attention`` [L, H, T, n]: of the text behind the picture to it.
    """

    answers: Tensor
    attention: Tensor


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How far answers from some tokens are from those from all: means over examples.

    ``kl`` per token of the answer; ``semantic`` is L_sem; ``same`` the share of answers all of whose likeliest tokens
    are the same.
    """

    kl: float
    semantic: float
    same: float


def semantic_loss(full_LHTn: Tensor, part_LHTn: Tensor, goes_n: Tensor, index_M: Tensor) -> Tensor:
    """L_sem of two attentions to the same n visual tokens, in the second of which only ``index`` count.

    ``goes`` says for every token which of the kept ones stands for it.
    """
    assignment = F.one_hot(goes_n, len(index_M)).to(full_LHTn.dtype)
    difference = full_LHTn @ assignment - part_LHTn.index_select(-1, index_M)
    layers, heads, text, _ = full_LHTn.shape
    return difference.square().sum() / (layers * heads * text)


def look(model: nn.Module, example: Example) -> AllTokens:
    """Run the model on an example, whatever it is made to select."""
    out = model(**example.inputs, use_cache=False, output_attentions=True)
    is_vision = example.is_vision[0]
    text = torch.arange(len(is_vision)) > int(is_vision.nonzero()[-1])
    maps = torch.stack([one[0] for one in out.attentions])
    return AllTokens(out.logits[example.answers_at].log_softmax(-1), maps[:, :, text][..., is_vision])


def look_at_some(model: nn.Module, example: Example, selecting: Selecting) -> AllTokens:
    """The same from the tokens that ``selecting`` keeps."""
    with selecting.reading(example.inputs["image_grid_thw"], example.is_vision):
        return look(model, example)


@torch.no_grad()
def fidelity(
    model: nn.Module,
    family: Family,
    examples: Sequence[Example],
    targets: Sequence[AllTokens],
    after: int,
    share: float,
) -> Fidelity:
    """Hold what the model says with ``share`` of the tokens against ``targets``, what it (or another) says with all."""
    found = []
    for example, target in zip(examples, targets, strict=True):
        keep = max(1, round(share * int(example.is_vision.sum())))
        selecting = Selecting(model, family, after=after, keep=keep)
        seen = look_at_some(model, example, selecting)
        assert selecting.kept is not None
        kept = selecting.kept
        found.append(
            (
                float(F.kl_div(seen.answers, target.answers, log_target=True, reduction="batchmean")),
                float(semantic_loss(target.attention, seen.attention, kept.goes, kept.index)),
                float((seen.answers.argmax(-1) == target.answers.argmax(-1)).all()),
            )
        )
    kl, semantic, same = (sum(column) / len(found) for column in zip(*found, strict=True))
    return Fidelity(kl, semantic, same)


@step("tokens")
@dataclass(frozen=True, slots=True)
class Tokens:
    """Teaches a checkpoint to do with fewer visual tokens.

    after       blocks of the tower that see every patch
    least, most between which shares of its tokens an example keeps, drawn anew each time
    steps, rate, batch, parameters   as in recovery; ``parameters`` is all or projector
    hard, soft, semantic             weights of the three parts of the loss
    """

    after: int = 2
    least: float = 0.25
    most: float = 0.75
    steps: int = 300
    rate: float = 1e-4
    batch: int = 4
    parameters: Parameters = "all"
    hard: float = 0.2
    soft: float = 1.0
    semantic: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most <= 1:
            raise Invalid(
                f"least and most are {self.least:g} and {self.most:g}; expected shares above 0 and up to 1, in order.",
                field="least",
            )

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Train, measure on examples held out, write. Raises ``Invalid`` without samples, or without pictures."""
        start = time.perf_counter()
        if bench.calibration is None:
            raise Invalid("tokens learns from samples; give the recipe [calibration] samples = FILE.", field="samples")
        family = family_of(source.config)
        model = load(source, family)
        examples = [one for one in read_examples(bench.calibration, source, family) if bool(one.is_vision.any())]
        if len(examples) < 2:
            raise Invalid("tokens learns from pictures; the samples hold fewer than two of them.", field="samples")
        bench.tell("the answers from all tokens", 0.0)
        with torch.no_grad():
            targets = [look(model, example) for example in examples]
        held = set(range(0, len(examples), HELD_OUT))
        trained = [index for index in range(len(examples)) if index not in held]
        judged = ([examples[i] for i in held], [targets[i] for i in held])
        before = fidelity(model, family, *judged, self.after, 0.5)
        how = Recovery(self.steps, self.rate, self.batch, parameters=self.parameters, seed=bench.seed)
        draw = random.Random(bench.seed)
        losses = train(
            model,
            family,
            len(trained),
            how,
            lambda place: self._loss(model, family, examples[trained[place]], targets[trained[place]], draw),
            lambda done, loss: bench.tell("learning from fewer tokens", done / self.steps),
        )
        after = fidelity(model, family, *judged, self.after, 0.5)
        write(source, model, folder)
        return Finding(
            step="compress.tokens",
            changed=f"{self.steps} steps on {len(trained)} pictures, with {self.least:.0%} to {self.most:.0%} "
            f"of their visual tokens behind block {self.after}; figures: half of the tokens of {len(held)} others",
            before={"kl": before.kl, "semantic_loss": before.semantic, "same_answers": before.same},
            after={"kl": after.kl, "semantic_loss": after.semantic, "same_answers": after.same},
            seconds=time.perf_counter() - start,
            options={"after": self.after, "loss": [round(loss, 5) for loss in losses[:1] + losses[-1:]]},
        )

    def _loss(
        self, model: nn.Module, family: Family, example: Example, target: AllTokens, draw: random.Random
    ) -> Tensor:
        keep = max(1, round(draw.uniform(self.least, self.most) * int(example.is_vision.sum())))
        selecting = Selecting(model, family, after=self.after, keep=keep)
        seen = look_at_some(model, example, selecting)
        kept = selecting.kept
        assert kept is not None
        hard = F.nll_loss(seen.answers, example.targets)
        soft = F.kl_div(seen.answers, target.answers, log_target=True, reduction="batchmean")
        semantic = semantic_loss(target.attention, seen.attention, kept.goes, kept.index)
        loss: Tensor = self.hard * hard + self.soft * soft + self.semantic * semantic
        return loss


def write(source: Checkpoint, model: nn.Module, folder: Path) -> None:
    """The weights of ``model`` under the source's names and in its dtypes, and all else as in the source."""
    state = model.state_dict()
    dtypes = {"F16": torch.float16, "BF16": torch.bfloat16}
    tensors = {
        stored: state[name].to(dtypes.get(source.tensors[stored].dtype, torch.float32)).contiguous()
        for name, stored in stored_names(model, source).items()
    }
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    keep_side_files(source, folder)
