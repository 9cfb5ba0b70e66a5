"""The trial of a job of unknown skew (Tiresias §3.3): what follows for an attempt whose models have become known while it runs.

Rule: an attempt that was placed when nothing was known of its models runs wherever it fits. When its trial is over, and
jobs of it above PACKLIMIT are on more machines than they need, it goes on elsewhere, once, if all of them can be consolidated there
at once and nothing has to leave for it. Else it stays: its next start follows what is known by then.

Invariant: what it is moved to has each of those jobs on as few machines as it needs; nothing is evicted, and no place in
cells is left or taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster_manager.skew.consolidation import may_be_consolidated
from cluster_manager.skew.spread import is_spread
from domain.identifiers import MachineId
from domain.placement import TaskPlacement
from domain.placement_changes import ImpossibleAction
from domain.plan import Migrate, Plan
from domain.workload import JobSpecification, WorkloadSpecification
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import AttemptToChange, plan_migration


def plan_after_trial(
    inventory: RegionCapacity,
    attempt: AttemptToChange,
    known: WorkloadSpecification,
    most_gpus: Mapping[MachineId, int],
    now: float,
) -> Plan:
    """Where the attempt goes on: on as few machines of the region as its jobs of high skew need.

    `known` is the workload as it would be placed now (`cluster_manager.skew.consolidation.consolidated`), `most_gpus` is as
    from `most_gpus_of_machines`. Raises ImpossibleAction, with the reason, for an attempt that stays where it is.
    """
    in_cells = {one.cluster for _, one in inventory.in_cells}
    if any(placement.cluster in in_cells for placement in attempt.placements):
        raise ImpossibleAction(attempt.key, f"{attempt.key.workload} runs in cells, and keeps them")
    spread = _spread(jobs_above(attempt.specification, known), attempt.placements, most_gpus)
    if not spread:
        raise ImpossibleAction(attempt.key, f"no job of {attempt.key.workload} is to be on fewer machines")
    plan = plan_migration(inventory, replace(attempt, specification=known), None, now)
    placements = [
        placement for action in plan.actions if isinstance(action, Migrate) for placement in action.placements
    ]
    above = jobs_above(attempt.specification, known)
    if not placements or _spread(above, placements, most_gpus):
        names = ", ".join(job.name for job in spread)
        problem = f"there is no room now where {names} of {attempt.key.workload} would be on as few machines as needed"
        raise ImpossibleAction(attempt.key, problem)
    return plan


def jobs_above(submitted: WorkloadSpecification, known: WorkloadSpecification) -> list[JobSpecification]:
    """The jobs that are consolidated for their skew alone: as placed now, and not when the attempt was placed."""
    return [
        now
        for before, now in zip(submitted.jobs, known.jobs, strict=True)
        if now.consolidate and may_be_consolidated(before)
    ]


def _spread(
    jobs: Sequence[JobSpecification], placements: Sequence[TaskPlacement], most_gpus: Mapping[MachineId, int]
) -> list[JobSpecification]:
    """Those of the jobs that are on more machines than they need."""
    spread = []
    for job in jobs:
        machines = [placement.machine for placement in placements if placement.job == job.name]
        if machines and is_spread(job.resources.gpus, machines, most_gpus):
            spread.append(job)
    return spread
