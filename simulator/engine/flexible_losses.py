"""Which attempts outlast the loss of machines, because they have flexible tasks only there (Lyra §5.2)."""

from __future__ import annotations

from collections.abc import Sequence

from domain.identifiers import MachineId
from domain.life_cycle import State
from domain.placement_changes import flexible_among, name_of
from domain.plan import TaskName
from simulator.engine.workloads import SimulatedWorkload


def flexible_tasks_lost(work: SimulatedWorkload, down: Sequence[MachineId]) -> tuple[TaskName, ...]:
    """The tasks on these machines, sorted, if the running attempt can go on without them; else none."""
    tasks = tuple(sorted([name_of(placement) for placement in work.placements if placement.machine in down]))
    if work.state is not State.RUNNING or not flexible_among(work.workload.specification, tasks):
        return ()
    return tasks
