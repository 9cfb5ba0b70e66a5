"""What the clusters of the fleet have, and what of it is in use, free, drained, down and lent."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.v1 import fleet_state_pb2


@dataclass(frozen=True, slots=True)
class FleetCapacity:
    """The machines of one GPU model ("": without GPUs) in one cluster.

    gpus = in use + free + draining + down + serving. In use is what attempts hold, on whichever machines; free, draining and
    down is what is idle; serving is what serves inference. `gpus_lent` are those of `gpus` that inference lends, whatever they
    do. `machines_up` take work. `alive`: the cluster's manager and its region's scheduler are there. `lost`: it was declared so.
    """

    region: str
    cluster: str
    gpu_model: str
    machines: int
    machines_up: int
    gpus: int
    gpus_in_use: int
    gpus_free: int
    gpus_draining: int
    gpus_down: int
    gpus_serving: int
    gpus_lent: int
    alive: bool
    lost: bool


def capacities_from_proto(message: fleet_state_pb2.GetFleetResponse) -> tuple[FleetCapacity, ...]:
    return tuple(
        FleetCapacity(
            one.region,
            one.cluster,
            one.gpu_model,
            one.machines,
            one.machines_up,
            one.gpus,
            one.gpus_in_use,
            one.gpus_free,
            one.gpus_draining,
            one.gpus_down,
            one.gpus_serving,
            one.gpus_lent,
            one.alive,
            one.lost,
        )
        for one in message.capacities
    )
