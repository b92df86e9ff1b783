"""What an update of a federation tells about the pictures behind it: an attempt to invert it.

The attacker is the server: it knows the prompt, the local training (ten steps), how many pictures there were and of
which classes. It looks for the features whose training would have made the update, by descent through the training
(Zhu, Liu, Han: "Deep leakage from gradients", NeurIPS 2019, with the labels given), from the closed form that the first
step has. The undefended update is the whole change in float32; the sent one is what crosses the wire: the largest 8 %
in 8 bits, clipped. A picture counts as *recognised* when, among the features of all pictures of its class, the one that
is nearest to what was found is its own; *chance* is what a blind choice would reach. Only features are looked for: from
a feature to a picture is one more step, which is not taken here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foveola.bench.evidence import Bar, Script, Tell
from foveola.learn.federate.codec import Floats, compress
from foveola.learn.federate.problem import Labels, Problem, normalised, synthetic

KEEP, CLIP, STEPS = 0.08, 1.0, 10
SIZES = (1, 4, 13)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What an attacker sees: ``values`` float32 ``[rows, width]``, and ``told`` where they are known."""

    values: Floats
    told: np.ndarray


def whole(delta: Floats) -> Seen:
    return Seen(delta, np.ones(delta.shape, bool))


def sent(delta: Floats) -> Seen:
    sparse = compress(delta.reshape(-1), KEEP, CLIP)
    values = sparse.dense().reshape(delta.shape)
    return Seen(values, values != 0)


WAYS: dict[str, Callable[[Floats], Seen]] = {"undefended": whole, "sent": sent}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kept = "real features, as `l2_federated.py --features FILE` keeps them (default: drawn ones)"
    parser.add_argument("--features", type=Path, metavar="FILE", help=kept)
    parser.add_argument("--victims", type=int, default=3, help="nodes that are attacked, per size (default: 3)")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], list[Bar]]:
    real = arguments.features is not None
    if real:
        with np.load(arguments.features, allow_pickle=False) as file:
            features, labels = normalised(file["features"]), file["labels"]
    else:
        features, labels = synthetic(160, 32, np.random.default_rng(0), 1.3)
    prompts = {"first round": np.zeros((16, features.shape[1]), np.float32)}
    prompts["trained prompt"] = Problem().centralised(features, labels, 50)
    found: dict[str, Any] = {}
    for moment, prompt in prompts.items():
        for size in SIZES:
            tell(f"{moment}, {size} pictures")
            rng = np.random.default_rng(size)
            attacked = [
                attack(features, labels, rng.choice(len(labels), size, replace=False), prompt, arguments.quick)
                for _ in range(2 if arguments.quick else arguments.victims)
            ]
            found.setdefault(moment, {})[str(size)] = {
                way: {what: float(np.mean([one[way][what] for one in attacked])) for what in attacked[0][way]}
                for way in attacked[0]
            }
    usual = found["first round"][str(SIZES[-1])]
    bars = [
        Bar(
            f"recognised above chance in what a node of {SIZES[-1]} pictures sends, first round",
            usual["sent"]["recognised"] - usual["sent"]["chance"], 0.1, at_most=True,
        ),
        Bar(
            "cosine that is lost on the wire, nodes of 4 pictures",
            found["first round"]["4"]["undefended"]["cosine"] - found["first round"]["4"]["sent"]["cosine"], 0.1,
        ),
    ]  # fmt: skip
    return {"pictures": real, "keep": KEEP, "steps": STEPS, "found": found}, bars


def attack(features: Floats, labels: Labels, own: np.ndarray, prompt: Floats, quick: bool) -> dict[str, Any]:
    """Per way, how well the pictures ``own`` of one node come out."""
    delta = Problem().train(prompt, features[own], labels[own], STEPS) - prompt
    result: dict[str, Any] = {}
    for way, view in WAYS.items():
        guessed = inverted(view(delta), labels[own], prompt, 20 if quick else 100)
        result[way] = judged(guessed, features, labels, own)
    others = np.stack([class_mean(features, labels, at, own) for at in own])
    result["class mean"] = judged(others, features, labels, own)
    return result


def inverted(seen: Seen, labels: Labels, prompt: Floats, iterations: int) -> Floats:
    """Features float32 ``[N, width]`` whose training would give what was seen, of norm 1 and mean 0."""
    import torch

    torch.set_num_threads(1)
    problem, count = Problem(), len(labels)
    start, target, told = torch.from_numpy(prompt), torch.from_numpy(seen.values), torch.from_numpy(seen.told)
    hot = torch.nn.functional.one_hot(torch.from_numpy(labels), len(prompt)).float()
    # The first step's closed form: a row is the sum of its own class's features, less a share of everybody's.
    guess = torch.from_numpy(seen.values[labels]).clone()
    guess += 1e-3 * torch.randn(guess.shape, generator=torch.Generator().manual_seed(0))
    guess.requires_grad_()
    optimiser = torch.optim.Adam([guess], lr=0.03)
    for _ in range(iterations):
        unit = guess - guess.mean(dim=1, keepdim=True)
        unit = unit / unit.norm(dim=1, keepdim=True).clamp_min(1e-9)
        trained = start
        for _ in range(STEPS):
            chances = torch.softmax(problem.temperature * unit @ trained.T, dim=1)
            gradient = problem.temperature / count * (chances - hot).T @ unit + problem.l2 * trained
            trained = trained - problem.rate * gradient
        made = (trained - start)[told]
        loss = ((made - target[told]) ** 2).sum() / (target[told] ** 2).sum().clamp_min(1e-12)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    best: Floats = unit.detach().numpy()
    return best


def judged(guessed: Floats, features: Floats, labels: Labels, own: np.ndarray) -> dict[str, float]:
    """Pictures of one class are matched with the guesses for it, best first."""
    cosines, right, chance = [], 0, 0.0
    for label in np.unique(labels[own]):
        mine = np.flatnonzero(labels[own] == label)
        gallery = np.flatnonzero(labels == label)
        likeness = guessed[mine] @ features[own[mine]].T
        nearest = gallery[(guessed[mine] @ features[gallery].T).argmax(axis=1)]
        right += len(set(nearest.tolist()) & set(own[mine].tolist()))
        chance += len(mine) * min(1.0, len(mine) / len(gallery))
        for _ in mine:
            row, column = np.unravel_index(likeness.argmax(), likeness.shape)
            cosines.append(float(likeness[row, column]))
            likeness[row, :] = likeness[:, column] = -2
    return {"cosine": float(np.mean(cosines)), "recognised": right / len(own), "chance": chance / len(own)}


def class_mean(features: Floats, labels: Labels, at: int, own: np.ndarray) -> Floats:
    """What somebody would guess who knows pictures of the class from elsewhere."""
    rest = np.setdiff1d(np.flatnonzero(labels == labels[at]), own)
    mean = features[rest].mean(axis=0) if len(rest) else features.mean(axis=0)
    unit: Floats = mean / max(float(np.linalg.norm(mean)), 1e-9)
    return unit


SCRIPT = Script("l2", "inversion", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
