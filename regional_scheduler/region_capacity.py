"""What one region has: the capacity and the placement mechanism of each of its clusters, as one.

Attempts may span clusters: each cluster holds its part, and whatever happens to an attempt happens in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import accumulate
from weakref import ref

import numpy as np

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.errors import GrowsWhileLeaving, UnexpectedHolding, UnknownMachine
from cluster_manager.capacity.fitting import free_and_in_service
from cluster_manager.capacity.shared_tables import NeverCopied, SharedTables
from cluster_manager.capacity.tables import GPUS, IN_SERVICE, MILLICPUS, SHAPE, Integers
from cluster_manager.capacity.task_kinds import WHEN_EMPTY, TaskKind
from cluster_manager.capacity.undo_log import Tentatively
from cluster_manager.mechanism import BestPlace, Place, Query, SeveralClusters, Shortfall
from cluster_manager.mechanisms import MakeMechanism, mechanism_called, mechanisms_for
from cluster_manager.recently_used import RecentlyUsed
from domain.cells import CellsOfJobs
from domain.eviction import ALWAYS_S, DEFAULT_RULE, NEVER_S, EvictionRule
from domain.fleet import MachineState, Region
from domain.identifiers import ClusterId, MachineId
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from domain.workload import JobSpecification
from regional_scheduler.held_attempt import HeldAttempt
from regional_scheduler.known_answers import Answers
from regional_scheduler.mechanism_groups import changing_cells, groups_of, packing_positions, reclaiming_for_owners
from regional_scheduler.planning_faults import PlanningFaults
from regional_scheduler.region_releases import CapacityWatcher, ClusterListener
from regional_scheduler.reserved_machines import ReservedMachines
from regional_scheduler.voluntary_releases import VoluntaryReleases

QUESTIONS_ABOUT_EMPTY = 4_096
"""How many jobs' tasks the empty region has capacity for: so many answers are kept."""


class RegionCapacity(NeverCopied):
    """What one region has, and which attempt holds it."""

    def __init__(
        self,
        region: Region,
        states: Mapping[MachineId, MachineState] | None = None,
        mechanisms: Mapping[str, MakeMechanism] | None = None,
        rule: EvictionRule = DEFAULT_RULE,
    ) -> None:
        """An empty region; machines that `states` does not name are up.

        `mechanisms`: what makes those that clusters may name; None: all that there are, of installed packages too.
        Raises UnknownMachine, and ValueError for a name used twice or a mechanism that is not among those, and FormatError
        for a package that should bring one and does not.
        """
        self.region = region.region
        self.rule = rule
        """How far evictions are bounded in this region."""
        self._position_of = {cluster.cluster: position for position, cluster in enumerate(region.clusters)}
        machines = [(m.machine, position) for position, c in enumerate(region.clusters) for m in c.machines()]
        self._cluster_of_machine = dict(machines)
        if len(self._cluster_of_machine) != len(machines) or len(self._position_of) != len(region.clusters):
            raise ValueError(f"region {region.region}: two machines or two clusters have the same name")
        states_of: list[dict[MachineId, MachineState]] = [{} for _ in region.clusters]
        for machine, state in (states or {}).items():
            states_of[self._position(machine)][machine] = state
        self.shared = SharedTables(region.clusters)
        self.clusters = tuple(
            ClusterCapacity(cluster, states_of[position], self.shared, position, rule)
            for position, cluster in enumerate(region.clusters)
        )
        if mechanisms is None:
            mechanisms = mechanisms_for([cluster.mechanism for cluster in region.clusters])
        self.mechanisms = tuple(
            mechanism_called(cluster.mechanism, capacity, mechanisms)
            for cluster, capacity in zip(region.clusters, self.clusters, strict=True)
        )
        self.positions: Integers = np.arange(len(self.clusters))
        """Of all clusters, as they are asked for several."""
        self.cluster_ids = tuple(self._position_of)
        self.machine_ids = tuple(self._cluster_of_machine)
        self.number_of_machine = {machine: number for number, machine in enumerate(self.machine_ids)}
        self._first_machine = (0, *accumulate(len(cluster.layout.machine_ids) for cluster in self.clusters))
        counts = [capacity.layout.shape_count for capacity in self.clusters]
        self._shape_counts = np.array(counts, np.int64).reshape(len(self.clusters), -1 if self.clusters else 0)
        self._most_when_empty: RecentlyUsed[tuple[int, int], Integers] = RecentlyUsed(QUESTIONS_ABOUT_EMPTY)
        self._together = tuple(one if isinstance(one, SeveralClusters) else None for one in self.mechanisms)
        self._reclaiming = reclaiming_for_owners(self.mechanisms, self.clusters)
        self.in_cells = changing_cells(self.mechanisms, self.clusters)
        """The clusters whose attempts may lose cells and get them back while they go on, and their mechanisms."""
        self.faults = PlanningFaults(self.mechanisms)  # what goes wrong in planning
        self._group_of, self.groups = groups_of(self.mechanisms)
        self.packing = packing_positions(self.mechanisms)
        self._answers: tuple[Answers[Place | Shortfall], ...] = tuple(Answers() for _ in self.clusters)
        self._answers_of_several = Answers[BestPlace | tuple[int, ...]]()
        self._held: dict[AttemptKey, HeldAttempt] = {}
        self.reserved = ReservedMachines()
        self.voluntary = VoluntaryReleases(self)  # what its attempts can do without
        self._supposing: list[ClusterCapacity] = []
        self._watchers: list[ref[CapacityWatcher]] = []
        for position, (cluster, mechanism) in enumerate(zip(self.clusters, self.mechanisms, strict=True)):
            cluster.listen(ClusterListener(position, mechanism, self._watchers))

    # What is held.

    def hold(self, holding: Holding) -> None:
        """Charges the placements at once: see `ClusterCapacity.hold`. When it raises, nothing has changed."""
        if holding.key in self._held:
            raise UnexpectedHolding(holding.key, "is held already")
        parts = self._parts(holding)
        if len(parts) > 1:
            with self.tentatively():
                for cluster, part in parts:
                    cluster.hold(part)
        for cluster, part in parts:
            cluster.hold(part)
        self._set_held(holding.key, HeldAttempt(holding, tuple([cluster for cluster, _ in parts])))

    def begin_eviction(self, key: AttemptKey) -> None:
        """The attempt is asked to leave: still charged, no longer a candidate victim. Again: nothing happens."""
        for cluster in self._find_held(key).parts:
            cluster.begin_eviction(key)
            if cluster.description.has_cells:
                # Owners of cells are placed where somebody is leaving, and wait for that.
                cluster.tell_of(key)

    def release(self, key: AttemptKey) -> None:
        """The attempt is gone."""
        for cluster in self._find_held(key).parts:
            cluster.release(key)
        self._set_held(key, None)

    def set_standing(self, key: AttemptKey, standing: Standing) -> None:
        """The attempt's place in the order of eviction from now on."""
        held = self._find_held(key)
        for cluster in held.parts:
            cluster.set_standing(key, standing)
        old = held.holding
        self._set_held(key, HeldAttempt(old._replace(standing=standing), held.parts))

    def begin_run(self, key: AttemptKey, started_s: float) -> None:
        """The attempt runs since then: see `ClusterCapacity.begin_run`."""
        held = self._find_held(key)
        if self.rule.minimum_run_time_s <= 0.0 and not self.rule.spares_work:
            return
        for cluster in held.parts:
            cluster.begin_run(key, started_s)
        self._set_held(key, held.as_in_parts())

    def save_work(self, key: AttemptKey, saved_s: float) -> None:
        """The attempt's work up to then is saved: see `ClusterCapacity.save_work`."""
        held = self._find_held(key)
        for cluster in held.parts:
            cluster.save_work(key, saved_s)
        self._set_held(key, held.as_in_parts())

    def replace_placements(self, key: AttemptKey, placements: tuple[TaskPlacement, ...]) -> None:
        """The attempt holds these from now on instead: see `ClusterCapacity.replace_placements`."""
        held = self._find_held(key)
        holding = held.holding._replace(placements=placements)
        parts = self._parts(holding)
        if len(parts) > 1 or len(held.parts) > 1:
            with self.tentatively():
                self._replace_parts(held, parts)
        self._replace_parts(held, parts)
        self._set_held(key, HeldAttempt(holding, tuple([cluster for cluster, _ in parts])))
        self.voluntary.begins_change(key)

    def change_carried_out(self, key: AttemptKey) -> bool:
        """The last change of what the attempt holds is carried out, where that takes time: it may be changed again. Whether there
        is anything that it can do without."""
        releases = self.voluntary.change_carried_out(key)
        if releases:
            for cluster in self._find_held(key).parts:
                cluster.tell_of(key)
        return releases

    def replace_cells(self, key: AttemptKey, cells: CellsOfJobs) -> None:
        """The attempt's jobs use these cells from now on: see `ClusterCapacity.replace_cells`."""
        held = self._find_held(key)
        for cluster in held.parts:
            cluster.replace_cells(key, cells)
        self._set_held(key, HeldAttempt(held.holding._replace(cells=cells), held.parts))

    def _replace_parts(self, held: HeldAttempt, parts: Sequence[tuple[ClusterCapacity, Holding]]) -> None:
        key = held.holding.key
        kept = [cluster for cluster, _ in parts]
        if any(cluster not in held.parts for cluster in kept) and held.parts and held.parts[0].is_leaving(key):
            raise GrowsWhileLeaving(key)
        for cluster, part in parts:
            if cluster in held.parts:
                cluster.replace_placements(key, part.placements, part.whole_weight)
            else:
                cluster.hold(part)
        for cluster in held.parts:
            if cluster not in kept:
                cluster.release(key)

    def holding(self, key: AttemptKey) -> Holding | None:
        """What the attempt holds; None when it holds nothing here."""
        held = self._held.get(key)
        return held.holding if held is not None else None

    def entries_of(self, key: AttemptKey) -> Integers:
        """What it holds, summed up per machine, as in `AttemptArrays`, machines numbered as in `machine_ids`.

        Raises UnexpectedHolding.
        """
        tables: list[Integers] = []
        for cluster in self._find_held(key).parts:
            first = self._first_machine[cluster.position]
            entries = cluster.entries_of(key)
            if first:
                entries = entries.copy()
                entries[:, MACHINE] += first
            tables.append(entries)
        return tables[0] if len(tables) == 1 else np.concatenate(tables)

    def holdings(self) -> tuple[Holding, ...]:
        """All that is held, sorted by workload and attempt."""
        return tuple(self._held[key].holding for key in sorted(self._held))

    def is_leaving(self, key: AttemptKey) -> bool:
        """Whether the attempt's eviction has begun. Raises UnexpectedHolding."""
        return self._find_held(key).parts[0].is_leaving(key)

    # Machines.

    def set_machine_state(self, machine: MachineId, state: MachineState) -> tuple[AttemptKey, ...]:
        """The machine's state from now on; returns the attempts on it, sorted by workload and attempt.

        Unless it takes work, what it holds stays charged until released. Raises UnknownMachine.
        """
        return self.clusters[self._position(machine)].set_machine_state(machine, state)

    def machine_state(self, machine: MachineId) -> MachineState:
        """What the machine is doing. Raises UnknownMachine."""
        return self.clusters[self._position(machine)].machine_state(machine)

    def place_of(self, machine: MachineId) -> tuple[int, int]:
        """The position of its cluster, and its number in there. Raises UnknownMachine."""
        position = self._position(machine)
        return position, self.clusters[position].number_of(machine)

    def cluster_of(self, machine: MachineId) -> ClusterId:
        """The cluster that has the machine. Raises UnknownMachine."""
        return self.cluster_ids[self._position(machine)]

    def gpus_of(self, machine: MachineId) -> int:
        """How many the machine has. Raises UnknownMachine."""
        arrays, number = self.clusters[self._position(machine)].arrays, self.place_of(machine)[1]
        return int(arrays.shapes[arrays.fixed[number, SHAPE], GPUS])

    def idle(self, machine: MachineId) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and MiB that are free there, whatever its state. Raises UnknownMachine."""
        return self.clusters[self._position(machine)].idle(machine)

    def capacity_of(self, machine: MachineId) -> tuple[int, int, int]:
        """GPUs, thousandths of a CPU and MiB that it has. Raises UnknownMachine."""
        return self.clusters[self._position(machine)].capacity_of(machine)

    @property
    def idle_gpus(self) -> int:
        """GPUs that are free on machines that take work."""
        return int(self.shared.totals[:, GPUS].sum())

    def share_in_use(self, *, of_gpus: bool) -> float:
        """The share of the GPUs (or else CPUs) in use, on machines that take work; 1 when there are none."""
        resource = GPUS if of_gpus else MILLICPUS
        free, in_service = free_and_in_service(self.shared.totals, resource)
        return 1.0 - free / in_service if in_service > 0 else 1.0

    @property
    def in_service(self) -> tuple[int, int]:
        """GPUs and thousandths of a CPU on machines that take work."""
        gpus, millicpus, _ = self.shared.totals[:, IN_SERVICE:].sum(axis=0).tolist()
        return gpus, millicpus

    # Time.

    def pass_time(self, now: float) -> None:
        """Tells the watchers what attempts may be evicted because it is `now`: see `ClusterCapacity.pass_time`."""
        if self.shared.awaits_time:
            for cluster in self.clusters:
                cluster.pass_time(now)

    @property
    def time_passed_s(self) -> float:
        """What was refused with an earlier `now` than this must not be remembered: time has released capacity since."""
        return max([cluster.time_passed_s for cluster in self.clusters], default=ALWAYS_S)

    @property
    def next_evictable_s(self) -> float:
        """When at the earliest time releases capacity again; infinity when it never does."""
        return min([cluster.next_evictable_s for cluster in self.clusters], default=NEVER_S)

    # What there is capacity for.

    def ask(self, position: int, query: Query) -> Place | Shortfall:
        """What the mechanism of one cluster answers. It is not asked again as long as nothing there has changed."""
        cluster, mechanism, answers = self.clusters[position], self.mechanisms[position], self._answers[position]
        key = mechanism.same_answer_key(query, cluster)
        known = answers.known_at(cluster.revision)
        answer = known.get(key)
        if answer is None:
            answer = known[key] = mechanism.find(query, cluster)
        return answer

    def is_one_group(self, positions: Integers) -> bool:
        """Whether the clusters at these positions can be asked in one call."""
        if len(self.groups) == 1:
            return True
        groups = self._group_of[positions]
        return bool((groups == groups[0]).all())

    def ask_several(self, query: Query, positions: Integers) -> BestPlace | tuple[int, ...]:
        """What the mechanism of the clusters at these positions, which are of one group, answers for all of them.

        It is not asked again as long as nothing has changed in the region.
        """
        first = int(positions[0])
        together = self._together[first]
        if together is None:
            raise TypeError(f"the mechanism of cluster {self.cluster_ids[first]} is asked for one cluster at a time")
        # How long victims have been running decides between clusters, so evicting answers are those of their time.
        now_s = query.now_s if query.may_evict else 0.0
        key = self.mechanisms[first].same_answer_key(query, self.clusters[first]), now_s, positions.tobytes()
        known = self._answers_of_several.known_at(self.shared.revision)
        answer = known.get(key)
        if answer is None:
            answer = known[key] = together.find_best(query, self.clusters, positions)
        return answer

    def kind_of(self, job: JobSpecification) -> TaskKind:
        """The kind of the job's tasks, for all clusters. Raises ValueError: see `TaskKinds.of`."""
        return self.shared.kinds.of(job)

    def free_counts(self, kind: TaskKind) -> Integers | None:
        """[cluster] for how many tasks of the kind there is capacity without evictions; changes with the region.

        What is supposed is not counted. None when too many kinds were asked for: then none has counted; and for a kind
        that nothing asked for before something was supposed.
        """
        return self.shared.counted.of(kind, may_begin=not self._supposing)

    def is_short(self, counts: Integers, query: Query, standing: Standing) -> bool:
        """True when these `free_counts` are not enough for the query at this standing, even with all that attempts can do
        without, and there is nothing to evict."""
        if self.most_tasks(counts, query) >= query.tasks or self.any_victim(query, standing):
            return False
        if not self.voluntary.possible:
            return True
        return self.most_tasks(self.counts_with_releases(counts, query), query) < query.tasks

    def most_tasks(self, counts: Integers, query: Query) -> int:
        """For how many tasks there is capacity with these counts: in one cluster, or, if the query may be split, in all that pack."""
        if len(counts) == 1:  # as in most regions that are asked often
            return counts.item()
        most = int(counts.max(initial=0))
        return max(most, int(counts[self.packing].sum())) if query.across_clusters else most

    def counts_with_releases(self, counts: Integers, query: Query) -> Integers:
        """[cluster] for how many tasks there is capacity at most when attempts give up what they can do without."""
        return self.voluntary.counts_with(counts, query.kind) if self.voluntary.possible else counts

    def any_victim(self, query: Query, standing: Standing) -> bool:
        """Whether there is any attempt that the query might evict at this standing; those that are leaving count too.

        That is one of a strictly worse standing; and for the owner of cells whatever is in a cluster where it owns some.
        """
        for cluster in self.clusters:
            if cluster.any_worse(standing):
                return True
        return bool(self._reclaiming) and any(
            mechanism.reclaims(query) and cluster.attempts.live[0] > 0 for mechanism, cluster in self._reclaiming
        )

    @property
    def releases(self) -> int:
        """While it stays, a newcomer that found no place finds none."""
        return self.shared.releases + self.reserved.opened

    def when_empty(self, kind: TaskKind, tasks: int) -> list[int]:
        """Per cluster, how many tasks would fit with nothing else there and all machines up, each counted up to `tasks`."""
        most: list[int] = self.most_when_empty(kind, tasks).tolist()
        return most

    def most_when_empty(self, kind: TaskKind, tasks: int) -> Integers:
        """[cluster] the same as an array that must not be changed."""
        most = self._most_when_empty.get((kind.number, tasks))
        if most is None:
            most = self._shape_counts @ np.minimum(kind.needs.table[:, WHEN_EMPTY], tasks)
            self._most_when_empty.put((kind.number, tasks), most)
        return most

    # Trying out.

    def tentatively(self) -> AbstractContextManager[None]:
        """Everything done inside is undone at exit, also after an exception. May be nested."""
        return Tentatively(self.shared.undo_log)

    @property
    def tentative(self) -> bool:
        """Whether what is done at the moment will be undone."""
        return self.shared.undo_log.tentative

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """What is supposed inside ends at exit. Nothing may be changed inside; not to be nested."""
        revision = self.shared.revision
        try:
            yield
        finally:
            for cluster in self._supposing:
                cluster.end_supposing()
            self._supposing.clear()
            self.shared.revision = revision

    def suppose_released(self, key: AttemptKey) -> None:
        """Does as if the attempt were gone. Raises UnexpectedHolding."""
        for cluster in self._find_held(key).parts:
            self._supposing.append(cluster)
            cluster.suppose_released(key)

    def suppose_charged(self, position: int, entries: Integers) -> None:
        """Does as if these entries were charged in the cluster at this position."""
        self._supposing.append(self.clusters[position])
        self.clusters[position].suppose_charged(entries)

    @property
    def supposing_clusters(self) -> Sequence[ClusterCapacity]:
        """Those in which something is supposed at the moment; one may be there several times."""
        return self._supposing

    def watch(self, watcher: CapacityWatcher) -> None:
        """Tells the watcher from now on whatever is released, as long as it exists: it is not kept."""
        self._watchers.append(ref(watcher))

    def check(self) -> None:
        """Computes everything anew from what is held and compares; raises InvariantBroken (I1 among others)."""
        for cluster in self.clusters:
            cluster.check()

    # Below.

    def _parts(self, holding: Holding) -> list[tuple[ClusterCapacity, Holding]]:
        """What the attempt holds in each cluster, in the order of its placements."""
        placements = holding.placements
        if len(placements) == 1 or len(names := dict.fromkeys([one.cluster for one in placements])) == 1:
            return [(self._cluster_of(placements[0]), holding)]
        parts: list[tuple[ClusterCapacity, Holding]] = []
        for name in names:
            within = tuple([placement for placement in placements if placement.cluster == name])
            part = holding._replace(placements=within, whole_weight=holding.weight)
            parts.append((self._cluster_of(within[0]), part))
        return parts or [(self.clusters[0], holding)]

    def _cluster_of(self, placement: TaskPlacement) -> ClusterCapacity:
        """The cluster that the placement names. Raises UnknownMachine when there is none of that name here."""
        position = self._position_of.get(placement.cluster)
        if position is None:
            where = self.cluster_ids[self._position(placement.machine)]
            raise UnknownMachine(placement.machine, f"is in cluster {where}, not in {placement.cluster}")
        return self.clusters[position]

    def _set_held(self, key: AttemptKey, held: HeldAttempt | None) -> None:
        if self.shared.undo_log.tentative:
            self.shared.undo_log.note(partial(self._set_held, key, self._held.get(key)))
        if self.reserved:
            self.reserved.holds(key.workload, anything=held is not None)
        if held is None:
            del self._held[key]
            self.voluntary.holds(key, None)
        else:
            self._held[key] = held
            self.voluntary.holds(key, held.holding)

    def _find_held(self, key: AttemptKey) -> HeldAttempt:
        try:
            return self._held[key]
        except KeyError:
            raise UnexpectedHolding(key, "holds nothing here") from None

    def _position(self, machine: MachineId) -> int:
        try:
            return self._cluster_of_machine[machine]
        except KeyError:
            raise UnknownMachine(machine, f"is not in region {self.region}") from None
