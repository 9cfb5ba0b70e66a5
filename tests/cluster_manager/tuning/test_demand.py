"""What jobs may hold, by their profiles and the machines they are on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.tuning.demand import (
    SLOWER,
    DemandBook,
    GpuAmounts,
    demand_of,
    most_per_gpu,
    proportional_demand,
)
from domain.sensitivity import SensitivityProfile
from tests.cluster_manager.tuning.worlds import SHARE
from tests.domain.random_profiles import profiles

ALEXNET = SensitivityProfile(
    (1.0, 3.0, 6.0, 12.0), (20.0, 62.5, 125.0), ((0.1, 0.3, 0.3), (0.1, 1.0, 1.0), (0.1, 1.75, 1.75), (0.1, 2.0, 2.94))
)
GNMT = SensitivityProfile((1.0, 3.0), (20.0, 62.5), ((1.0, 1.0), (1.0, 1.0)))


def test_a_sensitive_job_asks_for_the_most_that_helps_and_reverts_to_its_share() -> None:
    demand = demand_of(ALEXNET, SHARE)
    assert (demand.base, demand.best) == (SHARE, GpuAmounts(12_000, 128_000))
    assert demand.speeds[demand.best_option] == pytest.approx(2.94)


def test_what_is_within_a_hundredth_of_the_greatest_is_saturated_unless_the_share_is_faster() -> None:
    noisy = SensitivityProfile((1.0, 2.0, 4.0, 8.0), (10.0,), ((50.0,), (99.5,), (99.8,), (100.0,)))
    assert demand_of(noisy, GpuAmounts(1_000, 10 * 1024)).best.millicpus == 2_000
    assert demand_of(noisy, GpuAmounts(3_000, 10 * 1024)).best.millicpus == 3_000


def test_an_insensitive_job_asks_for_less_than_its_share() -> None:
    demand = demand_of(GNMT, SHARE)
    assert demand.base == demand.best == GpuAmounts(1_000, 20 * 1024)
    assert demand.share == SHARE
    assert demand.speeds.tolist() == [1.0]


def test_no_more_than_the_machines_have_is_asked_for() -> None:
    assert most_per_gpu(4, 8, 24_000, 512_000) == GpuAmounts(6_000, 128_000)
    assert most_per_gpu(16, 8, 24_000, 512_000) == GpuAmounts(3_000, 64_000)
    assert most_per_gpu(12, 8, 24_000, 512_000) == GpuAmounts(4_000, 85_333)
    assert demand_of(ALEXNET, SHARE, GpuAmounts(6_000, 128_000)).best == GpuAmounts(6_000, 64_000)
    assert demand_of(ALEXNET, SHARE, SHARE).best == SHARE


def test_a_job_without_a_profile_has_its_share() -> None:
    demand = proportional_demand(SHARE)
    assert demand.base == demand.best == SHARE
    assert demand.speeds.tolist() == [1.0]


def test_the_same_question_has_the_same_answer() -> None:
    book = DemandBook()
    assert book.of(ALEXNET, SHARE) is book.of(ALEXNET, SHARE)
    assert book.of(None, SHARE) is book.of(None, SHARE)
    assert book.of(ALEXNET, SHARE) is not book.of(ALEXNET, SHARE, SHARE)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no job runs"):
        demand_of(ALEXNET, GpuAmounts(0, 1))


@given(profiles(), st.integers(100, 30_000), st.integers(100, 600_000), st.integers(0, 30_000), st.integers(0, 600_000))
def test_never_slower_than_the_share_and_never_less_than_the_base(
    profile: SensitivityProfile, millicpus: int, mebibytes: int, more_cpus: int, more_memory: int
) -> None:
    share = GpuAmounts(millicpus, mebibytes)
    most = GpuAmounts(millicpus + more_cpus, mebibytes + more_memory)
    demand = demand_of(profile, share, most)
    assert demand.base.within(share)
    options = [demand.amounts(option) for option in range(len(demand.speeds))]
    for option, amounts in enumerate(options):
        assert demand.base.within(amounts)
        assert amounts.within(most)
        assert demand.speeds[option] >= SLOWER
        assert demand.speeds[option] == profile.speed(amounts.per_gpu, share.per_gpu)
        assert not any(faster.within(amounts) for faster in options[option + 1 :])
    assert demand.speeds.tolist() == sorted(demand.speeds)
    assert demand.speeds[demand.best_option] >= 0.99 * demand.speeds[-1]
