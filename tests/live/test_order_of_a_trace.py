"""A slice of Philly through a running service, every tier a process of its own, on a compressed clock: what the simulator makes
of the same submissions starts in nearly the same order.

Real processes cannot repeat an order exactly. A pass comes some tenths of a second after what causes it, minutes on this clock; where two
ends or arrivals are closer than that, the other one may be first; and each end is as late as the start before it. The exact order,
with its times, is compared on a clock that stands still while anything is done (tests/simulator/contract/test_tiresias_in_cells.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from domain.events import EventKind
from domain.identifiers import WorkloadId
from formats.scheduler_file import EvictionSection
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from services.configuration import Configuration, ScanConfiguration
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from tests.live.real_service import RealService, real_service
from tests.simulator.contract.test_tiresias_in_cells import (
    POLICY,
    PRIORITIES,
    TRACE,
    fleet_and_tenants,
    philly_rows,
)

pytestmark = [pytest.mark.live, pytest.mark.nightly, pytest.mark.timeout(1_800)]

COUNT = 300
CLOCK_SPEED = 1_200.0
SCAN_PERIOD_REAL_S = 0.2
LEAST_RANK_CORRELATION = 0.99
UNBOUNDED = EvictionSection(minimum_run_time_s=0.0, evictions_per_workload_and_hour=None)
SETTINGS = SimulationSettings(
    # Emulated attempts start, save and stop at once.
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=0.0),
    scan_period_s=SCAN_PERIOD_REAL_S * CLOCK_SPEED,
    eviction=UNBOUNDED,
)


def submit_when_due(service: RealService, rows: Sequence[TraceRow]) -> list[str]:
    """Submits the rows at their distances on the service's clock; the names that it gave them."""
    greatest = greatest_gpus_per_machine(service.fleet)
    begin_real_s = time.monotonic()
    names = []
    for row in rows:
        due_real_s = begin_real_s + (row.submit_s - rows[0].submit_s) / CLOCK_SPEED
        time.sleep(max(0.0, due_real_s - time.monotonic()))  # the pace of the trace: nothing is waited for
        names += service.submit([workload_of_row(row, greatest)])
    return names


def first_starts_s(events: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """When each workload first started."""
    found: dict[str, float] = {}
    for kind, workload, at_s in events:
        if kind == EventKind.STARTED:
            found.setdefault(workload, at_s)
    return found


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's, of two orders of the same; those at one time have one rank."""
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, places, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[places])


@pytest.mark.skipif(not TRACE.exists(), reason="the trace is not on this machine (TOPMAST_TRACES names its folder)")
def test_300_workloads_of_philly_start_in_nearly_the_simulated_order() -> None:
    declared, fleet, tenants = fleet_and_tenants()
    configuration = Configuration(
        scan=ScanConfiguration(period_real_s=SCAN_PERIOD_REAL_S, debounce_real_s=0.02),
        priorities=PRIORITIES,
        eviction=UNBOUNDED,
    )
    rows = philly_rows(COUNT)
    with real_service(declared, tenants, CLOCK_SPEED, configuration) as service:
        names = submit_when_due(service, rows)
        service.until_all_ended()
        report = service.check()
        told = [(event.event, event.workload or "", event.t) for event in service.events]
    assert report.events_by_kind["completed"] == COUNT
    assert report.events_by_kind["promoted"] > 0
    assert report.events_by_kind["evicting"] > 0

    submitted_s = {workload: at_s for kind, workload, at_s in told if kind == EventKind.SUBMITTED}
    as_submitted = [
        TraceRow(WorkloadId(name), row.tenant, submitted_s[name], row.duration_s, row.gpus)
        for name, row in zip(names, rows, strict=True)
    ]
    assert all(one.submit_s <= other.submit_s for one, other in pairwise(as_submitted))
    simulated: list[tuple[str, str, float]] = []
    simulate(
        SimulationInput("slice", as_submitted, fleet, tenants),
        POLICY,
        SETTINGS,
        seed=1,
        sink=lambda event: simulated.append((event.event, str(event.workload), event.t)),
    )
    live_s, simulated_s = first_starts_s(told), first_starts_s(simulated)
    correlation = rank_correlation([live_s[name] for name in names], [simulated_s[name] for name in names])
    assert correlation >= LEAST_RANK_CORRELATION
