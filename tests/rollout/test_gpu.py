from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.exchange import Invalid
from foveola.rollout.gpu import MODELS, claim_of, profile_of, replicas_for
from foveola.rollout.packing import Slice, check, exact, first_fit, pack
from foveola.rollout.release import Gpu

PROFILES = MODELS["h100-80gb"]
SLICES = st.lists(st.sampled_from(PROFILES), max_size=14).map(
    lambda found: [Slice(f"s{i}", profile) for i, profile in enumerate(found)]
)


def test_a_fraction_becomes_each_of_three_things() -> None:
    mig = claim_of(Gpu("mig", "h100-80gb", "1/7"), "v1", "plant")
    assert mig.limits == {"nvidia.com/mig-1g.10gb": "1"}
    dra = claim_of(Gpu("dra", "h200-141gb", "2/7"), "v1", "plant")
    assert dra.limits == {}
    assert dra.pod_claims == ({"name": "gpu", "resourceClaimTemplateName": "v1"},)
    assert dra.template is not None
    request = dra.template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert "profile == '2g.35gb'" in request["selectors"][0]["cel"]["expression"]
    vgpu = claim_of(Gpu("vgpu", "a100-40gb", memory_mib=2048), "v1", "plant")
    assert vgpu.limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2048", "nvidia.com/gpucores": "5"}


@pytest.mark.parametrize("fraction", ["0.2", "5/7", "1/0", "-1/7", "", "half", None])
def test_an_invalid_fraction_is_refused_with_the_valid_ones(fraction: str | None) -> None:
    with pytest.raises(Invalid) as refused:
        profile_of(Gpu("mig", "a100-40gb", fraction))
    listed = "1/7 (1g.5gb), 2/7 (2g.10gb), 3/7 (3g.20gb), 4/7 (4g.20gb), 7/7 (7g.40gb)"
    assert refused.value.message == f"A a100-40gb cannot be cut into {fraction!r}; it can into: {listed}."
    assert refused.value.field == "gpu.fraction"


@pytest.mark.parametrize("memory", [None, 100, 50_000])
def test_a_vgpu_that_does_not_exist_is_refused(memory: int | None) -> None:
    with pytest.raises(
        Invalid, match=f"A vGPU of {memory} MiB is not to be had on a a100-40gb; ask for 256 to 40960 MiB"
    ):
        claim_of(Gpu("vgpu", "a100-40gb", memory_mib=memory), "v1", "plant")
    with pytest.raises(Invalid, match="The GPU model 'k80' is not known"):
        profile_of(Gpu("mig", "k80", "1/7"))


def test_replicas_carry_the_demand_by_weight() -> None:
    # 80 % with 12 at once on a MIG slice, 20 % with 3 at once on a vGPU.
    assert replicas_for({"v1": 80, "v2": 20}, {"v1": 12, "v2": 3}, 60) == {"v1": 4, "v2": 4}
    assert replicas_for({"v1": 1, "v2": 0}, {"v1": 1, "v2": 1}, 3) == {"v1": 3, "v2": 0}


@given(st.dictionaries(st.sampled_from("abc"), st.integers(0, 100), min_size=1), st.integers(0, 500))
def test_no_replica_gets_more_than_it_can(weights: dict[str, int], demand: int) -> None:
    if not sum(weights.values()):
        return
    concurrency = {name: 3 + index for index, name in enumerate(weights)}
    replicas = replicas_for(weights, concurrency, demand)
    for name, weight in weights.items():
        share = demand * weight / sum(weights.values())
        assert replicas[name] * concurrency[name] >= share - 1e-9
        assert (replicas[name] - 1) * concurrency[name] < share or replicas[name] == 0


@settings(max_examples=60, deadline=None)
@given(SLICES, st.integers(0, 4))
def test_a_packing_is_possible_and_complete(slices: list[Slice], gpus: int) -> None:
    found = pack(slices, gpus, "h100-80gb")
    check(found)
    assert sorted([place.slice.name for place in found.places] + [one.name for one in found.left]) == sorted(
        one.name for one in slices
    )
    assert found.gpus_used <= gpus
    assert found == pack(slices, gpus, "h100-80gb")


@settings(max_examples=40, deadline=None)
@given(SLICES.filter(lambda found: len(found) <= 7), st.integers(1, 3))
def test_small_cases_reach_the_optimum(slices: list[Slice], gpus: int) -> None:
    found, best, naive = (way(slices, gpus, "h100-80gb") for way in (pack, exact, first_fit))
    check(best)
    check(naive)

    def lost(packing: object) -> int:
        return sum(one.profile.compute for one in packing.left)  # type: ignore[attr-defined]

    assert (lost(found), found.gpus_used) == (lost(best), best.gpus_used)
    assert lost(best) <= lost(naive)


def test_order_of_arrival_misleads_first_fit() -> None:
    small, large = PROFILES[0], PROFILES[3]
    slices = [Slice("a", small), Slice("b", large)]
    assert first_fit(slices, 1, "h100-80gb").left == (slices[1],)
    assert pack(slices, 1, "h100-80gb").left == ()
