"""Static demands of CPUs and memory, simulated and in the service's code: the same starts, in the same order, with as much.

The same random worlds go through the simulator and through the live service's scan loop, auctioneers and dispatching, on real
PostgreSQL and virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from domain.events import Event, EventKind
from domain.fleet import Fleet
from domain.workload import Workload
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from services.database.engine import Database
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policy_called
from simulator.validate import validate
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime
from tests.simulator.engine.checked_run import unlimited
from tests.simulator.engine.profiled_run import PROFILES, fleet_of, trained

SETTINGS = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=0.0)
)


class Started(NamedTuple):
    """That a workload started, where and with how much."""

    t: float
    workload: str
    placement: str


def world(seed: int, workloads: int) -> list[TraceRow]:
    """A crowd: what is hungry leaves GPUs idle."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(workloads):
        model = ("hungry", "lean", "")[int(rng.integers(3))]
        gpus = (1, 1, 2, 4)[int(rng.integers(4))]
        submit_s, duration_s = float(rng.integers(600)), float(rng.integers(60, 1_500))
        rows.append(trained(f"w{number:03}", submit_s, duration_s, model, gpus))
    return sorted(rows, key=lambda row: (row.submit_s, row.workload_id))


def started_in(events: Sequence[Event]) -> list[Started]:
    found = []
    for event in events:
        if event.event is EventKind.STARTED:
            placement = event.details["placement"]
            assert isinstance(placement, list)
            where = sorted(
                (str(task["machine"]), float(str(task["cpus"])), float(str(task["memory_gib"])))
                for task in placement
                if isinstance(task, dict)
            )
            found.append(Started(round(event.t, 3), str(event.workload), repr(where)))
    return sorted(found)


def every(period_s: float) -> SimulationSettings:
    """Decisions at multiples of the period."""
    return SETTINGS.model_copy(update={"scan_period_s": period_s, "auction_period_s": period_s})


def simulated(policy: str, rows: Sequence[TraceRow], fleet: Fleet, period_s: float) -> list[Event]:
    events: list[Event] = []
    given = SimulationInput("made", rows, fleet, unlimited(rows), profiles=PROFILES)
    simulate(given, policy_called(policy), every(period_s), seed=1, sink=events.append)
    return events


def lived(database_url: str, tuning: str, rows: Sequence[TraceRow], fleet: Fleet, period_s: float) -> list[Event]:
    greatest = greatest_gpus_per_machine(fleet)
    workloads = [Workload(row.workload_id, workload_of_row(row, greatest), row.submit_s) for row in rows]

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(
                database,
                fleet,
                (),
                unlimited(rows),
                every(period_s),
                rows[0].submit_s,
                16,
                tuning=tuning,
                profiles=PROFILES,
            )
            return await service.run(workloads)

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("policy", "seed", "period_s"),
    [
        ("synergy_greedy", 1, 60.0),
        ("synergy_greedy", 2, 60.0),
        ("drf_packing", 1, 60.0),
        ("drf_packing", 2, 60.0),
        # A scan pass scores once, a simulation after every start: they agree where one starts at a time.
        ("tetris_packing", 1, 1.0),
        ("tetris_packing", 2, 60.0),
    ],
)
def test_a_service_starts_what_a_simulation_starts(database_url: str, policy: str, seed: int, period_s: float) -> None:
    rows, fleet = world(seed, 40), fleet_of(4, 4, 2)
    live = lived(database_url, policy, rows, fleet, period_s)
    assert started_in(live) == started_in(simulated(policy, rows, fleet, period_s))
    assert len(started_in(live)) == len(rows)
    log = [event.as_json() for event in live]
    report = validate(log, fleet, unlimited(rows), complete=True, profiles=PROFILES)
    assert report.violations == 0, str(report)
