"""Compiles the kernels before anybody waits for them."""

from __future__ import annotations

import numpy as np

from cluster_manager.growth import grow_room
from cluster_manager.inventory import Inventory
from cluster_manager.needs import room_when_empty
from cluster_manager.requests import request_of
from domain.fleet import Cluster, Machine, MachineState, Rack, Region
from domain.identifiers import AttemptNumber, ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, WorkloadId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification


def warm_up() -> None:
    """Runs every kernel once on a region of one machine.

    Takes some twenty seconds in the first process after an installation, and a few tenths of a second in any later
    one, which loads what the first has left in the cache. A service calls it before it says that it is ready.
    """
    machine = Machine(MachineId("machine"), GpuModel("model"), 1, 1.0, 1.0)
    cluster = Cluster(ClusterId("cluster"), (Rack(RackId("rack"), (machine,)),))
    inventory = Inventory(Region(RegionId("region"), (cluster,)))
    key = AttemptKey(WorkloadId("workload"), AttemptNumber(1))
    placement = TaskPlacement(JobName("job"), 0, cluster.cluster, machine.machine, (0,), 1000, 1024)
    inventory.hold(Holding(key, Standing(1, 0), 0.0, (placement,)))
    job = JobSpecification(JobName("job"), 1, TaskResources(gpus=1), Emulated(1.0))
    request = request_of(inventory.layout, job)
    inventory.room_for(request)
    places = inventory.find_places([request], Standing(0, 0), 0.0, evicting=True)
    inventory.find_needed([request], [0], places.found[0].victims)
    room_when_empty(inventory.layout, request)
    inventory.set_machine_state(machine.machine, MachineState.DOWN)
    inventory.begin_eviction(key)
    inventory.release(key)
    nothing, one = np.zeros((1, 3), np.int64), np.zeros(1, np.int64)
    grow_room(inventory.layout.arrays, one, nothing, nothing, one, one, one)
