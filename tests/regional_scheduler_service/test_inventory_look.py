"""GetInventory of a large region leaves turns to the session, and says what is free."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from regional_scheduler.region_capacity import RegionCapacity
from services.regional_scheduler.inventory_look import look_at_inventory
from services.regional_scheduler.region_memory import RegionMemory
from tests.cluster_manager.fleets import cluster, gpu_machine, region

MACHINES = 3_000


def test_others_have_turns_while_a_large_region_is_looked_at() -> None:
    east = region(cluster("a", [gpu_machine(f"m{n}", 8) for n in range(MACHINES)]), cluster("b", [gpu_machine("x", 8)]))
    capacity = RegionCapacity(east)
    key = AttemptKey(WorkloadId("w"), AttemptNumber(1))
    machine = gpu_machine("m7", 8)
    placement = TaskPlacement(JobName("main"), 0, east.clusters[0].cluster, machine.machine, (0, 1, 2), 1_500, 1_024)
    capacity.hold(Holding(key, Standing(3, 0), 0.0, (placement,)))

    async def scenario() -> None:
        turns, states = 0, capacity.machine_state
        known = SimpleNamespace(region=east, inventory=capacity, machine_state=states, steady=asyncio.Lock())
        memory = cast("RegionMemory", known)
        look = asyncio.ensure_future(look_at_inventory(memory, east.clusters))
        while not look.done():
            turns += 1
            await asyncio.sleep(0)
        entries = look.result()
        assert turns >= MACHINES // 1_000
        assert [entry.machine for entry in entries] == [*(f"m{n}" for n in range(MACHINES)), "x"]
        entry = entries[7]
        assert (entry.free_gpus, list(entry.attempts)) == (5, ["w#1"])
        assert entry.free_cpus == machine.cpus - 1.5
        assert entry.free_memory_gib == machine.memory_gib - 1
        (other,) = await look_at_inventory(memory, east.clusters[1:])
        assert (other.machine, other.free_gpus, list(other.attempts)) == ("x", 8, [])

    asyncio.run(scenario())
