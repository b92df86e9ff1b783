"""Trains the embedded model: seeded, resumable, on two CPU cores.

The vision tower learns first from the auxiliary heads; then the decoder joins. The learning rate is flat until the
last ``decay`` steps, so that a run can be lengthened or brought to an end when time is short.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Qwen2VLForConditionalGeneration

from foveola.tiny import batches, labels, real, scenes
from foveola.tiny.batches import CLASSES, EASY_GRIDS, IGNORE, LABEL_GRIDS, PLACES, SCENE_GRIDS, SQUARE_GRIDS, STRIP_GRIDS, UNDER, WIDE_GRIDS, Grid, Group, Source
from foveola.tiny.model import AuxiliaryHeads, Shape, build_model, read, see, vision_rope, whiten_patches
from foveola.tiny.teacher import Teacher
from foveola.tiny.tokens import load_tokenizer, train_tokenizer
from foveola.tiny.turns import Packer


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how to train. Steps count optimiser steps; ``looking`` of them are vision only."""

    steps: int = 3200
    looking: int = 500
    decay: int = 900
    warm_up: int = 80
    rate: float = 1.0e-3
    least: float = 0.02
    weight_decay: float = 0.05
    auxiliary: float = 0.5
    real: int = 10
    scene: int = 8
    label: int = 12
    seed: int = 0
    save_every: int = 50
    threads: int = 2


class Trainee(nn.Module):
    """The model with its auxiliary heads and the losses of one group."""

    def __init__(self, shape: Shape, model: Qwen2VLForConditionalGeneration, packer: Packer) -> None:
        super().__init__()
        self.model = model
        self.heads = AuxiliaryHeads(shape, UNDER, len(CLASSES) + 1, PLACES, Teacher.WIDTH)
        self._picture_at = packer.picture_at
        # Most of a label is paper: what is printed on it counts more.
        self.register_buffer("_under_weight", torch.tensor([0.15] + [1.0] * (UNDER - 1)), persistent=False)
        self.register_buffer("_place_weight", torch.tensor([0.15] + [1.0] * (PLACES - 1)), persistent=False)
        self._ropes: dict[Grid, tuple[Tensor, Tensor]] = {}

    def rope(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The vision tower's cos, sin of a grid, kept."""
        if grid not in self._ropes:
            self._ropes[grid] = vision_rope(self.model, grid)
        return self._ropes[grid]

    def auxiliary_loss(self, group: Group, states: Tensor, features: Tensor) -> Tensor:
        """What lies under patches and tokens, places, boxes, the picture's class, the teacher's features."""
        heads, batch = self.heads, states.shape[0]
        halves = group.under.view(batch, -1, 2, 2)
        token_under = torch.where(halves[:, :, 0] != 0, halves[:, :, 0], halves[:, :, 1])
        losses = [
            _cross_entropy(heads.token(features).view(-1, heads.under), token_under.flatten(), self._under_weight),
            0.5 * _cross_entropy(heads.patch(states).flatten(0, 1), group.under.flatten(), self._under_weight),
            0.5 * _cross_entropy(heads.place(features).view(-1, heads.places), group.places.flatten(), self._place_weight),
        ]
        pooled = features.mean(1)
        if bool((group.picture != IGNORE).any()):
            losses.append(0.5 * _cross_entropy(heads.picture(pooled), group.picture))
        if bool(group.boxed.any()):
            guess = heads.box(features)[group.boxed].sigmoid()
            losses.append(4 * F.l1_loss(guess, group.boxes[group.boxed]))
        if group.teacher is not None:
            losses.append(1.5 * (1 - F.cosine_similarity(heads.teacher(pooled), group.teacher, -1).mean()))
        return torch.stack(losses).sum()

    def forward(self, group: Group, *, looking: bool) -> tuple[Tensor, Tensor]:
        """(language loss, auxiliary loss) of one group; the first is 0 while only looking."""
        states, features = see(self.model, group.patches, self.rope(group.grid))
        auxiliary = self.auxiliary_loss(group, states, features)
        if looking:
            return torch.zeros(()), auxiliary
        table = self.model.model.language_model.embed_tokens
        x = table(group.ids)
        start, end = self._picture_at, self._picture_at + features.shape[1]
        x = torch.cat([x[:, :start], features, x[:, end:]], 1)
        out = read(self.model, x, group.positions, star_mask(group.segments))
        wanted = out.gather(1, group.slots[:, :, None].expand(-1, -1, out.shape[-1]))
        logits = F.linear(wanted, table.weight)
        return _cross_entropy(logits.flatten(0, 1), group.targets.flatten()), auxiliary


def _cross_entropy(logits: Tensor, targets: Tensor, weight: Tensor | None = None) -> Tensor:
    known = bool((targets != IGNORE).any())
    return F.cross_entropy(logits, targets, weight, ignore_index=IGNORE) if known else logits.sum() * 0


def star_mask(segments: Tensor) -> Tensor:
    """[B, L] → bool [B, 1, L, L]: causal, within the own turn or the picture (segment 0)."""
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    same = (segments[:, None, :] == 0) | (segments[:, :, None] == segments[:, None, :])
    return (causal & same)[:, None]


def rate_at(plan: Plan, step: int) -> float:
    """Warm-up (again when the decoder joins), flat, then a linear decay to ``least`` of the rate."""
    since = step - plan.looking if step >= plan.looking else step
    warm = min(1.0, (since + 1) / plan.warm_up)
    left = (plan.steps - step) / max(1, plan.decay)
    return plan.rate * warm * max(plan.least, min(1.0, left))


def draw_groups(source: Source, plan: Plan, step: int) -> list[Group]:
    """The three groups of one step. Small pictures first, labels as tight strips; sizes grow over the run's first part."""
    rng = np.random.default_rng([plan.seed, step])
    progress = min(1.0, step / max(1, plan.steps - plan.decay))
    looking = step < plan.looking

    def pick(grids: tuple[Grid, ...]) -> Grid:
        sizes = sorted(grids, key=lambda g: g[0] * g[1])
        most = max(2, round(len(sizes) * (0.25 + 0.75 * progress)))
        return sizes[int(rng.integers(min(most, len(sizes))))]

    square = rng.random() < 0.72
    easy = rng.random() > progress * 3.3 - 0.4  # two to four large characters
    strips = rng.random() > progress * 1.15 - 0.05
    label_grids = EASY_GRIDS if easy else STRIP_GRIDS if strips else LABEL_GRIDS
    plan_of = [
        ("real", pick(SQUARE_GRIDS if square else WIDE_GRIDS), plan.real, 3),
        ("scene", pick(SCENE_GRIDS), plan.scene, 4),
        ("label", pick(label_grids), plan.label, 2),
    ]
    tight = 0.85 * max(0.0, 1 - 1.6 * progress)
    groups = []
    for i, (kind, grid, base, turns) in enumerate(plan_of):
        count = min(72, max(4, round(base * 110 / (grid[0] * grid[1]))))  # about the same number of patches in every group
        seed = [plan.seed, step, i]
        length = (2, 4) if easy else (4, 8)
        groups.append(source.group(kind, grid, count, seed, turns=1 if looking else turns, tight=tight, length=length))
    return groups


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
        weights = load_file(start / "model.safetensors")
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
        return trainee, source
    rng = np.random.default_rng(plan.seed)
    examples = [scenes.scene(rng, 112, 112).pixels for _ in range(60)] + [labels.label(rng, 56, 224).pixels for _ in range(120)]
    examples += [batches._jitter(rng, r.grey, (112, 112)) for r in records[::8] if not r.held_out]
    whiten_patches(model, examples)
    return trainee, source


def _optimiser(trainee: Trainee, plan: Plan) -> torch.optim.AdamW:
    matrices = [p for p in trainee.parameters() if p.ndim >= 2]
    vectors = [p for p in trainee.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": plan.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98), fused=True)


def train(data: Path, out: Path, plan: Plan, shape: Shape | None = None, start: Path | None = None) -> None:
    """Trains to ``plan.steps`` from where ``out/state.pt`` stands, writing the state and ``log.jsonl`` as it goes.

    Without a state the weights are fresh, or those of the checkpoint ``start``, whose tokenizer is then used too.

    A file ``out/plan.json`` overrides the plan's lengths at every save, so a running job can be told to finish.
    """
    shape = shape or Shape()
    torch.set_num_threads(plan.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(plan.seed)
    out.mkdir(parents=True, exist_ok=True)
    trainee, source = _prepare(data, out, plan, shape, start)
    optimiser = _optimiser(trainee, plan)
    state = out / "state.pt"
    step = 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        trainee.load_state_dict(saved["trainee"])
        optimiser.load_state_dict(saved["optimiser"])
        step = int(saved["step"])
    log = (out / "log.jsonl").open("a")
    began, language, auxiliary = time.monotonic(), [[], [], []], [[], [], []]  # type: ignore[var-annotated]
    # The next step's pictures are drawn on a thread of their own while this step computes.
    drawer = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
    ahead = drawer.submit(draw_groups, source, plan, step)
    while step < plan.steps:
        groups = ahead.result()
        ahead = drawer.submit(draw_groups, source, plan, step + 1)
        for group in optimiser.param_groups:
            group["lr"] = rate_at(plan, step)
        optimiser.zero_grad(set_to_none=True)
        for i, g in enumerate(groups):
            lm, aux = trainee(g, looking=step < plan.looking)
            (lm + plan.auxiliary * aux).backward()
            language[i].append(float(lm.detach()))
            auxiliary[i].append(float(aux.detach()))
        nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 50 == 0:
            line = {
                "step": step, "s": round((time.monotonic() - began) / 50, 2), "rate": round(rate_at(plan, step), 6),
                "lm": [round(float(np.mean(v)), 3) for v in language], "aux": [round(float(np.mean(v)), 3) for v in auxiliary],
            }  # fmt: skip
            log.write(json.dumps(line) + "\n")
            log.flush()
            print(line, flush=True)
            began, language, auxiliary = time.monotonic(), [[], [], []], [[], [], []]
        if step % plan.save_every == 0 or step == plan.steps:
            _save(state, {"trainee": trainee.state_dict(), "optimiser": optimiser.state_dict(), "step": step, "plan": asdict(plan)})
            override = out / "plan.json"
            if override.exists():
                plan = Plan(**{**asdict(plan), **json.loads(override.read_text())})
    drawer.shutdown()
    log.close()


def _save(path: Path, state: dict[str, object]) -> None:
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)
