"""Plans on request: resize, retune or migrate a running attempt. They say how, never whether it is wise.

Rule: a job shrinks by its last flexible tasks and grows by the best place in a cluster where it has tasks already;
nothing is evicted for any of them. A migration puts the base tasks where the attempt holds nothing now.

Invariant: the gang keeps its base tasks and its bounds (I2), and nothing is planned beyond what is free (I1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.fleet import MachineState
from domain.identifiers import ClusterId, JobName
from domain.placement import AttemptKey, Score, TaskPlacement
from domain.placement_changes import ImpossibleAction, check_gang, name_of, placements_after
from domain.plan import Action, Migrate, Plan, Retune, ScaleIn, ScaleOut, Start, TaskAmounts, reclaim_class
from domain.rank import Standing
from domain.resources import request_mebibytes, request_millicpus
from domain.tenant import LOWEST_PRIORITY
from domain.workload import JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.cluster_choice import FoundPlace, find_best_place, placements_of
from regional_scheduler.planner import plan_workload
from regional_scheduler.queries import query_of
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity

_EVICTS_NOTHING = Standing(LOWEST_PRIORITY, 2**31)
"""Nothing stands worse: a plan at this standing evicts nothing."""


@dataclass(frozen=True, slots=True)
class AttemptToChange:
    """Whose placements are to be changed."""

    key: AttemptKey
    specification: WorkloadSpecification
    placements: tuple[TaskPlacement, ...]
    guaranteed: bool
    """Whether it was within its tenant's quota when it was dispatched: so are the tasks that it gets."""

    def job(self, name: JobName) -> JobSpecification:
        """Raises ImpossibleAction when the workload has no such job."""
        for job in self.specification.jobs:
            if job.name == name:
                return job
        known = ", ".join(job.name for job in self.specification.jobs)
        raise ImpossibleAction(self.key, f"{self.key.workload} has no job {name}; it has {known}")

    def tasks_of(self, job: JobName) -> list[TaskPlacement]:
        """By number."""
        return sorted((p for p in self.placements if p.job == job), key=lambda placement: placement.task)


def plan_resize(inventory: RegionCapacity, attempt: AttemptToChange, job_name: JobName, tasks: int, now: float) -> Plan:
    """The job is to have so many tasks. A plan of nothing when it has. Raises ImpossibleAction, with the reason."""
    job = attempt.job(job_name)
    placed = attempt.tasks_of(job_name)
    if not job.tasks <= tasks <= job.greatest_tasks:
        problem = f"job {job.name} may have {job.tasks} to {job.greatest_tasks} tasks, not {tasks}"
        if job.tasks == job.greatest_tasks:
            problem = (
                f"job {job.name} is not elastic (tasks: {job.tasks}); only a job that was submitted with max_tasks is"
            )
        raise ImpossibleAction(attempt.key, problem)
    if tasks == len(placed):
        return _plan(inventory, attempt, ())
    if tasks < len(placed):
        released = [name_of(placement) for placement in placed[tasks - len(placed) :]]
        return _plan(inventory, attempt, (ScaleIn(attempt.key, tuple(released)),))
    taken = {placement.task for placement in placed}
    numbers = [number for number in range(job.greatest_tasks) if number not in taken][: tasks - len(placed)]
    clusters = list(dict.fromkeys(placement.cluster for placement in placed))
    for cluster in clusters:
        added = place_in(inventory, attempt, (replace(job, tasks=len(numbers)),), cluster, now)
        if added:
            renumbered = [p._replace(task=number) for p, number in zip(added, numbers, strict=True)]
            return _plan(inventory, attempt, (ScaleOut(attempt.key, tuple(renumbered)),))
    problem = f"no room for {len(numbers)} more tasks of job {job.name} in {', '.join(clusters)}"
    raise ImpossibleAction(attempt.key, problem)


def plan_retune(
    inventory: RegionCapacity, attempt: AttemptToChange, job_name: JobName, cpus: float | None, memory_gib: float | None
) -> Plan:
    """Each task of the job is to have so many CPUs and so much memory; None: as much as now.

    Raises ImpossibleAction for amounts that are not positive; InventoryError when a machine has too little is for
    the caller that applies the plan.
    """
    attempt.job(job_name)
    if (cpus is not None and cpus <= 0) or (memory_gib is not None and memory_gib <= 0):
        raise ImpossibleAction(attempt.key, "a task needs some CPU and some memory")
    amounts = [
        TaskAmounts(
            name_of(placement),
            placement.millicpus if cpus is None else request_millicpus(cpus),
            placement.mebibytes if memory_gib is None else request_mebibytes(memory_gib),
        )
        for placement in attempt.tasks_of(job_name)
    ]
    retune = Retune(attempt.key, tuple(amounts))
    if placements_after(retune, attempt.placements) == attempt.placements:
        return _plan(inventory, attempt, ())
    return _plan(inventory, attempt, (retune,))


def plan_migration(inventory: RegionCapacity, attempt: AttemptToChange, cluster: ClusterId | None, now: float) -> Plan:
    """All base tasks are to run in this cluster, or on any other machines of the region than now.

    Where other attempts can do without something there, they give it up for it. The attempt may be of another region. Raises ImpossibleAction, with the reason; so for clusters with cells: a place that is
    kept for an attempt that does not run yet would stand in the way of owners, who wait for nobody.
    """
    divided = [one for _, one in inventory.in_cells]
    if cluster is not None and cluster in [one.cluster for one in divided]:
        problem = f"cluster {cluster} is divided into cells: nothing is moved into it; name another one"
        raise ImpossibleAction(attempt.key, problem)
    with inventory.tentatively():
        for machine in [machine for one in divided for machine in one.layout.machine_ids]:
            inventory.set_machine_state(machine, MachineState.DRAINING)
        for machine in sorted({placement.machine for placement in attempt.placements}):
            if machine in inventory.number_of_machine:
                inventory.set_machine_state(machine, MachineState.DRAINING)
        if cluster is not None:
            placements = place_in(inventory, attempt, attempt.specification.jobs, cluster, now)
            releases: tuple[Action, ...] = ()
            why = f"cluster {cluster} has no room for it"
        else:
            workload = Workload(attempt.key.workload, attempt.specification, now)
            found = plan_workload(inventory, workload, _EVICTS_NOTHING, now, within_quota=attempt.guaranteed)
            placements = () if isinstance(found, Refusal) else found.placements
            releases = (
                ()
                if isinstance(found, Refusal)
                else tuple([one for one in found.actions if not isinstance(one, Start)])
            )
            why = found.sentence if isinstance(found, Refusal) else ""
    if not placements:
        raise ImpossibleAction(attempt.key, f"{attempt.key.workload} cannot go on elsewhere: {why}")
    check_gang(attempt.key, attempt.specification, placements)
    return _plan(inventory, attempt, (*releases, Migrate(attempt.key, placements)))


def _plan(inventory: RegionCapacity, attempt: AttemptToChange, actions: tuple[Action, ...]) -> Plan:
    return Plan(attempt.key.workload, inventory.region, actions, Score(reclaim_class=reclaim_class(actions)))


def place_in(
    inventory: RegionCapacity,
    attempt: AttemptToChange,
    jobs: Sequence[JobSpecification],
    cluster: ClusterId,
    now: float,
) -> tuple[TaskPlacement, ...]:
    """Where all tasks of these jobs fit in the cluster without evictions, each job's numbered from 0; else empty."""
    if cluster not in inventory.cluster_ids:
        return ()
    position = inventory.cluster_ids.index(cluster)
    placements: list[TaskPlacement] = []
    with inventory.supposing():
        for job in jobs:
            tenant, guaranteed = attempt.specification.tenant, attempt.guaranteed
            query = query_of(inventory, job, tenant, _EVICTS_NOTHING, now, within_quota=guaranteed)
            found = find_best_place(inventory, query, position)
            if not isinstance(found, FoundPlace):
                return ()
            inventory.suppose_charged(position, found.place.entries)
            placements += placements_of(inventory, job, found)
    return tuple(placements)
