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
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=0.0),
    scan_period_s=60.0,
    auction_period_s=60.0,
)


class Started(NamedTuple):
    """That a workload started, where and with how much."""

    t: float
    workload: str
    placement: str


def world(seed: int, workloads: int, sizes: Sequence[int]) -> list[TraceRow]:
    """A crowd of jobs with so many GPUs: what is hungry leaves GPUs idle."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(workloads):
        model = ("hungry", "lean", "")[int(rng.integers(3))]
        gpus = sizes[int(rng.integers(len(sizes)))]
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


def simulated(policy: str, rows: Sequence[TraceRow], fleet: Fleet) -> list[Event]:
    events: list[Event] = []
    given = SimulationInput("made", rows, fleet, unlimited(rows), profiles=PROFILES)
    simulate(given, policy_called(policy), SETTINGS, seed=1, sink=events.append)
    return events


def lived(database_url: str, tuning: str, rows: Sequence[TraceRow], fleet: Fleet) -> list[Event]:
    greatest = greatest_gpus_per_machine(fleet)
    workloads = [Workload(row.workload_id, workload_of_row(row, greatest), row.submit_s) for row in rows]

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(
                database,
                fleet,
                (),
                unlimited(rows),
                SETTINGS,
                rows[0].submit_s,
                16,
                tuning=tuning,
                profiles=PROFILES,
            )
            return await service.run(workloads)

    return asyncio.run(scenario())


MIXED = (1, 1, 2, 4)


@pytest.mark.parametrize(
    ("policy", "seed", "machines", "sizes"),
    [
        ("synergy_greedy", 1, (4, 4, 2), MIXED),
        ("drf_packing", 1, (4, 4, 2), MIXED),
        ("tetris_packing", 1, (1,), (1,)),
        ("tetris_packing", 1, (4, 4, 2), MIXED),
        *(
            pytest.param(policy, seed, (4, 4, 2), MIXED, marks=pytest.mark.nightly)
            for policy in ("synergy_greedy", "drf_packing", "tetris_packing")
            for seed in range(2, 6)
        ),
        # Gangs of two tasks, and many machines: several start in one pass.
        ("tetris_packing", 6, (4, 4, 2), (*MIXED, 8)),
        ("tetris_packing", 7, (4, 4, 4, 2, 2, 1), MIXED),
    ],
)
def test_a_service_starts_what_a_simulation_starts(
    database_url: str, policy: str, seed: int, machines: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    rows, fleet = world(seed, 40, sizes), fleet_of(*machines)
    live = lived(database_url, policy, rows, fleet)
    assert started_in(live) == started_in(simulated(policy, rows, fleet))
    assert len(started_in(live)) == len(rows)
    log = [event.as_json() for event in live]
    report = validate(log, fleet, unlimited(rows), complete=True, profiles=PROFILES)
    assert report.violations == 0, str(report)
