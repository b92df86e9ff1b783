"""Trains the embedded model: seeded, resumable, on two CPU cores.

The vision tower learns first from the auxiliary heads; then the decoder joins. The learning rate is flat until the
last ``decay`` steps, so that a run can be lengthened or brought to an end when time is short.

The matrices are small: two threads that each compute half of a step are nearly twice as fast here as one computation
that is spread over two threads.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen2VLForConditionalGeneration

from foveola.exchange import Damaged
from foveola.tiny import batches, labels, real, scenes
from foveola.tiny.album import Album
from foveola.tiny.batches import BEFORE, CLASSES, IGNORE, PLACES, UNDER, Grid, Group, Source
from foveola.tiny.lessons import Plan, draw_groups, rate_at
from foveola.tiny.model import (
    SPOTS,
    AuxiliaryHeads,
    Shape,
    build_model,
    final_norm,
    gaze,
    look,
    merge,
    read_layers,
    vision_rope,
    whiten_patches,
)
from foveola.tiny.teacher import Teacher
from foveola.tiny.tokens import load_tokenizer, train_tokenizer
from foveola.tiny.turns import Packer

LOG_EVERY = 20
# How much of the language loss's gradient enters the vision tower: the auxiliary heads teach it better.
INTO_VISION = 0.4


class Trainee(nn.Module):
    """The model with its auxiliary heads and the losses of one group."""

    def __init__(self, shape: Shape, model: Qwen2VLForConditionalGeneration, packer: Packer) -> None:
        super().__init__()
        self.model = model
        self.heads = AuxiliaryHeads(shape, UNDER, len(CLASSES) + 1, PLACES, BEFORE, Teacher.WIDTH)
        self._picture_at = packer.picture_at
        # Most of a label is paper: what is printed on it counts more.
        self._under_weight: Tensor
        self.register_buffer("_under_weight", torch.tensor([0.15] + [1.0] * (UNDER - 1)), persistent=False)
        self._ropes: dict[Grid, tuple[Tensor, Tensor]] = {}

    def rope(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The vision tower's cos, sin of a grid, kept."""
        if grid not in self._ropes:
            self._ropes[grid] = vision_rope(self.model, grid)
        return self._ropes[grid]

    def look(self, group: Group) -> Tensor:
        """What the vision tower's blocks say of a group [B, N, width], for those who keep it."""
        with torch.no_grad():
            return look(self.model, group.patches, self.rope(group.grid))

    def of_decoder(self) -> list[bool]:
        """For every parameter, whether it is the decoder's."""
        return [name.startswith("model.model.language_model.") for name, _ in self.named_parameters()]

    def auxiliary_loss(self, group: Group, states: Tensor, features: Tensor) -> Tensor:
        """What lies under patches and tokens, places, boxes, the picture's class, the teacher's features."""
        heads, batch = self.heads, states.shape[0]
        halves = group.under.view(batch, -1, 2, 2)
        token_under = torch.where(halves[:, :, 0] != 0, halves[:, :, 0], halves[:, :, 1])
        losses = [
            _cross_entropy(heads.token(features).view(-1, heads.under), token_under.flatten(), self._under_weight),
            0.25 * _cross_entropy(heads.patch(states).flatten(0, 1), group.under.flatten(), self._under_weight),
            0.5 * _halves_loss(heads.place, features, group.places),
        ]
        pooled = features.mean(1)
        if bool((group.picture != IGNORE).any()):
            losses.append(0.5 * _cross_entropy(heads.picture(pooled), group.picture))
        if bool(group.boxed.any()):
            losses.append(2 * F.smooth_l1_loss(heads.box(features)[group.boxed], group.boxes[group.boxed], beta=0.1))
        if group.teacher is not None:
            losses.append(1.5 * (1 - F.cosine_similarity(heads.teacher(pooled), group.teacher, -1).mean()))
        return torch.stack(losses).sum()

    def _spot_loss(self, states: Tensor, grid: Grid) -> Tensor:
        """Row and column of every visual token, and at the token behind the picture those of the last one.

        ``states`` [B, n + 1, H] from the middle of the decoder. The vision tower knows relative places only, and the
        decoder finds the absolute ones very late by itself: this teaches it to read them off its rotary positions.
        """
        rows, columns = grid[0] // 2, grid[1] // 2
        row, column = torch.arange(rows * columns).div(columns, rounding_mode="floor"), torch.arange(rows * columns)
        spots = torch.stack([row, column % columns], -1)
        spots = torch.cat([spots, torch.tensor([[rows - 1, columns - 1]])]).clamp(max=SPOTS - 1)
        told = self.heads.spot(states).view(states.shape[0], -1, 2, SPOTS)
        return F.cross_entropy(told.flatten(0, 2), spots.expand(states.shape[0], -1, -1).flatten())

    def forward(self, group: Group) -> tuple[Tensor, Tensor]:
        """(language loss, auxiliary loss) of one group; the first is 0 where nothing is asked. Where the group brings
        what the tower's blocks said, they rest, and what is taught begins with the merger."""
        states = look(self.model, group.patches, self.rope(group.grid)) if group.states is None else group.states
        features = merge(self.model, states)
        auxiliary = self.auxiliary_loss(group, states, features)
        if not group.slots.shape[1]:
            return torch.zeros(()), auxiliary
        table = self.model.model.language_model.embed_tokens
        x = table(group.ids)
        start, end = self._picture_at, self._picture_at + features.shape[1]
        shown = INTO_VISION * features + (1 - INTO_VISION) * features.detach()
        x = torch.cat([x[:, :start], shown, x[:, end:]], 1)
        mask = star_mask(group.segments)
        layers = list(read_layers(self.model, x, group.positions, mask))
        middle = (len(layers) - 1) // 2
        auxiliary = auxiliary + self._spot_loss(layers[middle][:, start : end + 1], group.grid)
        # Counting goes from left to right, as the decoder's attention does. Where it is off by one, the character
        # before, which the answer has just said, still tells which comes next.
        told_of = layers[middle][:, start:end]
        auxiliary = auxiliary + _halves_loss(self.heads.order, told_of, group.places)
        auxiliary = auxiliary + 0.5 * _halves_loss(self.heads.before, told_of, group.before)
        if middle + 1 < len(layers):
            auxiliary = auxiliary + 4 * told_loss(self.heads.told, layers[middle + 1], group)
            if bool(group.seen.any()):
                logs = gaze(self.model, layers[middle], group.positions, mask, group.slots, middle + 1)
                auxiliary = auxiliary + 0.5 * gaze_loss(logs, group.seen, start)
        out = final_norm(self.model, layers[-1])
        wanted = out.gather(1, group.slots[:, :, None].expand(-1, -1, out.shape[-1]))
        logits = F.linear(wanted, table.weight)
        turns = group.segments.gather(1, group.slots)
        return answer_loss(logits, group.targets, turns), auxiliary


def _cross_entropy(logits: Tensor, targets: Tensor, weight: Tensor | None = None) -> Tensor:
    known = bool((targets != IGNORE).any())
    return F.cross_entropy(logits, targets, weight, ignore_index=IGNORE) if known else logits.sum() * 0


def _halves_loss(head: nn.Module, states: Tensor, halves: Tensor) -> Tensor:
    """What the halves of every visual token show [B, n, 2], told by ``head`` from its state; most of a picture is
    background (0), and what is not counts more."""
    told = head(states).view(halves.numel(), -1)
    weight = torch.ones(told.shape[-1])
    weight[0] = 0.15
    return _cross_entropy(told, halves.flatten(), weight)


def answer_loss(logits: Tensor, targets: Tensor, turns: Tensor) -> Tensor:
    """Mean cross entropy of answers: logits [B, K, V], targets [B, K], the turn of each target [B, K].

    A token of an answer of n tokens weighs 1/√n, or the digits of boxes would drown the names.
    """
    known = targets != IGNORE
    if not bool(known.any()):
        return logits.sum() * 0
    same = (turns[:, :, None] == turns[:, None, :]) & known[:, None, :]
    weight = torch.where(known, same.sum(-1).clamp(min=1).rsqrt(), 0)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return (loss * weight.flatten()).sum() / weight.sum()


def gaze_loss(logs: Tensor, seen: Tensor, start: int) -> Tensor:
    """How little of two heads' attention falls on what shows the answer: log attention [B, 2, K, L] on all tokens, the
    visual ones from ``start``, and the halves of these that show it, seen [B, K, n, 2] → the mean over heads, and over
    the answer tokens of which it is known, of -log of the share on what is seen.

    Where to look for an answer is the hardest part of it to find by itself, and here it is known. The first head looks
    at what tokens show in their left half, the second at the right: a token shows two or three characters of small
    print, and one head would bring all of them. Where nothing is seen in its half, a head looks away from the picture.
    """
    known = seen.flatten(2).any(-1)[:, None].expand(-1, 2, -1)
    end = start + seen.shape[2]
    wanted = logs.new_zeros(logs.shape, dtype=torch.bool)
    wanted[..., start:end] = seen.movedim(-1, 1)
    away = ~wanted.any(-1, keepdim=True).expand_as(wanted).clone()
    away[..., start:end] = False
    share = logs.masked_fill(~(wanted | away), float("-inf"))[known].logsumexp(-1)
    return -share.mean()


def told_loss(head: nn.Module, states: Tensor, group: Group) -> Tensor:
    """How far the edges of a box that ``head`` reads from the states of answer slots are from those that the answer
    tells, in shares of the picture; ``states`` [B, L, H] from behind the layer that looks for the answer.

    Digits are learnt one by one and do not know that 499 is next to 500; this number does. States are normed first, as
    the layer behind norms them: of the bare ones a few directions are so long that the others do not come through.
    """
    known = ~group.told.isnan()
    some = known.any(-1)
    at = states.gather(1, group.slots[:, :, None].expand(-1, -1, states.shape[-1]))[some]
    if not len(at):
        return states.sum() * 0
    told, wanted, known = head(F.rms_norm(at, at.shape[-1:])), group.told[some], known[some]
    return F.smooth_l1_loss(told[known], wanted[known], beta=0.05)


def star_mask(segments: Tensor) -> Tensor:
    """[B, L] → bool [B, 1, L, L]: causal, within the own turn or the picture (segment 0)."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = (segments[:, None, :] == 0) | (segments[:, :, None] == segments[:, None, :])
    return (causal & same)[:, None]


def _prepare(data: Path, out: Path, plan: Plan, shape: Shape, start: Path | None) -> tuple[Trainee, Source]:
    tokenizer_dir = out / "tokenizer"
    if start is not None and not tokenizer_dir.exists():
        load_tokenizer(start).save_pretrained(tokenizer_dir)
    tokenizer = load_tokenizer(tokenizer_dir) if tokenizer_dir.exists() else train_tokenizer(tokenizer_dir, plan.seed)
    packer = Packer(tokenizer)
    model = build_model(shape, tokenizer)
    records = list(real.cached_records(str(data)))
    trainee = Trainee(shape, model, packer)
    source = Source(records, packer, Teacher.load())
    if start is not None:
        # transformers renames the tensors of its files: only its own reader knows how
        begun = Qwen2VLForConditionalGeneration.from_pretrained(start, dtype=torch.float32, local_files_only=True)
        model.load_state_dict(begun.state_dict())
        return trainee, source
    rng = np.random.default_rng(plan.seed)
    examples = [scenes.scene(rng, 112, 112).pixels for _ in range(60)] + [
        labels.label(rng, 56, 224).pixels for _ in range(120)
    ]
    examples += [batches._jitter(rng, r.grey, (112, 112)) for r in records[::8] if not r.held_out]
    whiten_patches(model, examples)
    return trainee, source


def _optimiser(trainee: Trainee, plan: Plan) -> torch.optim.AdamW:
    matrices = [p for p in trainee.parameters() if p.ndim >= 2]
    vectors = [p for p in trainee.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": plan.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98), fused=True)


class Log:
    """Writes the mean losses of the last steps, one JSON line each time, to a file and to the terminal."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")
        self._began, self._losses = time.monotonic(), list[list[tuple[float, float]]]()

    def add(self, step: int, rate: float, losses: list[list[tuple[float, float]]]) -> None:
        """``losses``: (language, auxiliary) per group, of every part of the step."""
        self._losses += losses
        if step % LOG_EVERY:
            return
        language, auxiliary = np.asarray(self._losses).mean(0).round(3).T.tolist()
        seconds = round((time.monotonic() - self._began) / LOG_EVERY, 2)
        line = json.dumps({"step": step, "s": seconds, "rate": round(rate, 6), "lm": language, "aux": auxiliary})
        print(line, file=self._file, flush=True)
        print(line, flush=True)
        self._began, self._losses = time.monotonic(), []


def _alone() -> None:
    """A thread that computes its own part of a step uses one core for it."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)


def _part(
    trainee: Trainee, source: Source | Album, part: int, *, plan: Plan, step: int
) -> tuple[list[Tensor], list[tuple[float, float]]]:
    """Draws and computes one part of a step: gradients per parameter, losses per group.

    The gradient of every group is clipped by itself before they are added: a few real pictures have gradients many
    times those of a label, whose lesson would drown in their noise. The decoder's share is clipped apart from the
    rest for the same reason: it would leave little of what the auxiliary heads teach.
    """
    parameters = list(trainee.parameters())
    reads = trainee.of_decoder()
    gradients, losses = [torch.zeros_like(p) for p in parameters], []
    for group in draw_groups(source, plan, step, part):
        language, auxiliary = trainee(group)
        found = torch.autograd.grad(language + plan.auxiliary * auxiliary, parameters, allow_unused=True)
        for half in (True, False):
            known = [
                (total, new)
                for total, new, of_decoder in zip(gradients, found, reads, strict=True)
                if new is not None and of_decoder is half
            ]
            _add_clipped(known)
        losses.append((float(language.detach()), float(auxiliary.detach())))
    return gradients, losses


def _add_clipped(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Adds each second tensor to the first, all scaled so that their common norm is at most 1."""
    if not pairs:
        return
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(new) for _, new in pairs]))
    scale = 1 / max(1.0, float(norm))
    for total, new in pairs:
        total.add_(new, alpha=scale)


def _add(trainee: Trainee, parts: list[list[Tensor]]) -> None:
    """Puts the mean of the parts' gradients into the parameters. What no loss reached stays as it is: with a gradient
    of zero the optimiser would still move it by its momentum."""
    for parameter, gradients in zip(trainee.parameters(), zip(*parts, strict=True), strict=True):
        mean = torch.stack(gradients).mean(0)
        parameter.grad = mean if bool(mean.any()) else None


def train(
    data: Path, out: Path, plan: Plan, shape: Shape | None = None, start: Path | None = None, at: int = 0
) -> None:
    """Trains to ``plan.steps`` from where ``out/state.pt`` stands, writing the state and ``log.jsonl`` as it goes.

    Without a state the weights are fresh, or those of the checkpoint ``start``, whose tokenizer is then used too, and
    the lessons begin with those of step ``at``. A file ``out/plan.json`` overrides the plan, at the
    start and at every save, so that a running job can be told to finish.
    """
    _alone()
    out.mkdir(parents=True, exist_ok=True)
    plan = _overridden(plan, out / "plan.json")
    torch.manual_seed(plan.seed)
    trainee, source = _prepare(data, out, plan, shape or Shape(), start)
    optimiser = _optimiser(trainee, plan)
    step = _resume(out / "state.pt", trainee, optimiser, at)
    log = Log(out / "log.jsonl")
    albums = [Album(source, trainee.look) for _ in range(plan.threads)]
    with ThreadPoolExecutor(plan.threads, initializer=_alone) as pool:
        while step < plan.steps:
            work = partial(_part, trainee, plan=plan, step=step)
            sources = [source] * plan.threads if plan.tower else albums
            found = list(pool.map(work, sources, range(plan.threads)))
            _add(trainee, [gradients for gradients, _ in found])
            for group in optimiser.param_groups:
                group["lr"] = rate_at(plan, step)
            optimiser.step()
            step += 1
            log.add(step, rate_at(plan, step), [losses for _, losses in found])
            if step % plan.save_every == 0 or step == plan.steps:
                _save(out / "state.pt", trainee, optimiser, step, plan)
                plan = _overridden(plan, out / "plan.json")


def _resume(state: Path, trainee: Trainee, optimiser: torch.optim.Optimizer, at: int) -> int:
    """Loads a state where there is one; the step it stands at, ``at`` without one. Raises ``Damaged`` for the state of
    another shape or of other heads, as those of earlier versions are."""
    if not state.exists():
        return at
    saved = torch.load(state, weights_only=True)
    try:
        trainee.load_state_dict(saved["trainee"])
    except RuntimeError:
        raise Damaged(
            f"{state.name} is of a model of another shape, or of a version with other heads; write its weights with "
            "`foveola tiny export`, and go on from them with --start in another folder."
        ) from None
    optimiser.load_state_dict(saved["optimiser"])
    return int(saved["step"])


def _save(path: Path, trainee: Trainee, optimiser: torch.optim.Optimizer, step: int, plan: Plan) -> None:
    state = {"trainee": trainee.state_dict(), "optimiser": optimiser.state_dict(), "step": step, "plan": asdict(plan)}
    unfinished = path.with_suffix(".partial")
    torch.save(state, unfinished)
    unfinished.replace(path)


def _overridden(plan: Plan, path: Path) -> Plan:
    return Plan(**{**asdict(plan), **json.loads(path.read_text())}) if path.exists() else plan
