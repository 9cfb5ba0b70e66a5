"""The service of completed workloads as it grows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import TenantId
from domain.service_scope import DistributionScope
from global_scheduler.service_distribution import ServiceDistribution
from global_scheduler.service_history import LEAST_SAMPLES_OF_A_TENANT, ServiceHistory

ASH, BIRCH = TenantId("ash"), TenantId("birch")
SAMPLES = st.lists(st.floats(0.5, 1e6), max_size=60)


def samples_of(history: ServiceHistory, tenant: TenantId = ASH) -> list[float]:
    distribution = history.distribution_for(tenant)
    return [] if distribution is None else distribution.samples_gpu_s.tolist()


def test_before_the_first_completion_there_is_no_distribution() -> None:
    history = ServiceHistory()
    assert history.distribution_for(ASH) is None
    assert history.in_force((ASH,), np.zeros(1, np.int32)) is None


def test_what_took_no_gpus_says_nothing() -> None:
    history = ServiceHistory()
    assert not history.completed(ASH, 0.0)
    assert history.distribution_for(ASH) is None


@given(SAMPLES, SAMPLES)
def test_never_lacks_more_than_a_tenth_of_what_is_in_force(given_gpu_s: list[float], more_gpu_s: list[float]) -> None:
    history = ServiceHistory(samples_gpu_s=given_gpu_s)
    so_far = list(given_gpu_s)
    in_force = sorted(given_gpu_s)
    for sample in more_gpu_s:
        so_far.append(sample)
        renewed = history.completed(ASH, sample)
        assert renewed == (samples_of(history) != in_force)
        in_force = samples_of(history)
        assert in_force == sorted(so_far[: len(in_force)]), "the first ones"
        assert (len(so_far) - len(in_force)) * 10 < len(in_force)


def test_a_tenant_has_a_distribution_of_its_own_when_it_has_enough() -> None:
    history = ServiceHistory(DistributionScope.TENANT, [1_000.0])
    for _ in range(LEAST_SAMPLES_OF_A_TENANT - 1):
        history.completed(ASH, 5.0)
    assert 1_000.0 in samples_of(history)
    renewed = False
    while 1_000.0 in samples_of(history):
        renewed = history.completed(ASH, 5.0)
    assert renewed
    assert LEAST_SAMPLES_OF_A_TENANT <= len(samples_of(history)) <= LEAST_SAMPLES_OF_A_TENANT * 1.1
    assert 1_000.0 in samples_of(history, BIRCH)


def test_rows_go_by_the_distribution_of_their_tenant() -> None:
    history = ServiceHistory(DistributionScope.TENANT)
    for _ in range(LEAST_SAMPLES_OF_A_TENANT + 2):
        history.completed(ASH, 10.0)
        history.completed(BIRCH, 40.0)
    history.completed(TenantId("cedar"), 80.0)
    tenants = (ASH, BIRCH, TenantId("cedar"))
    service = history.in_force(tenants, np.array([1, 0, 2, 0], np.int32))
    assert service is not None
    attained, quantum = np.array([0.0, 0.0, 0.0, 20.0]), np.full(4, np.inf)
    alone = [history.distribution_for(tenants[row]) for row in (1, 0, 2, 0)]
    assert service.index(attained, quantum).tolist() == [
        one.index_of(a, np.inf) for one, a in zip(alone, attained.tolist(), strict=True) if one is not None
    ]
    chosen = service.rows(np.array([False, True, False, True]))
    assert chosen.index(attained[[1, 3]], quantum[[1, 3]]).tolist() == [1 / 10.0, 0.0]


@pytest.mark.parametrize("sample", [0.0, -1.0, float("nan"), float("inf")])
def test_a_given_sample_that_is_none_is_refused(sample: float) -> None:
    with pytest.raises(ValueError, match="GPU-seconds"):
        ServiceHistory(samples_gpu_s=[100.0, sample])


def test_one_workload_gets_what_columns_get() -> None:
    distribution = ServiceDistribution([50.0, 100.0, 100.0, 1_500.0])
    for attained in (0.0, 50.0, 99.5, 1_500.0):
        for quantum in (1.0, 100.0, np.inf):
            together = distribution.index(np.array([attained]), np.array([quantum]))
            assert distribution.index_of(attained, quantum) == together[0]
