"""How many updates become one. All take ``updates`` float32 ``[K, size]`` and ``weights`` float ``[K]``.

``centred_clip`` is Karimireddy, He, Jaggi: "Learning from history for Byzantine robust optimization" (ICML 2021).
``median`` and ``trimmed_mean`` (Yin et al., ICML 2018) are here to compare with. All but the weighted mean need to
see single updates, which secure aggregation hides: they exclude one another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foveola.learn.federate.codec import Floats

Weights = NDArray[np.float64]
CENTRED_PASSES = 3
TRIMMED_SHARE = 0.2
REMEMBERED = 0.97
"""How much of a node's score is left after a round: the early rounds, where honest nodes agree most, tell most."""
BOUND, QUARTILE = 2.0, 0.75
"""Upper quartiles of the norms. Late in training most nodes have hardly anything left to say and a few, whose classes
are rare, pull against them: at three medians what these know was held back, which cost more than attackers did."""
_SLACK = 1e-12


def capped_weights(examples: NDArray[np.int64], cap: float) -> Weights:
    """Weights that sum to 1: what nodes claim to have seen, at most ``cap`` times the median and at least one."""
    claimed = np.maximum(examples.astype(np.float64), 1.0)
    held = np.minimum(claimed, cap * float(np.median(claimed)))
    weights: Weights = held / held.sum()
    return weights


def clip_norms(updates: Floats, limit: float) -> Floats:
    """Every update scaled down to an L2 norm of at most ``limit``."""
    norms = np.sqrt(np.einsum("ks,ks->k", updates, updates, dtype=np.float64))
    scales = np.minimum(1.0, limit / np.maximum(norms, _SLACK)).astype(np.float32)
    return updates if (scales == 1).all() else updates * scales[:, None]


def weighted_mean(updates: Floats, weights: Weights) -> Floats:
    """float32 ``[size]``."""
    mean: Floats = weights.astype(np.float32) @ updates
    return mean


def centred_clip(updates: Floats, weights: Weights, centre: Floats, radius: float | None = None) -> Floats:
    """v ← v + Σ w (u − v) min(1, τ / ‖u − v‖), ``CENTRED_PASSES`` times from ``centre`` (the last round's result).

    ``radius`` τ is by default the median distance from the centre: a majority of honest nodes bounds everyone.
    """
    found = centre
    for _ in range(CENTRED_PASSES):
        apart = updates - found
        far = np.sqrt(np.einsum("ks,ks->k", apart, apart))
        reach = float(np.median(far)) if radius is None else radius
        scales = np.minimum(1.0, reach / np.maximum(far, _SLACK))
        found = found + (weights * scales).astype(np.float32) @ apart
    return found


def bounded_mean(updates: Floats, weights: Weights, bound: float = BOUND, share: float = QUARTILE) -> Floats:
    """The weighted mean after every norm was clipped to ``bound`` times the quantile ``share`` of the norms: one pass
    of centred clipping around 0. As long as fewer than 1 - ``share`` are malicious, honest nodes set the bound."""
    return weighted_mean(clip_norms(updates, bound * float(np.quantile(_norms(updates), share))), weights)


def along(updates: Floats, weights: Weights) -> Weights:
    """float64 ``[K]``: how far each update goes along with the round, times how much of a direction the round has.

    The direction is the mean bounded to one median, which a fifth of flipped updates cannot turn. Late rounds, in which
    honest nodes pull in all directions, hardly say anything. An update counts for its own direction too: near the end
    everybody pulls against the rest, since the sum of all is 0.
    """
    direction, norms = bounded_mean(updates, weights, 1.0, 0.5), _norms(updates)
    shares: Weights = (updates @ direction).astype(np.float64) / np.maximum(norms * float(norms.mean()), _SLACK)
    return shares


def _norms(updates: Floats) -> Weights:
    norms: Weights = np.sqrt(np.einsum("ks,ks->k", updates, updates, dtype=np.float64))
    return norms


def median(updates: Floats) -> Floats:
    """The median of every coordinate. Of sparse updates it is mostly 0: most nodes are silent about most entries."""
    middle: Floats = np.median(updates, axis=0).astype(np.float32)
    return middle


def trimmed_mean(updates: Floats, share: float = TRIMMED_SHARE) -> Floats:
    """The mean of every coordinate without its ``share`` largest and ``share`` smallest values."""
    count = len(updates)
    cut = min(int(count * share), (count - 1) // 2)
    ordered = np.partition(updates, (cut, count - cut - 1), axis=0)
    inner: Floats = ordered[cut : count - cut].mean(axis=0)
    return inner


def agreement(updates: Floats, weights: Weights, change: Floats) -> Weights:
    """float64 ``[K]``: the cosine of each update with what the others made of the round (its own part is taken out)."""
    norms = np.sqrt(np.einsum("ks,ks->k", updates, updates, dtype=np.float64))
    own = weights * norms**2
    along = (updates @ change).astype(np.float64) - own
    rest = np.sqrt(np.maximum(float(change @ change) - 2 * weights * (along + own) + (weights * norms) ** 2, _SLACK))
    cosines: Weights = along / np.maximum(norms * rest, _SLACK)
    return cosines


def aggregate(
    rule: str, updates: Floats, examples: NDArray[np.int64], scores: Weights, *, centre: Floats, clip: float,
    weight_cap: float, doubted: NDArray[np.bool_] | None = None,
) -> tuple[Floats, Weights]:  # fmt: skip
    """One update out of many by ``rule`` (``options.RULES``), after every norm was clipped; and new scores.

    ``scores`` float64 ``[K]`` is how far each node agreed with the others so far, 0 for a new one. Under ``bounded``
    and ``centred`` a node whose score is below 0 does not count while most others do; what makes a score differs. Under
    ``bounded`` nor does one who is ``doubted`` bool ``[K]`` (``answers``).
    """
    weights, held = capped_weights(examples, weight_cap), clip_norms(updates, clip)
    if rule == "mean":
        return weighted_mean(held, weights), scores
    if rule == "bounded":
        scores = scores + along(held, weights)
        trusted = scores >= 0 if doubted is None else (scores >= 0) & ~doubted
        if not trusted.all() and trusted.sum() > len(trusted) / 2:
            held, weights = held[trusted], weights[trusted] / weights[trusted].sum()
        return bounded_mean(held, weights), scores
    if rule == "median":
        return median(held), scores
    if rule == "trimmed":
        return trimmed_mean(held), scores
    change = centred_clip(held, weights, centre)
    scores = REMEMBERED * scores + agreement(held, weights, change)
    trusted = scores >= 0
    if trusted.all() or trusted.sum() <= len(trusted) / 2:
        return change, scores
    return centred_clip(held[trusted], weights[trusted] / weights[trusted].sum(), centre), scores
