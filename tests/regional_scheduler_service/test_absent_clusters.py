"""While a cluster's manager cannot be reached its machines take no work, and are shown as what they are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

from data_placement.catalog import Catalog
from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId
from services.clock import SystemClock
from services.database.revision_store import Revisions
from services.regional_scheduler.absent_clusters import PATIENCE_REAL_S, AbsentClusters
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.server import Context, RegionalSchedulerServicer
from services.regional_scheduler.session import RegionSession
from tests.database.small_world import EAST, FLEET, TENANTS
from topmast.v1.regional_scheduler_pb2 import GetInventoryRequest

CLUSTER, MACHINE, DRAINED = ClusterId("east-a"), MachineId("east-a-r0-m0"), MachineId("east-a-r0-m1")


@dataclass
class AtWork:
    """A session, as far as it is asked what there is."""

    memory: RegionMemory


async def shown(memory: RegionMemory) -> dict[str, str]:
    """The states of the cluster's machines as people see them."""
    session = cast(RegionSession, AtWork(memory))
    servicer = RegionalSchedulerServicer(EAST, lambda: session, SystemClock())
    inventory = await servicer.GetInventory(GetInventoryRequest(cluster=CLUSTER), cast(Context, None))
    return {machine.machine: machine.state for machine in inventory.machines}


def test_machines_of_an_absent_cluster_take_no_work_and_are_not_shown_as_drained() -> None:
    async def scenario() -> None:
        states = {DRAINED: MachineState.DRAINING}
        memory = make_memory(Revisions(1, 1, 1), FLEET, states, TENANTS, Catalog(), [], EAST)
        assert memory is not None
        absent = AbsentClusters(memory, 0.0)
        await absent.look(PATIENCE_REAL_S)
        assert not memory.inventory.machine_state(MACHINE).takes_work
        assert await shown(memory) == {MACHINE: "up", DRAINED: "draining"}
        absent.set_state(MACHINE, MachineState.DOWN)
        assert await shown(memory) == {MACHINE: "down", DRAINED: "draining"}
        absent.set_state(MACHINE, MachineState.UP)
        absent.reached(CLUSTER)
        await absent.look(PATIENCE_REAL_S)
        assert memory.inventory.machine_state(MACHINE) is MachineState.UP

    asyncio.run(scenario())
