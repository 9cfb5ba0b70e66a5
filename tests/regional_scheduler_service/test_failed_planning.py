"""What the log says of planning that fails: which workloads, but never a line for each round, nor for each of a long queue."""

from __future__ import annotations

import structlog

from data_placement.catalog import Catalog
from domain.identifiers import WorkloadId
from services.clock import SystemClock
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.revision_store import Revisions
from services.metrics.service_metrics import ServiceMetrics
from services.regional_scheduler.failed_planning import MOST_TOLD, TOLD_AGAIN_REAL_S, FailedPlanningWatch
from services.regional_scheduler.invariant_watch import InvariantWatch
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.region_metrics import RegionMetrics
from tests.database.small_world import EAST, FLEET, TENANTS

ROUNDS = 50


def test_each_is_told_once_an_hour_and_of_many_some() -> None:
    memory = make_memory(Revisions(1, 1, 1), FLEET, {}, TENANTS, Catalog(), [], EAST)
    assert memory is not None
    metrics = ServiceMetrics()
    invariants = InvariantWatch(Database("postgresql:///none"), Lease("", "", 1), memory, SystemClock(), 0.0)
    watch = FailedPlanningWatch(memory, RegionMetrics(EAST, metrics), invariants, 0.0)

    def told(now_real_s: float, *workloads: str) -> list[str]:
        with structlog.testing.capture_logs() as logs:
            for _ in range(ROUNDS):
                for workload in workloads:
                    memory.inventory.faults.planning_failed(WorkloadId(workload), ZeroDivisionError())
                    watch.tell(now_real_s)
        return [line["workload"] for line in logs]

    assert told(1.0, "first") == ["first"]
    assert told(2.0, "first", "second") == ["second"]
    assert len(told(3.0, *(f"w{number}" for number in range(2_000)))) == MOST_TOLD - 2
    assert told(TOLD_AGAIN_REAL_S - 1.0, "first", "late") == []
    assert told(TOLD_AGAIN_REAL_S + 1.0, "first", "late") == ["first", "late"]
    counted = metrics.registry.get_sample_value("topmast_failed_plans_total", {"region": EAST})
    assert counted == ROUNDS * (1 + 2 + 2_000 + 2 + 2)
