"""Compaction: small attempts migrate off nearly empty machines so that a waiting gang finds whole ones (beyond MAST, §5.2).

Rule: a gang whose GPUs are idle in a region, but not on machines that it could use, is given room by moving attempts of few
GPUs, each of them to another machine of the region, off the machines where that frees a task's GPUs for the fewest moved. A
plan is made when it is worth more than it costs: the gang's GPUs for as long as it has waited already (how long it
would wait on is not known; it is taken to be as long again, up to a limit) against the moved GPUs for the time of a restart.

Invariants: what is moved has a recent checkpoint, is not moved more often than the limit allows, and has its next place before
it leaves the present one; nothing is evicted; when all have moved the gang fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import NamedTuple

from domain.compaction import CompactionRule
from domain.eviction import HOUR_S
from domain.fleet import MachineState
from domain.identifiers import MachineId, RegionId
from domain.placement import AttemptKey, Score
from domain.placement_changes import ImpossibleAction
from domain.plan import Migrate, Plan, Start
from domain.rank import Standing
from domain.tenant import LOWEST_PRIORITY
from domain.workload import Workload
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import AttemptToChange, plan_migration

MOST_KINDS = 16
"""Gangs of so many kinds are looked at together: the first of each, in queue order."""
_EVICTS_NOTHING = Standing(LOWEST_PRIORITY, 2**31)


class RunningAttempt(NamedTuple):
    """What could be moved, if the rule allows."""

    attempt: AttemptToChange
    checkpoint_age_s: float | None
    """How old its last checkpoint is; None: it has none."""
    moved_s: tuple[float, ...] = ()
    """When its workload was moved for others, in the last hour at least."""


class WaitingGang(NamedTuple):
    """What room is to be made for."""

    workload: Workload
    within_quota: bool
    waited_s: float

    @property
    def gpus(self) -> int:
        """Of all its tasks."""
        return sum(job.resources.gpus * job.tasks for job in self.workload.specification.jobs)


class Compaction(NamedTuple):
    """Moves that make room for a gang; it starts when they are done, in the order of the queue."""

    plan: Plan
    """Of the gang's workload: migrations alone, sorted by key."""
    machines: tuple[MachineId, ...]
    """Where the gang would be, sorted."""
    moved_gpus: int
    cost_gpu_s: float
    gain_gpu_s: float
    makes_room_in: RegionId
    """Where the gang would be. The plan is of the region that carries it out: where the moved go on."""

    @property
    def moved(self) -> tuple[AttemptKey, ...]:
        """The attempts that leave, in the order of the plan."""
        return tuple([action.attempt for action in self.plan.actions if isinstance(action, Migrate)])

    @property
    def sentence(self) -> str:
        """What is done and why."""
        many = f"{len(self.plan.actions)} attempts" if len(self.plan.actions) > 1 else "1 attempt"
        gpus = f"{self.moved_gpus} GPUs" if self.moved_gpus > 1 else "1 GPU"
        own = self.plan.region == self.makes_room_in
        where = f"elsewhere in {self.plan.region}" if own else f"in {self.plan.region}"
        return (
            f"{many} of {gpus} {'go' if len(self.plan.actions) > 1 else 'goes'} on {where} to make room"
            f" for {self.plan.workload}{'' if own else f' in {self.makes_room_in}'}:"
            f" {self.gain_gpu_s:.0f} GPU-seconds for {self.cost_gpu_s:.0f}"
        )


def may_be_moved(running: RunningAttempt, rule: CompactionRule, now: float) -> bool:
    """Whether the rule allows it: few GPUs, on one machine, a recent checkpoint, and not moved too often."""
    placements = running.attempt.placements
    gpus = _gpus_of(running)
    lately = sum(1 for moved_s in running.moved_s if moved_s > now - HOUR_S)
    return (
        0 < gpus <= rule.most_gpus
        and len({placement.machine for placement in placements}) == 1
        and running.checkpoint_age_s is not None
        and running.checkpoint_age_s <= rule.checkpoint_within_s
        and lately < rule.moves_per_workload_and_hour
    )


def first_of_each_kind(gangs: Iterable[WaitingGang]) -> list[WaitingGang]:
    """Of the gangs that ask for the same, in the same places, the first; so many kinds at most, in their order."""
    kinds: dict[object, WaitingGang] = {}
    for gang in gangs:
        jobs = gang.workload.specification.jobs
        asked = tuple([(job.tasks, job.resources, job.affinity, job.across_clusters) for job in jobs])
        kinds.setdefault((asked, gang.within_quota), gang)
        if len(kinds) >= MOST_KINDS:
            break
    return list(kinds.values())


def plan_compactions(
    inventory: RegionCapacity,
    gangs: Iterable[WaitingGang],
    running: Sequence[RunningAttempt],
    rule: CompactionRule,
    now: float,
) -> list[Compaction]:
    """For as many of the gangs as the rule allows, in their order; none uses what another one takes or leaves."""
    movable = [one for one in running if may_be_moved(one, rule, now)]
    found: list[Compaction] = []
    if not movable:
        return found
    with inventory.tentatively():
        for gang in gangs:
            if len(found) >= rule.gangs_at_once:
                break
            compaction = plan_compaction(inventory, gang, movable, rule, now)
            if compaction is None:
                continue
            found.append(compaction)
            apply_plan(inventory, compaction.plan, now)
            taken = set(compaction.moved)
            left = {one.attempt.placements[0].machine for one in movable if one.attempt.key in taken}
            _drain(inventory, sorted(left | set(compaction.machines)))
            movable = [one for one in movable if one.attempt.key not in taken]
    return found


def plan_compaction(
    inventory: RegionCapacity, gang: WaitingGang, movable: Sequence[RunningAttempt], rule: CompactionRule, now: float
) -> Compaction | None:
    """The moves of the cluster where the fewest GPUs move; None: there are none that would be worth it. `movable` are allowed
    to be moved.
    """
    if inventory.idle_gpus < gang.gpus:
        return None
    return _cheapest(inventory, inventory, gang, movable, rule, now)


def sources_of_intakes(gangs: Iterable[int], idle: Mapping[RegionId, int], into: RegionId | None) -> list[RegionId]:
    """The regions off which attempts might go so that one of the gangs, each of so many GPUs, fits there: in the order of the
    gangs, of one gang those that lack the fewest GPUs. With `into`, those that lack no more than are idle there.

    For gangs alone that no region has enough idle GPUs for: else what they lack are machines, which is that region's own affair.
    """
    found: dict[RegionId, None] = {}
    for gpus in gangs:
        if gpus <= max(idle.values(), default=0):
            continue
        for region in sorted(idle, key=lambda one: (-idle[one], one)):
            others = [idle[one] for one in idle if one != region and into in (None, one)]
            if gpus - idle[region] <= max(others, default=0):
                found.setdefault(region)
    return list(found)


def plan_intake(
    into: RegionCapacity,
    source: RegionCapacity,
    gangs: Iterable[WaitingGang],
    running: Sequence[RunningAttempt],
    rule: CompactionRule,
    now: float,
) -> Compaction | None:
    """For the first of the gangs for which attempts of `source` can go on in `into` so that it fits into `source`.

    Only for one that lacks GPUs there, and no more than are idle here: who lacks machines only is the region's own affair.
    `running` are those of `source` that may run in `into`, too; the gangs are those that may run in `source`.
    """
    movable = [one for one in running if may_be_moved(one, rule, now)]
    if not movable or not into.idle_gpus:
        return None
    for gang in gangs:
        if source.idle_gpus < gang.gpus <= source.idle_gpus + into.idle_gpus:
            found = _cheapest(source, into, gang, movable, rule, now)
            if found is not None:
                return found
    return None


def _cheapest(
    inventory: RegionCapacity,
    into: RegionCapacity,
    gang: WaitingGang,
    movable: Sequence[RunningAttempt],
    rule: CompactionRule,
    now: float,
) -> Compaction | None:
    """The moves off machines of one region to machines of the same one or of another that free room with the fewest GPUs."""
    tasks = [(job.resources.gpus, job.tasks) for job in gang.workload.specification.jobs if job.resources.gpus]
    if not tasks:
        return None
    gain_gpu_s = gang.gpus * min(gang.waited_s, rule.longest_wait_s)
    divided = [cluster for _, cluster in inventory.in_cells]
    best: Compaction | None = None
    for position, cluster in enumerate(inventory.clusters):
        if cluster in divided:
            continue
        names = cluster.layout.machine_ids
        here = [one for one in movable if inventory.place_of(one.attempt.placements[0].machine)[0] == position]
        chosen = _chosen(inventory, names, here, max(tasks))
        if chosen is None:
            continue
        moved_gpus = sum(_gpus_of(one) for one in chosen.moved)
        cost_gpu_s = moved_gpus * rule.restart_s
        if cost_gpu_s >= gain_gpu_s or (best is not None and best.moved_gpus <= moved_gpus):
            continue
        actions, machines = _tried(inventory, into, gang, chosen, now)
        if actions:
            plan = Plan(gang.workload.workload, into.region, actions, Score())
            best = Compaction(plan, machines, moved_gpus, cost_gpu_s, gain_gpu_s, inventory.region)
    return best


class _Chosen(NamedTuple):
    """What leaves, and the machines that nothing may move to."""

    moved: tuple[RunningAttempt, ...]
    machines: tuple[MachineId, ...]


def _chosen(
    inventory: RegionCapacity,
    machines: Sequence[MachineId],
    movable: Sequence[RunningAttempt],
    tasks: tuple[int, int],
) -> _Chosen | None:
    """Off which machines what moves so that so many tasks of so many GPUs fit into the cluster; None: nothing helps."""
    gpus, missing = tasks
    on: dict[MachineId, list[RunningAttempt]] = {}
    for one in movable:
        on.setdefault(one.attempt.placements[0].machine, []).append(one)
    kept: list[MachineId] = []
    ways: list[tuple[int, MachineId, tuple[RunningAttempt, ...]]] = []
    for machine in machines:
        if not inventory.machine_state(machine).takes_work:
            continue
        idle = inventory.idle(machine)[0]
        if idle >= gpus:
            missing -= idle // gpus
            kept.append(machine)
        way = _fewest(on.get(machine, ()), gpus - idle % gpus)
        if way:
            ways.append((sum(_gpus_of(one) for one in way), machine, way))
    if missing <= 0 or len(ways) < missing:
        return None
    cheapest = sorted(ways, key=lambda way: way[:2])[:missing]
    moved = tuple([one for _, _, way in cheapest for one in way])
    return _Chosen(moved, tuple(sorted({*kept, *(machine for _, machine, _ in cheapest)})))


def _fewest(movable: Sequence[RunningAttempt], needed_gpus: int) -> tuple[RunningAttempt, ...]:
    """Those of a machine that together hold so many GPUs, and as few more as possible, then the fewest; empty: all hold less."""
    reached: dict[int, tuple[RunningAttempt, ...]] = {0: ()}
    for one in sorted(movable, key=lambda each: (-_gpus_of(each), each.attempt.key)):
        for gpus, ways in sorted(reached.items(), reverse=True):
            total = gpus + _gpus_of(one)
            if gpus < needed_gpus and (total not in reached or len(reached[total]) > len(ways) + 1):
                reached[total] = (*ways, one)
    enough = [gpus for gpus in reached if gpus >= needed_gpus]
    return reached[min(enough)] if enough else ()


def _whole(attempt: AttemptToChange) -> AttemptToChange:
    """The same, but that it is not split: nobody moves for another's sake to where it is worse off."""
    jobs = tuple([replace(job, across_clusters=False) for job in attempt.specification.jobs])
    return replace(attempt, specification=replace(attempt.specification, jobs=jobs))


def _tried(
    inventory: RegionCapacity, into: RegionCapacity, gang: WaitingGang, chosen: _Chosen, now: float
) -> tuple[tuple[Migrate, ...], tuple[MachineId, ...]]:
    """The migrations, and where the gang is afterwards; nothing where any of them, or the gang, finds no place."""
    migrations: list[Migrate] = []
    states = [(machine, inventory.machine_state(machine)) for machine in chosen.machines]
    with ExitStack() as tentative:
        tentative.enter_context(inventory.tentatively())
        if into is not inventory:
            tentative.enter_context(into.tentatively())
        _drain(inventory, chosen.machines)
        for one in sorted(chosen.moved, key=lambda each: (-_gpus_of(each), each.attempt.key)):
            try:
                plan = plan_migration(into, _whole(one.attempt), None, now)
            except ImpossibleAction:
                return (), ()
            if len(plan.actions) != 1:
                return (), ()
            apply_plan(into, plan, now)
            migrations += [
                action._replace(room_for=gang.workload.workload)
                for action in plan.actions
                if isinstance(action, Migrate)
            ]
        for machine, state in states:
            inventory.set_machine_state(machine, state)
        for migration in migrations:
            inventory.release(migration.attempt)
        start = plan_workload(inventory, gang.workload, _EVICTS_NOTHING, now, within_quota=gang.within_quota)
        if isinstance(start, Refusal) or not all(isinstance(action, Start) for action in start.actions):
            return (), ()
    machines = tuple(sorted({placement.machine for placement in start.placements}))
    return tuple(sorted(migrations, key=lambda migration: migration.attempt)), machines


def _drain(inventory: RegionCapacity, machines: Iterable[MachineId]) -> None:
    for machine in machines:
        inventory.set_machine_state(machine, MachineState.DRAINING)


def _gpus_of(running: RunningAttempt) -> int:
    return sum(len(placement.gpu_indices) for placement in running.attempt.placements)
