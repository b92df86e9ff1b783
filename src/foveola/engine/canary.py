"""The probe that new weights must pass before anybody is answered with them.

A fixed picture and a short prompt go through the whole model, old weights and new. The new ones must give finite
numbers of the old ones' order of magnitude, and not the same for every place: weights of another model, of another
scale, or broken on the way do not. Whether they are *better* is no question for a probe; the canary release of a
rollout and the metrics answer that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveola.artifact import Bundle
from foveola.engine.features import Chunk, Floats
from foveola.engine.runner import Runner
from foveola.exchange import Invalid
from foveola.intake.geometries import geometry_of
from foveola.intake.geometry import Packed
from foveola.intake.image import Picture

TOKENS, STEPS = 24, 8
TIMES = 100.0
"""How much larger or smaller than the old ones' the new numbers may be, in root mean square."""


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A picture for the vision graph (None where there is none), and ids int64 ``[TOKENS]`` of a prompt."""

    packed: Packed | None
    ids: NDArray[np.int64]
    axes: int


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a model made of the probe: features float32 ``[N, E]``, logits float32 ``[STEPS, vocab]``."""

    features: Floats | None
    logits: Floats


def probe(bundle: Bundle) -> Probe:
    """The probe for a bundle: a picture of waves and noise, and a prompt of random tokens; always the same."""
    random = np.random.default_rng(20261130)
    geometry = geometry_of(bundle.model)
    text = bundle.model["text"]
    packed = None
    if geometry is not None:
        y, x = np.mgrid[0:112, 0:112]
        waves = 127 + 80 * np.sin(x / 9.0)[..., None] * np.cos(y / 7.0)[..., None]
        pixels = np.clip(waves + random.normal(0, 25, (112, 112, 3)), 0, 255).astype(np.uint8)
        picture = Picture(pixels, (112, 112), "PNG")
        packed = geometry.pack([picture], geometry.fit([picture.original]))
    ids = random.integers(0, int(text["vocab_size"]), TOKENS)
    return Probe(packed, ids, int(text.get("position_axes", 3)))


def look(probe: Probe, runner: Runner) -> Seen:
    """Run the probe; uses KV row 0 of a runner that nobody else uses."""
    features = None if probe.packed is None else runner.encode(probe.packed).features
    rows = np.arange(0)
    if features is not None:
        features = features.copy()
        rows = np.arange(min(len(features), TOKENS // 2))
    positions = np.tile(np.arange(TOKENS), (probe.axes, 1))
    chunk = Chunk(probe.ids, positions, 0, rows, None if features is None else features[: len(rows)])
    logits = [runner.complete(runner.prefill(0, chunk)[0][np.newaxis], [True])[0].copy()]
    for step in range(STEPS - 1):
        at = TOKENS + step
        token = int(np.nan_to_num(logits[-1]).argmax())
        logits.append(runner.complete(runner.decode([token], [at], [at]), [True])[0].copy())
    return Seen(features, np.stack(logits))


def compare(probe: Probe, old: Runner, new: Runner) -> Mapping[str, float]:
    """Hold what ``new`` makes of the probe against what ``old`` does. Raises ``Invalid`` where it fails.

    ``old`` is in use: its features are computed (the vision graph has no state), its KV rows are not touched.
    """
    seen = look(probe, new)
    found: dict[str, float] = {}
    if probe.packed is not None and seen.features is not None:
        before = old.encode(probe.packed).features
        found["features_rms_ratio"] = _ratio("The features", seen.features, before)
        found["features_cosine"] = float(
            (seen.features * before).sum() / (np.linalg.norm(seen.features) * np.linalg.norm(before) + 1e-30)
        )
    if not np.isfinite(seen.logits).all():
        raise Invalid(_REFUSED.format("The logits are no finite numbers."), field="new_state_dict")
    if float(seen.logits.std(axis=-1).min()) == 0.0:
        raise Invalid(_REFUSED.format("Every token is as likely as every other."), field="new_state_dict")
    found["logits_std"] = float(seen.logits.std())
    return found


_REFUSED = "The new weights fail the probe: {} The old ones serve on. Check how the new ones were made and converted."


def _ratio(what: str, new: Floats, old: Floats) -> float:
    if not np.isfinite(new).all():
        raise Invalid(_REFUSED.format(f"{what} are no finite numbers."), field="new_state_dict")
    ratio = float(np.sqrt(np.square(new, dtype=np.float64).mean() / (np.square(old, dtype=np.float64).mean() + 1e-30)))
    if not 1 / TIMES <= ratio <= TIMES:
        raise Invalid(
            _REFUSED.format(f"{what} are {ratio:.3g} times as large as the old ones."), field="new_state_dict"
        )
    if float(new.std(axis=0).max()) < 1e-6 * float(old.std(axis=0).max()):
        raise Invalid(_REFUSED.format(f"{what} are the same in every place."), field="new_state_dict")
    return ratio
