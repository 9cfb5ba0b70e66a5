"""What every machine has, what of it is free, and which attempts are on it: the answer to GetInventory.

A region may have tens of thousands of machines, and its session works on the same event loop: it has a turn after each
slice of the answer. So what is said of a machine is of one moment, but not what is said of all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from domain.fleet import Cluster, Machine
from domain.identifiers import ClusterId, MachineId, RackId
from domain.placement import machines_of
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.plans import attempt_to_text
from topmast.v1 import regional_scheduler_pb2 as messages

_SLICE = 500
"""Machines, or attempts, between two turns of the others: a few milliseconds."""


async def look_at_inventory(memory: RegionMemory, clusters: Sequence[Cluster]) -> list[messages.MachineInventory]:
    """The machines of these clusters, in their order; one that is taken out of the fleet meanwhile is left out."""
    placed = [
        (cluster.cluster, rack.rack, machine)
        for cluster in clusters
        for rack in cluster.racks
        for machine in rack.machines
    ]
    found: dict[MachineId, messages.MachineInventory] = {}
    for first in range(0, len(placed), _SLICE):
        async with memory.steady:
            for cluster, rack, machine in placed[first : first + _SLICE]:
                if machine.machine in memory.inventory.number_of_machine:
                    found[machine.machine] = _entry(memory, cluster, rack, machine)
        await asyncio.sleep(0)
    async with memory.steady:
        holdings = memory.inventory.holdings()
    for first in range(0, len(holdings), _SLICE):
        for holding in holdings[first : first + _SLICE]:
            for name in machines_of(holding.placements):
                if name in found:
                    found[name].attempts.append(attempt_to_text(holding.key))
        await asyncio.sleep(0)
    return list(found.values())


def _entry(memory: RegionMemory, cluster: ClusterId, rack: RackId, machine: Machine) -> messages.MachineInventory:
    gpus, millicpus, mebibytes = memory.inventory.idle(machine.machine)
    return messages.MachineInventory(
        machine=machine.machine,
        cluster=cluster,
        rack=rack,
        state=memory.machine_state(machine.machine).value,
        gpu_model=machine.gpu_model,
        gpus=machine.gpus,
        free_gpus=gpus,
        cpus=machine.cpus,
        free_cpus=millicpus / 1000,
        memory_gib=machine.memory_gib,
        free_memory_gib=mebibytes / 1024,
    )
