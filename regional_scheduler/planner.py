"""Plans one workload in one region: every job in every cluster, with evictions only where it must be (MAST §4.3).

Rule: the jobs are placed one after the other, the most demanding first, each in the cluster where its score is best,
with the earlier ones charged. A job that finds no place then goes first in another try, at most once each. First
with what is free; if that fails, with what running attempts can do without; if that fails too, jobs that find no place
otherwise evict. Releases and victims that turn out needless once all jobs have their clusters are spared. A job that allows
it is split over several clusters where it finds no place in one; that comes before what others give up or leave for it.

Invariant: the plan places every task or there is none (I2), never beyond what is free and what its victims release
(I1), and evicts only attempts of strictly worse standing (I5). A workload of one job is refused only when it fits in
no cluster with every possible victim gone, nor, if it may be split, in all together that pack.

Machines that are kept for others (`reserved_machines`) count as taking no work; a workload that finds a place only
there has none.

Several jobs that find no places one after the other are placed all at once by an exact search (`room_for_jobs`), which
gives up where there are too many ways to place them; only then may they be refused although they fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from cluster_manager.capacity.attempts import order_key
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.mechanism import Query
from cluster_manager.place_rank import by_priority, destroyed_gpu_s, running_s
from domain.cells import CellUse, downgraded
from domain.identifiers import JobName, TenantId
from domain.placement import NO_WORK_DESTROYED, NONE_BY_PRIORITY, AttemptKey, Holding, Score, TaskPlacement
from domain.plan import EVICTS_NOTHING, PREEMPTS, Action, Downgrade, Evict, Plan, Start, reclaim_class
from domain.rank import Standing
from domain.reservation import Reservation
from domain.workload import JobSpecification, Workload
from regional_scheduler.closed_machines import close_machines
from regional_scheduler.cluster_choice import FoundPlace, find_best_place, placements_of
from regional_scheduler.fewest_releases import fewest_releases
from regional_scheduler.job_places import Demand, NoPlace, Placed, place_in_turn
from regional_scheduler.needless_releases import without_needless
from regional_scheduler.queries import query_of
from regional_scheduler.refusal import Refusal, held_for_others, no_room_alone, no_room_together, planning_failed
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.reserved_machines import closed_machines
from regional_scheduler.room_for_jobs import RoomForPart, dearest_first, free_room, room_with_victims
from regional_scheduler.several_clusters import CLUSTER_WEIGHT
from regional_scheduler.victim_gpus import VictimGpus
from regional_scheduler.voluntary_releases import VoluntaryRelease, release_actions

__all__ = ["NoPlace", "Refusal", "plan_or_no_place", "plan_workload"]


def plan_workload(
    region: RegionCapacity, workload: Workload, standing: Standing, now: float, *, within_quota: bool
) -> Plan | Refusal:
    """The plan of the best score found for the whole workload, or why there is none. The region is as before.

    `now` (seconds since the epoch) only says how long victims have been running, and since when a refusal is known. Within its quota a workload is
    guaranteed, else opportunistic. Raises ValueError for a workload without jobs, and for a job that asks for no tasks,
    for negative amounts, or for neither GPUs nor a stated amount of CPUs and memory. Where faults are contained
    (`PlanningFaults`) it raises nothing, and refuses.
    """
    planning = _Planning(region, workload.specification.tenant, standing, now, within_quota)
    try:
        plan = planning.plan(workload)
        return planning.refusal_of(plan, workload) if isinstance(plan, NoPlace) else plan
    except Exception as error:
        if not region.faults.contained:
            raise
        return planning_failed(region, workload.workload, error, now)


def plan_or_no_place(
    region: RegionCapacity, workload: Workload, standing: Standing, now: float, *, within_quota: bool
) -> Plan | NoPlace | Refusal:
    """The same for callers that need not say why there is no plan. A refusal only where planning has failed."""
    planning = _Planning(region, workload.specification.tenant, standing, now, within_quota)
    try:
        return planning.plan(workload)
    except Exception as error:
        if not region.faults.contained:
            raise
        return planning_failed(region, workload.workload, error, now)


_MadeRoom: TypeAlias = tuple[Placed, list[AttemptKey], list[AttemptKey]]
"""Places, the victims that make room for them, and those of the victims that use the workload's own cells."""


class _Planning(NamedTuple):
    """For whom a plan is made, where and when."""

    region: RegionCapacity
    tenant: TenantId
    standing: Standing
    now_s: float
    within_quota: bool

    def query_of(self, job: JobSpecification) -> Query:
        """The job as a question to the clusters of this region. Raises ValueError: see `plan_workload`."""
        return query_of(self.region, job, self.tenant, self.standing, self.now_s, within_quota=self.within_quota)

    def plan(self, workload: Workload) -> Plan | NoPlace:
        """The plan for all jobs of the workload, on machines that it is not kept off."""
        if not workload.specification.jobs:
            raise ValueError(f"workload {workload.workload} has no jobs")
        plan = self.plan_anywhere(workload)
        if isinstance(plan, NoPlace) or not self.region.reserved:
            return plan
        # A plan that uses none of them is one that there would be without them, too.
        closed = closed_machines(self.binding(workload))
        if not any(placement.machine in closed for placement in plan.placements):
            return plan
        with self.region.tentatively():
            close_machines(self.region, closed & self.region.number_of_machine.keys())
            plan = self.plan_anywhere(workload)
        return plan._replace(held=True) if isinstance(plan, NoPlace) else plan

    def binding(self, workload: Workload) -> tuple[Reservation, ...]:
        """The reservations that keep the workload off their machines."""
        return self.region.reserved.binding(workload.workload, workload.specification, self.standing, self.now_s)

    def plan_anywhere(self, workload: Workload) -> Plan | NoPlace:
        """The same, whatever is kept for others."""
        jobs = workload.specification.jobs
        if len(jobs) == 1 and not jobs[0].across_clusters:
            return self.plan_alone(workload)
        demands = self.most_demanding_first(jobs)
        for demand in demands:
            if (no_place := self.refuse_at_once(demand)) is not None:
                return no_place
        placed: Placed | NoPlace | None = None
        if all(self.may_be_free(demand) for demand in demands):
            placed = self.place_all(demands, evicting=False)
        if isinstance(placed, list):
            return self.plan_of(workload, placed, ())
        if self.region.voluntary.possible:
            return self.plan_with_releases(workload, demands)
        made_room = self.make_room(demands)
        return made_room if isinstance(made_room, NoPlace) else self.plan_of(workload, *made_room)

    def plan_alone(self, workload: Workload) -> Plan | NoPlace:
        """The plan for the only job of a workload: it evicts only where it finds no place otherwise, none needlessly."""
        job = workload.specification.jobs[0]
        demand = Demand(0, job, self.query_of(job))
        releases_come_first = self.region.voluntary.possible
        found = find_best_place(self.region, demand.query, evicting=not releases_come_first)
        if isinstance(found, FoundPlace):
            place = found.place
            victims = [victim.key for victim in place.victims] if place.victims else ()
            return self.plan_of(workload, [(demand, found)], victims, place.own_cells)
        if releases_come_first:
            return self.plan_with_releases(workload, [demand])
        return NoPlace(demand, True, found)

    def plan_with_releases(self, workload: Workload, demands: Sequence[Demand]) -> Plan | NoPlace:
        """The plan for jobs that find no place as it is: with what attempts can do without, and only then with victims."""
        no_place = self.refuse_at_once(demands[0]) if len(demands) == 1 else None
        if no_place is not None:
            return no_place
        voluntary = self.region.voluntary
        everything = voluntary.all()
        guess = self.guess_releases(demands, everything)
        for releases in () if guess is None else dict.fromkeys((guess, everything)):
            with voluntary.released(releases):
                placed = self.place_all(demands, evicting=False)
            if isinstance(placed, list):
                placed, needed = self.keep_needless(placed, (), releases)
                return self.plan_of(workload, placed, (), releases=needed)
        with voluntary.released(everything):
            made_room = self.make_room(demands)
        if isinstance(made_room, NoPlace):
            return made_room
        placed, victims, own_cells = made_room
        placed, needed = self.keep_needless(placed, victims, everything)
        if victims:
            # Their places may be others by now, in whose way not all of the victims are.
            with voluntary.released(needed):
                placed, victims = self.spare_needless(placed, victims)
        return self.plan_of(workload, placed, victims, own_cells, needed)

    def guess_releases(
        self, demands: Sequence[Demand], releases: Sequence[VoluntaryRelease]
    ) -> tuple[VoluntaryRelease, ...] | None:
        """What may be enough to release for the most demanding job; None if not even everything is enough for each job."""
        guess: tuple[VoluntaryRelease, ...] = tuple(releases)
        for number, demand in enumerate(demands):
            counts = self.region.free_counts(demand.query.kind)
            if counts is None:
                continue
            counts_with_all = self.region.counts_with_releases(counts, demand.query)
            if self.region.most_tasks(counts_with_all, demand.query) < demand.query.tasks:
                return None
            if number == 0:
                guess = fewest_releases(self.region, demand.query, releases, counts) or guess
        return guess

    def keep_needless(
        self, placed: Placed, victims: Sequence[AttemptKey], releases: Sequence[VoluntaryRelease]
    ) -> tuple[Placed, list[VoluntaryRelease]]:
        """The jobs' places in these clusters once the victims are gone, and the releases without any of which there are none.

        What comes last among the releases is kept first.
        """
        gone = frozenset(victims)
        needed = [release for release in releases if release.attempt not in gone]
        used = self._releases_under(placed, needed)
        if len(used) < len(needed):
            with self.region.voluntary.released(used):
                places = self._places_without(placed, victims)
            if places:
                placed, needed = places, used
        return without_needless(self.region, needed, placed, partial(self._places_without, placed, victims))

    def _places_without(self, placed: Placed, gone: Sequence[AttemptKey]) -> Placed | None:
        """Places for the jobs in the clusters that they have once these attempts are gone; None: there are none."""
        demands = [demand for demand, _ in placed]
        positions = [found.position for _, found in placed]
        places = place_in_turn(self.region, demands, evicting=False, within=positions, gone=gone)
        return places if isinstance(places, list) else None

    def _releases_under(self, placed: Placed, releases: Sequence[VoluntaryRelease]) -> list[VoluntaryRelease]:
        """Those on machines that these places use."""
        used = {
            (found.position, machine) for _, found in placed for machine in found.place.entries[:, MACHINE].tolist()
        }
        return [release for release in releases if self.region.place_of(release.before.machine) in used]

    def make_room(self, demands: Sequence[Demand]) -> _MadeRoom | NoPlace:
        """Places for all jobs, and the victims without which they have none."""
        placed = self.place_all(demands, evicting=True)
        if isinstance(placed, NoPlace):
            room = None if placed.alone else room_with_victims(self.region, [demand.query for demand in demands])
            if room is None:
                return placed
            return _placed_at(demands, room.places), list(room.victims), []
        victims = [victim.key for _, found in placed for victim in found.place.victims]
        own_cells = [victim for _, found in placed for victim in found.place.own_cells]
        if victims:
            placed, victims = self.spare_needless(placed, victims)
        return placed, victims, own_cells

    def most_demanding_first(self, jobs: Sequence[JobSpecification]) -> list[Demand]:
        """By GPUs, then CPUs, then memory of all tasks; equal ones as submitted. An open share of CPUs or memory is last."""
        demands = [Demand(position, job, self.query_of(job)) for position, job in enumerate(jobs)]
        demands.sort(
            key=lambda demand: (
                -demand.query.tasks * demand.query.kind.gpus,
                -demand.query.tasks * demand.query.kind.millicpus,
                -demand.query.tasks * demand.query.kind.mebibytes,
                demand.position,
            )
        )
        return demands

    def refuse_at_once(self, demand: Demand) -> NoPlace | None:
        """That there is no place where the counts of free capacity are too small and there is nothing to evict; else None."""
        counts = self.region.free_counts(demand.query.kind)
        if counts is None or not self.region.is_short(counts, demand.query, self.standing):
            return None
        most = self.region.counts_with_releases(counts, demand.query)
        return NoPlace(demand, True, tuple(most.tolist()))

    def may_be_free(self, demand: Demand) -> bool:
        """Whether some cluster may have a place for the job without evictions, nothing else of the workload being placed."""
        counts = self.region.free_counts(demand.query.kind)
        return counts is None or self.region.most_tasks(counts, demand.query) >= demand.query.tasks

    def place_all(self, demands: Sequence[Demand], *, evicting: bool) -> Placed | NoPlace:
        """Places all jobs, in another order where one fails; without evictions all at once where every order fails."""
        placed = self.place_in_orders(demands, evicting=evicting)
        if evicting or not isinstance(placed, NoPlace) or placed.alone:
            return placed
        places = free_room(self.region, [demand.query for demand in demands])
        return placed if places is None else _placed_at(demands, places)

    def place_in_orders(self, demands: Sequence[Demand], *, evicting: bool) -> Placed | NoPlace:
        """Places one job after the other, in another order where one fails."""
        order = list(demands)
        went_first = {order[0].position}
        tried: set[tuple[Hashable, ...]] = set()
        while True:
            tried.add(tuple(demand.alike for demand in order))
            placed = place_in_turn(self.region, order, evicting=evicting)
            if isinstance(placed, list):
                return placed
            failure, failed = placed, placed.demand
            if failure.alone or failed.position in went_first:
                return failure
            went_first.add(failed.position)
            order.remove(failed)
            order.insert(0, failed)
            if tuple(demand.alike for demand in order) in tried:
                # The same questions in the same order: with many jobs that are alike, once for each of them otherwise.
                return failure

    def spare_needless(self, placed: Placed, victims: list[AttemptKey]) -> tuple[Placed, list[AttemptKey]]:
        """Spares, the last in the order of eviction first (the dearest of a standing, where work is spared), the victims that the jobs can do without in these clusters.

        One job alone never has such a victim, nor has the first of several. Each of the others sought its victims with
        the places of the earlier jobs given, and before those of the later ones were known.
        """
        if len(victims) == len(placed[0][1].place.victims):
            return placed, victims
        demands = [demand for demand, _ in placed]
        positions = [found.position for _, found in placed]
        required = self._required(placed, victims)
        candidates = [victim for victim in victims if victim not in required]
        if not candidates:
            return placed, victims
        candidates.sort(key=lambda key: order_key(self._holding(key)), reverse=True)
        rule = self.region.rule
        if rule.spares_work:
            candidates.sort(key=lambda key: dearest_first(self._holding(key), rule, self.now_s))
        needed = [(found.position, demand.query.tasks * demand.query.kind.gpus) for demand, found in placed]
        victim_gpus = VictimGpus(self.region, needed, [self._holding(key) for key in victims])
        spared = True
        while spared:
            spared = False
            for candidate in candidates:
                if victim_gpus.lacks_gpus_without(candidate):
                    continue
                fewer = [victim for victim in victims if victim != candidate]
                # Jobs are kept to their clusters: in others than the candidate's nothing changes.
                near = [
                    number for number, position in enumerate(positions) if position in victim_gpus.clusters(candidate)
                ]
                gone = victim_gpus.beside(candidate, fewer)
                if near and not self._all_fit([demands[n] for n in near], [positions[n] for n in near], gone):
                    continue
                places = place_in_turn(self.region, demands, evicting=False, within=positions, gone=fewer)
                if isinstance(places, list):
                    placed, victims, spared = places, fewer, True
                    victim_gpus.spare(candidate)
            candidates = [candidate for candidate in candidates if candidate in victims]
        return placed, victims

    def _all_fit(self, demands: Sequence[Demand], positions: Sequence[int], gone: Sequence[AttemptKey]) -> bool:
        """Whether all find a place in these clusters, one for each, once the attempts are gone; evicting no others."""
        return isinstance(place_in_turn(self.region, demands, evicting=False, within=positions, gone=gone), list)

    def _required(self, placed: Placed, victims: Sequence[AttemptKey]) -> set[AttemptKey]:
        """The victims that surely have to go, each job looked at alone."""
        required: set[AttemptKey] = set()
        for demand, found in placed:
            mechanism, cluster = self.region.mechanisms[found.position], self.region.clusters[found.position]
            flags = mechanism.required_victims(demand.query, victims, cluster)
            required.update(victim for victim, must_go in zip(victims, flags, strict=True) if must_go)
        return required

    def refusal_of(self, failure: NoPlace, workload: Workload) -> Refusal:
        """Why there is no plan."""
        region, demand = self.region, failure.demand
        if not failure.alone:
            return no_room_together(region.region, demand.job, self.standing, self.now_s)
        if failure.held:
            binding = self.binding(workload)
            return held_for_others(region.region, demand.job, failure.capacity, binding, self.now_s)
        kind, tasks = demand.query.kind, demand.query.tasks
        empty = region.when_empty(kind, tasks)
        return no_room_alone(region, demand.query, demand.job, self.standing, failure.capacity, empty, self.now_s)

    def plan_of(
        self,
        workload: Workload,
        placed: Placed,
        victims: Sequence[AttemptKey],
        own_cells: Sequence[AttemptKey] = (),
        releases: Sequence[VoluntaryRelease] = (),
    ) -> Plan:
        """The plan that these places and victims make: localities summed over the jobs, every victim counted once.

        Of the victims, some use the workload's own cells opportunistically. The releases are those of other attempts.
        """
        evicted = [self._holding(key) for key in sorted(victims)] if victims else []
        if len(placed) > 1:
            placed = sorted(placed, key=_submitted_position)
        placements: list[TaskPlacement] = []
        cells: list[tuple[JobName, CellUse]] = []
        losing: list[tuple[AttemptKey, JobName]] = []
        spread, fragmentation, load = 0, 0.0, 0.0
        for demand, found in placed:
            place = found.place
            placements += placements_of(self.region, demand.job, found, demand.first_task)
            if place.cells is not None:
                cells.append((demand.job.name, place.cells))
            if place.downgraded:
                losing += [loser for loser in place.downgraded if loser[0] not in victims]
            spread += place.spread + (CLUSTER_WEIGHT if demand.first_task else 0)
            fragmentation += place.fragmentation
            load = max(load, found.load)
        start = Start(tuple(placements), tuple(cells))
        if len(placements) == 1 and not self.region.faults.has_guarded_mechanisms:
            # What mechanisms of packages say is checked against the placements when it is held.
            found = placed[0][1]
            self.region.clusters[found.position].is_planned(start.placements, found.place.entries)
        actions: tuple[Action, ...] = (start,)
        if evicted or losing:
            actions = (*_evictions(evicted, own_cells), *self._downgrades(losing), *actions)
        taken = EVICTS_NOTHING
        if releases:
            actions = (*release_actions(releases), *actions)
            taken = reclaim_class(actions)
        if evicted:
            destroyed_s = destroyed_gpu_s(evicted, self.now_s, self.region.rule)
            preempted = PREEMPTS, destroyed_s, by_priority(evicted), running_s(evicted, self.now_s)
        else:
            preempted = taken, NO_WORK_DESTROYED, NONE_BY_PRIORITY, 0.0
        return Plan(workload.workload, self.region.region, actions, Score(*preempted, spread, fragmentation, 0, load))

    def _downgrades(self, losing: Sequence[tuple[AttemptKey, JobName]]) -> list[Downgrade]:
        jobs_of: dict[AttemptKey, list[JobName]] = {}
        for attempt, job in losing:
            jobs_of.setdefault(attempt, []).append(job)
        return [
            Downgrade(
                key, tuple((job, downgraded(use)) for job, use in self._holding(key).cells if job in jobs_of[key])
            )
            for key in sorted(jobs_of)
        ]

    def _holding(self, key: AttemptKey) -> Holding:
        """What a victim holds. Raises LookupError."""
        holding = self.region.holding(key)
        if holding is None:
            raise LookupError(f"attempt {key.attempt} of workload {key.workload} holds nothing here")
        return holding


def _placed_at(demands: Sequence[Demand], places: Sequence[RoomForPart]) -> Placed:
    """The jobs at these places, the tasks of those that are split numbered through."""
    placed: Placed = []
    next_task = [0] * len(demands)
    for job, tasks, found in places:
        demand = demands[job]
        if tasks < demand.query.tasks:
            demand = demand.part(tasks, next_task[job])
        next_task[job] += tasks
        placed.append((demand, found))
    return placed


def _submitted_position(placed: tuple[Demand, FoundPlace]) -> tuple[int, int]:
    return placed[0].position, placed[0].first_task


def _evictions(victims: Sequence[Holding], own_cells: Sequence[AttemptKey]) -> list[Evict]:
    """They come first: a newcomer may only be charged beyond what is free where an attempt is leaving."""
    return [Evict(victim.key, victim.key in own_cells) for victim in victims]
