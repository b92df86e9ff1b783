"""How a repair learns: the named presets, and what each figure means."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from foveola.exchange import Invalid

Memory = Literal["seen", "random", "herded"]
PRESETS = ("balanced", "described", "fine_tuning", "kd", "logit_adjusted", "replay")


@dataclass(frozen=True, slots=True)
class DistilOptions:
    """One preset, resolved.

    tau            weight of log π in CE(z + τ log π): 0 is plain cross entropy
    alpha          None, or the α of ``α·KL + (1-α)·CE`` where the two are mixed instead of added
    class_power    weights of classes in the cross entropy, frequency to the power of minus this
    distil         λ of λ_t T² KL(teacher ‖ student); 0 needs no teacher
    temperature    T
    entropy        whether λ_t follows how uneven the labels are, or stays λ
    anchor         γ of γ‖f - f_old‖²: old pictures keep their features, new ones come to the place of their class
    locating       weight of what the token heads learn about boxes
    refit          steps in which they learn anew from memory once the tower stands still; 0: they stay as they came out
    fresh, again   pictures of a step: next of the stream, and from memory. Three from memory to one of the stream: a
                   pass over a short stream has more steps then, and the two lines come closer than with as many of each
    memory         where those come from: all that was seen, a reservoir filled by chance, or one filled by herding
    reservoir      pictures that the reservoir holds of each class and origin
    tail_power     how much more often memory shows rare classes: frequency to the power of minus this
    paste          share of the pictures from memory into which a defect of a rare class is pasted
    restyle        share of the old pictures from memory that are shown as the new line would show them (``camera``)
    average        decay of the averaged weights; 0 takes the last
    rate           peak of AdamW's learning rate
    check_every    steps between two looks at the guard set (0: none); ``patience`` looks without progress end the run
    save_every     steps between two states on disk
    """

    preset: str = "balanced"
    tau: float = 1.0
    alpha: float | None = None
    class_power: float = 0.0
    distil: float = 1.0
    temperature: float = 2.0
    entropy: bool = True
    anchor: float = 10.0
    locating: float = 0.5
    refit: int = 250
    fresh: int = 4
    again: int = 12
    memory: Memory = "herded"
    reservoir: int = 40
    tail_power: float = 0.15
    paste: float = 0.25
    restyle: float = 0.8
    average: float = 0.9
    rate: float = 5e-4
    weight_decay: float = 0.02
    check_every: int = 15
    patience: int = 4
    save_every: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise Invalid(f"preset is {self.preset!r}; expected one of {', '.join(PRESETS)}.", field="preset")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise Invalid(f"alpha is {self.alpha}; expected a share from 0 to 1, such as 0.7.", field="alpha")
        for name in ("fresh", "patience", "save_every", "reservoir"):
            if getattr(self, name) < 1:
                raise Invalid(f"{name} is {getattr(self, name)}; expected at least 1.", field=name)
        for name in (
            "tau",
            "class_power",
            "distil",
            "anchor",
            "locating",
            "refit",
            "again",
            "tail_power",
            "check_every",
            "weight_decay",
        ):
            if not getattr(self, name) >= 0:
                raise Invalid(f"{name} is {getattr(self, name)}; expected at least 0.", field=name)
        for name in ("temperature", "rate"):
            if not getattr(self, name) > 0:
                raise Invalid(f"{name} is {getattr(self, name)}; expected more than 0.", field=name)
        for name in ("paste", "restyle", "average"):
            if not 0 <= getattr(self, name) <= 1:
                raise Invalid(f"{name} is {getattr(self, name)}; expected a share from 0 to 1.", field=name)

    @property
    def keeps_old(self) -> bool:
        """Whether pictures from before the stream are looked at again."""
        return self.memory != "seen"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def preset(name: str, **others: Any) -> DistilOptions:
    """The options of a preset; ``others`` are fields that differ from it.

    ``balanced`` is ours. ``described`` is ``α·KL + (1-α)·weighted CE`` with α = 0.7. The others are what a repair is
    compared with: ``fine_tuning``, ``kd`` (the same mixture, classes not weighted), ``logit_adjusted`` (Menon et al.
    2021, arXiv 2007.07314), ``replay`` (a reservoir filled by chance; Vitter 1985). Raises ``Invalid``.
    """
    plain: dict[str, Any] = {
        "tau": 0.0, "distil": 0.0, "entropy": False, "anchor": 0.0, "memory": "seen", "tail_power": 0.0, "paste": 0.0,
        "restyle": 0.0, "average": 0.0, "check_every": 0, "refit": 0, "rate": 3e-4,
    }  # fmt: skip
    mixed = {"alpha": 0.7, "distil": 1.0}
    differs: dict[str, dict[str, Any]] = {
        "balanced": {},
        "described": plain | mixed | {"class_power": 1.0},
        "fine_tuning": plain,
        "kd": plain | mixed,
        "logit_adjusted": plain | {"tau": 1.0},
        "replay": plain | {"memory": "random"},
    }
    return replace(DistilOptions(preset=name), **(differs[name] | others))
