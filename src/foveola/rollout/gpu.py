"""Parts of GPUs: which there are, what a declaration becomes in Kubernetes, and how slices are packed.

MIG cuts a GPU into memory slices; a profile may begin only at certain ones (``nvidia-smi mig -lgipp``). The tables are
NVIDIA's (MIG User Guide, "Supported MIG profiles"). Nothing here talks to a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from foveola.exchange import Invalid
from foveola.rollout.release import Gpu


@dataclass(frozen=True, slots=True)
class Profile:
    """A MIG profile: compute slices of 7, memory slices of 8, and the memory slices at which it may begin."""

    name: str
    compute: int
    memory: int
    starts: tuple[int, ...]


def _profiles(one: int, two: int, three: int, four: int, seven: int) -> tuple[Profile, ...]:
    """The common layout of A100, H100 and H200 by the gigabytes of each profile."""
    return (
        Profile(f"1g.{one}gb", 1, 1, (0, 1, 2, 3, 4, 5, 6)),
        Profile(f"2g.{two}gb", 2, 2, (0, 2, 4)),
        Profile(f"3g.{three}gb", 3, 4, (0, 4)),
        Profile(f"4g.{four}gb", 4, 4, (0,)),
        Profile(f"7g.{seven}gb", 7, 8, (0,)),
    )


MODELS: dict[str, tuple[Profile, ...]] = {
    "a100-40gb": _profiles(5, 10, 20, 20, 40),
    "a100-80gb": _profiles(10, 20, 40, 40, 80),
    "h100-80gb": _profiles(10, 20, 40, 40, 80),
    "h200-141gb": _profiles(18, 35, 71, 71, 141),
}
MEMORY_SLICES, COMPUTE_SLICES = 8, 7
MEMORY_MIB = {"a100-40gb": 40 * 1024, "a100-80gb": 80 * 1024, "h100-80gb": 80 * 1024, "h200-141gb": 141 * 1024}


def profile_of(gpu: Gpu) -> Profile:
    """The MIG profile of a fraction such as ``2/7``. Raises ``Invalid`` that lists the fractions there are."""
    if gpu.model not in MODELS:
        raise Invalid(f"The GPU model {gpu.model!r} is not known; there are: {', '.join(MODELS)}.", field="gpu.model")
    valid = {Fraction(one.compute, COMPUTE_SLICES): one for one in MODELS[gpu.model]}
    try:
        asked = Fraction(gpu.fraction or "")
    except (ValueError, ZeroDivisionError):
        asked = Fraction(0)
    if asked not in valid:
        listed = ", ".join(f"{one.compute}/7 ({one.name})" for one in MODELS[gpu.model])
        raise Invalid(
            f"A {gpu.model} cannot be cut into {gpu.fraction!r}; it can into: {listed}.", field="gpu.fraction"
        )
    return valid[asked]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a container and its pod need: ``limits`` of the container, and for DRA a claim template beside the pod."""

    limits: dict[str, str]
    claims: tuple[dict[str, str], ...] = ()
    pod_claims: tuple[dict[str, str], ...] = ()
    template: dict[str, Any] | None = None


def claim_of(gpu: Gpu, name: str, namespace: str) -> Claim:
    """One declaration as MIG resource, DRA claim (resource.k8s.io/v1) or vGPU keys. Raises ``Invalid``.

    ``nvidia.com/gpu: 0.2`` is no valid quantity of an extended resource: Kubernetes counts those in whole numbers.
    """
    if gpu.mode == "vgpu":
        return _vgpu(gpu)
    profile = profile_of(gpu)
    if gpu.mode == "mig":
        return Claim({f"nvidia.com/mig-{profile.name}": "1"})
    selector = (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
        f" && device.attributes['gpu.nvidia.com'].profile == '{profile.name}'"
    )
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "gpu",
                            "exactly": {
                                "deviceClassName": "mig.nvidia.com",
                                "selectors": [{"cel": {"expression": selector}}],
                            },
                        }
                    ]
                }
            }
        },
    }
    return Claim({}, ({"name": "gpu"},), ({"name": "gpu", "resourceClaimTemplateName": name},), template)


def _vgpu(gpu: Gpu) -> Claim:
    if gpu.model not in MEMORY_MIB:
        raise Invalid(
            f"The GPU model {gpu.model!r} is not known; there are: {', '.join(MEMORY_MIB)}.", field="gpu.model"
        )
    whole = MEMORY_MIB[gpu.model]
    if gpu.memory_mib is None or not 256 <= gpu.memory_mib <= whole:
        raise Invalid(
            f"A vGPU of {gpu.memory_mib} MiB is not to be had on a {gpu.model}; ask for 256 to {whole} MiB.",
            field="gpu.memoryMiB",
        )
    cores = max(1, round(100 * gpu.memory_mib / whole))
    # The keys of HAMi's device plugin: memory in MiB, cores in per cent.
    return Claim({"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(gpu.memory_mib), "nvidia.com/gpucores": str(cores)})


def replicas_for(weights: dict[str, int], concurrency: dict[str, int], demand: int) -> dict[str, int]:
    """How many replicas each version needs so that ``demand`` requests at once, split by weight, are within each
    version's max concurrency per replica. A version of weight 0 needs none."""
    total = sum(weights.values())
    if total <= 0:
        raise Invalid("All weights are 0; at least one version must get requests.", field="weights")
    return {name: -(-demand * weight // (total * concurrency[name])) for name, weight in weights.items()}
