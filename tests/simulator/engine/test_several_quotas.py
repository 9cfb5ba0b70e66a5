"""Quotas at several priorities in a simulation, and what the validator says of logs that break them."""

from dataclasses import replace

from domain.identifiers import ANY_GPU_MODEL
from domain.resources import Quota
from domain.tenant import Tenant
from simulator.baselines.mast import MAST
from simulator.validate import validate
from simulator.validation.report import Invariant
from tests.simulator.engine.checked_run import CheckedRun, checked_run, one_region, row

FLEET = one_region(2, 8)


def gpus(count: int) -> Quota:
    return Quota.of({ANY_GPU_MODEL: count})


TEAM = Tenant(row("w", 0.0, 1.0).tenant, 4, gpus(8), further_quotas=((1, gpus(8)),))
ROWS = (
    row("low", 0.0, 1_000.0, 8),
    row("over", 1.0, 1_000.0, 8),
    replace(row("urgent", 100.0, 500.0, 8), priority=1),
    replace(row("unknown", 150.0, 10.0, 8), priority=2),
)


def run() -> CheckedRun:
    return checked_run(MAST, ROWS, FLEET, (TEAM,))


def test_what_is_asked_for_where_there_is_a_quota_evicts_what_is_over_another() -> None:
    found = run()
    dispatched = {
        str(entry["workload"]): (entry["priority"], entry["within_quota"])
        for entry in reversed(found.log)
        if entry["event"] == "dispatched"
    }
    assert dispatched["low"] == (4, True)
    assert dispatched["urgent"] == (1, True)
    assert found.starts()["urgent"] < 400.0
    asked = {
        str(entry["workload"]): entry.get("asked_priority") for entry in found.log if entry["event"] == "submitted"
    }
    # The tenant has no quota at 2: what names that in a trace has the tenant's own priority.
    assert asked == {"low": None, "over": None, "urgent": 1, "unknown": None}


def test_the_quota_at_each_priority_is_checked() -> None:
    log = run().log
    for wrong in (
        replace(TEAM, further_quotas=((1, gpus(7)),)),
        replace(TEAM, further_quotas=((2, gpus(8)),)),
        replace(TEAM, quota=gpus(7)),
    ):
        report = validate(log, FLEET, (wrong,), complete=True)
        assert set(report.violations_by_invariant) == {Invariant.I4}
