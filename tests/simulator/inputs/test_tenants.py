"""Tenants of a trace that comes without a tenants.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import ANY_GPU_MODEL
from domain.tenant import Tenant
from formats.tenants_file import check_tenants
from formats.trace import TraceRow
from simulator.inputs.tenants import tenants_of_trace, unlimited_tenants
from tests.simulator.inputs.rows import many_rows, row

ROWS = (
    row("a", 0, 300, 10, "big"),
    row("b", 0, 10, 16, "spiky"),
    row("c", 0, 840, 1, "small"),
    row("d", 0, 1, 200, "huge"),
)


def quotas(tenants: Iterable[Tenant]) -> dict[str, int]:
    return {t.tenant: t.quota.gpus_in(ANY_GPU_MODEL) for t in tenants}


def test_a_quota_is_the_share_of_gpu_seconds_but_at_least_the_largest_job() -> None:
    tenants = tenants_of_trace(ROWS, 100)
    assert quotas(tenants) == {"big": 71, "huge": 100, "small": 20, "spiky": 16}
    assert [t.tenant for t in tenants] == sorted(t.tenant for t in tenants)
    assert {t.priority for t in tenants} == {3}
    assert all(t.quota.cpus is None for t in tenants)


def test_a_priority_is_the_one_that_most_rows_have() -> None:
    rows = [replace(ROWS[0], priority=p) for p in (5, 1, 1, 5, None)] + [ROWS[1]]
    big, spiky = tenants_of_trace(rows, 100, default_priority=4)
    assert (big.priority, spiky.priority) == (1, 4)


def test_unlimited_tenants_are_never_over_quota() -> None:
    rows = [replace(ROWS[0], priority=1), ROWS[1]]
    assert {t.priority for t in unlimited_tenants(rows)} == {3}
    assert {t.priority for t in unlimited_tenants(rows, priorities=True)} == {1, 3}
    assert min(quotas(unlimited_tenants(rows)).values()) >= 10_000_000


@given(rows=many_rows(), gpus=st.integers(1, 1000))
def test_never_gives_a_quota_that_its_jobs_cannot_use(rows: tuple[TraceRow, ...], gpus: int) -> None:
    tenants = tenants_of_trace(rows, gpus)
    assert {t.tenant for t in tenants} == {r.tenant for r in rows}
    assert not rows or check_tenants(tenants) == []
    given_gpus = quotas(tenants)
    assert all(min(r.gpus, gpus) <= given_gpus[r.tenant] <= gpus for r in rows)
