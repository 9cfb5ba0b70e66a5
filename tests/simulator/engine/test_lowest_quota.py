"""A tenant with a quota at the priority of over-quota workloads: what is within it may evict what is over another's."""

from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.rank import OVER_QUOTA_LEVELS
from domain.resources import Quota
from domain.tenant import LOWEST_PRIORITY, Tenant
from simulator.baselines.mast import MAST
from tests.simulator.engine.checked_run import checked_run, one_region, row


def tenants(lowest_gpus: int) -> tuple[Tenant, ...]:
    lowest = Quota.of({ANY_GPU_MODEL: lowest_gpus})
    return (Tenant(TenantId("guests"), 3, Quota.of({}, 0.0)), Tenant(TenantId("night"), LOWEST_PRIORITY, lowest))


ROWS = (
    row("opportunistic", 0.0, 10_000.0, 8, "guests"),
    row("within", 500.0, 1_000.0, 8, "night"),
    row("later", 600.0, 1_000.0, 8, "guests"),
)


def test_within_quota_at_the_lowest_priority_evicts_over_quota() -> None:
    run = checked_run(MAST, ROWS, one_region(1, 8), tenants(8))
    assert run.starts()["within"] < 700.0
    assert run.ends()["within"] < run.starts()["later"]
    (left,) = [entry for entry in run.log if entry["event"] == "evicted"]
    assert (left["workload"], left["by"], left["by_level"]) == ("opportunistic", "within", 0)
    levels = {entry["workload"]: entry["level"] for entry in run.log if entry["event"] == "dispatched"}
    assert levels == {"opportunistic": OVER_QUOTA_LEVELS, "within": 0, "later": OVER_QUOTA_LEVELS}


def test_without_such_a_quota_nothing_evicts_and_levels_are_the_policies() -> None:
    run = checked_run(MAST, ROWS, one_region(1, 8), tenants(0))
    assert not [entry for entry in run.log if entry["event"] == "evicted"]
    assert {entry["level"] for entry in run.log if entry["event"] == "dispatched"} == {0}
