"""The losses of a repair. Logits are the log-likelihoods that the model gives to each class's answer, float32 [B, C].

L = CE(z + τ log π) + λ_t T² KL(teacher ‖ student) + γ ‖f - f_old‖² / ‖f_old‖²
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def prior(counts: Tensor, smoothing: float = 1.0) -> Tensor:
    """Shares [C] of classes seen ``counts`` [C] times; one that was never seen is not impossible."""
    smoothed = counts.to(torch.float32) + smoothing
    return smoothed / smoothed.sum()


def adjusted_cross_entropy(
    logits: Tensor, targets: Tensor, shares: Tensor, tau: float, weights: Tensor | None = None
) -> Tensor:
    """Cross entropy of ``z + τ log π`` (Menon et al. 2021, eq. 10) with soft targets [B, C]; 0 for an empty batch.

    The prior belongs to what the loss is shown, not to the world: afterwards ``z`` alone is as if all classes were as
    frequent. ``weights`` [C] are those of classes.
    """
    if not len(logits):
        return logits.sum()
    nll = -(targets * (logits + tau * shares.log()).log_softmax(-1))
    if weights is None:
        return nll.sum(-1).mean()
    weighed = targets * weights
    return (nll * weights).sum() / weighed.sum().clamp(min=1e-6)


def class_weights(shares: Tensor, power: float) -> Tensor:
    """Weights [C], ``share ** -power``, whose mean over pictures is 1."""
    raw = shares**-power
    return raw / (raw * shares).sum()


def distillation(
    teacher: Tensor, student: Tensor, temperature: float, trust: Tensor, *, balanced: bool = True
) -> Tensor:
    """``T² KL(teacher ‖ student)`` (Hinton et al. 2015); ``balanced``: each class that the teacher sees counts alike.

    ``trust`` [B] in 0..1 says how far the teacher is believed about a picture. 0 where it is believed nowhere.
    """
    if not bool((trust > 0).any()):
        return student.sum() * 0
    soft = (teacher / temperature).log_softmax(-1)
    apart = F.kl_div((student / temperature).log_softmax(-1), soft, log_target=True, reduction="none").sum(-1)
    seen = teacher.argmax(-1)
    mass = torch.zeros(teacher.shape[-1]).index_add(0, seen, trust)
    each = trust / mass[seen].clamp(min=1e-6) if balanced else trust
    return temperature**2 * (apart * each).sum() / each.sum()


def trust_in_teacher(teacher: Tensor, labels: Tensor, old: Tensor, least: float = 0.8) -> Tensor:
    """[B] in 0..1: 1 for pictures of the kind the teacher grew up with (``old`` [B]) and where it names the label;
    0 where it does not; of pictures without a label (-1) where it is surer than ``least``."""
    likely, said = teacher.softmax(-1).max(-1)
    known = labels >= 0
    fresh = torch.where(known, said == labels, likely >= least)
    return (old | fresh).to(torch.float32)


def unevenness(shares: Tensor) -> float:
    """``1 - H(π) / log C``: 0 where all classes are as frequent, 1 where there is only one."""
    entropy = float(-(shares * shares.clamp(min=1e-12).log()).sum())
    return max(0.0, 1.0 - entropy / math.log(len(shares)))


def anchor(features: Tensor, wanted: Tensor, scale: float) -> Tensor:
    """``‖f - f_old‖² / scale``, the mean over rows; ``scale`` is the usual ‖f_old‖². 0 for none."""
    if not len(features):
        return features.sum()
    return (features - wanted).square().sum(-1).mean() / scale


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 10) -> float:
    """Mean distance of confidence and accuracy over bins of equal width (Guo et al. 2017)."""
    sure, said = probabilities.max(-1)
    right = (said == labels).to(torch.float32)
    place = (sure * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins).index_add(0, place, sure - right)
    return float(gap.abs().sum() / max(1, len(labels)))
