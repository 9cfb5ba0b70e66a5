"""What is free on the machines that take work, as the database has it: for orders of the queue that depend on it."""

from __future__ import annotations

from cluster_manager.tuning.predicted_room import FreeMachine
from domain.fleet import MachineState
from domain.identifiers import ClusterId, GpuModel, RegionId
from domain.resources import capacity_mebibytes, capacity_millicpus
from services.database.connection import AnyConnection

_FREE = """
    SELECT c.region, m.cluster, m.gpu_model, m.gpus, m.cpus, m.memory_gib,
           coalesce(h.gpus, 0), coalesce(h.millicpus, 0), coalesce(h.mebibytes, 0)
      FROM machines m JOIN clusters c USING (cluster) JOIN regions r USING (region)
      LEFT JOIN (SELECT p.machine, sum(cardinality(p.gpu_indices)) AS gpus, sum(p.millicpus) AS millicpus,
                        sum(p.mebibytes) AS mebibytes
                   FROM placements p JOIN attempts a USING (workload, attempt)
                  WHERE a.ended_s IS NULL GROUP BY p.machine) h USING (machine)
     WHERE m.state = ANY(%s)
     ORDER BY r.position, c.region, c.position, m.cluster, m.position, m.machine"""

_IDLE = """
    SELECT c.region, sum(m.gpus - coalesce(h.gpus, 0))
      FROM machines m JOIN clusters c USING (cluster)
      LEFT JOIN (SELECT p.machine, sum(cardinality(p.gpu_indices)) AS gpus
                   FROM placements p JOIN attempts a USING (workload, attempt)
                  WHERE a.ended_s IS NULL GROUP BY p.machine) h USING (machine)
     WHERE m.state = ANY(%s)
     GROUP BY c.region ORDER BY c.region"""


async def idle_gpus(connection: AnyConnection) -> dict[RegionId, int]:
    """GPUs that nothing holds on machines that take work, by region. What is kept for attempts on their way counts as idle."""
    states = [state.value for state in MachineState if state.takes_work]
    cursor = await connection.execute(_IDLE, (states,))
    return {RegionId(region): int(gpus) for region, gpus in await cursor.fetchall()}


async def free_machines(connection: AnyConnection) -> tuple[FreeMachine, ...]:
    """Every machine, in the order of the fleet. What attempts hold that are leaving is not free yet."""
    states = [state.value for state in MachineState if state.takes_work]
    cursor = await connection.execute(_FREE, (states,))
    return tuple(
        [
            FreeMachine(
                RegionId(region),
                ClusterId(cluster),
                GpuModel(model),
                gpus - int(held_gpus),
                capacity_millicpus(cpus) - int(millicpus),
                capacity_mebibytes(memory_gib) - int(mebibytes),
            )
            for region, cluster, model, gpus, cpus, memory_gib, held_gpus, millicpus, mebibytes in await cursor.fetchall()
        ]
    )
