"""The attempts of a region that have not ended: where each stands, what its clusters said last and were asked last.

Where an attempt stands is moved along by the machine in `cluster_manager.attempt_run.machine` alone, which is fed with
what all of its clusters report (`gang_reports.py`). Orders follow from where it stands, so that they can be given again
on every new connection. Talking to cluster managers and the database is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import or_
from typing import TypeVar

from cluster_manager.attempt_run.actions import AttemptAction
from cluster_manager.attempt_run.events import AttemptEvent, Eviction, GraceOver, LeaveAsked, MachineLost, Resized
from cluster_manager.attempt_run.machine import step
from cluster_manager.attempt_run.making_room import is_in_the_way
from cluster_manager.attempt_run.run import AttemptRun, Phase, stop_grace_s
from domain.cells import CellsOfJobs
from domain.events import EvictionCause
from domain.identifiers import ClusterId, MachineId, TenantId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import PlacementChange
from domain.rank import Standing
from domain.workload import WorkloadSpecification
from services.database.placement_change_store import TaskKills
from services.database.profile_store import ReportedProfile
from services.execution.executor import ENDED_PHASES, AttemptPhase, AttemptStatus
from services.progress_pace import ShownProgress
from services.tuned_work import UNTUNED, TunedWork

NO_KILLS = TaskKills()

_Name = TypeVar("_Name", AttemptKey, MachineId)


@dataclass(slots=True)
class LiveAttempt:
    """One attempt between dispatch and end."""

    run: AttemptRun
    tenant: TenantId
    specification: WorkloadSpecification
    standing: Standing
    within_quota: bool
    guaranteed: bool
    """Whether it was within quota when it was dispatched."""
    dispatched_s: float
    charges: Mapping[str, int]
    placements: tuple[TaskPlacement, ...]
    submitted_s: float | None = None
    """Of the first attempt of a workload that this session has dispatched: when that was submitted. For metrics alone."""
    cells: CellsOfJobs = ()
    """Of its jobs that use cells of a virtual cluster."""
    tuned: TunedWork = UNTUNED
    """How fast it works by the CPUs and memory that it holds."""
    revision: int = 0
    """How often its placements have changed since it was dispatched."""
    change: PlacementChange | None = None
    """The last change of its placements while that is being carried out."""
    changed: Mapping[ClusterId, tuple[float, float]] = field(default_factory=dict)
    """By cluster: since when its placements are as they are there, and its progress then."""
    task_kills: TaskKills = NO_KILLS
    """How often flexible tasks of it were killed by themselves."""
    reports: dict[ClusterId, AttemptStatus] = field(default_factory=dict)
    """What each of its clusters said last."""
    ordered: dict[ClusterId, Order] = field(default_factory=dict)
    """What each of its clusters was asked last, on its present link."""
    asked_revision: dict[ClusterId, int] = field(default_factory=dict)
    """To which placements each of its clusters was asked last to change, on its present link."""
    profiles: tuple[ReportedProfile, ...] = ()
    """What its tasks have reported of their models, as far as this session has written it down."""
    written: ShownProgress | None = None
    """Its progress as this session has written it last; None: it has not."""
    began_s: float | None = None
    """Since when the whole gang runs, as its clusters have said in this session; a cluster that forgets it takes nothing of that back."""
    perhaps_known: set[ClusterId] = field(default_factory=set)
    """Clusters that may have been asked to run it: they were, or a former session may have done it. A complete report
    that does not name it takes the cluster out again."""

    def take(self, event: AttemptEvent) -> tuple[AttemptAction, ...]:
        """Moves it along; returns what has to be done about it. Raises EventRefused."""
        self.run, actions = step(self.run, event)
        return actions

    @property
    def key(self) -> AttemptKey:
        return self.run.facts.key

    @property
    def shown(self) -> ShownProgress:
        """How far it is, by what its clusters have reported."""
        return ShownProgress(self.run.progress, self.run.throughput)

    @property
    def state(self) -> State:
        """Its workload's."""
        return self.run.state

    @property
    def started_s(self) -> float | None:
        """Since when it runs, as far as that is recorded."""
        return self.run.started_s

    @property
    def may_grow_from_s(self) -> float:
        """From when on rounds may give it more tasks: after each that was killed it waits as a workload does that has failed
        so often."""
        kills = self.task_kills
        return kills.last_s + self.specification.retry.wait_s(kills.times) if kills.times else 0.0

    @property
    def eviction(self) -> Eviction | None:
        """Why it has to leave, if it has to."""
        return self.run.eviction

    @property
    def clusters(self) -> tuple[ClusterId, ...]:
        """The clusters in which it holds anything, or has yet to give it up; sorted."""
        giving_up = self.change.released if self.change is not None else ()
        return tuple(sorted({placement.cluster for placement in (*self.placements, *giving_up)}))

    def clusters_among(self, clusters: Collection[ClusterId]) -> tuple[ClusterId, ...]:
        """Those of these clusters in which it holds anything, or has yet to give it up; sorted."""
        return tuple(cluster for cluster in self.clusters if cluster in clusters)

    @property
    def left_clusters(self) -> frozenset[ClusterId]:
        """Those of them in which it is to hold nothing any more: what becomes of its part there is nothing to the rest."""
        return frozenset(self.clusters) - {placement.cluster for placement in self.placements}

    @property
    def machines(self) -> frozenset[MachineId]:
        """Where it holds anything, or has yet to give it up."""
        giving_up = self.change.released if self.change is not None else ()
        return frozenset(placement.machine for placement in (*self.placements, *giving_up))

    def leave(self, cluster: ClusterId) -> None:
        """It has nothing in the cluster any more, which is asked for nothing more."""
        self.reports.pop(cluster, None)
        self.ordered.pop(cluster, None)
        self.asked_revision.pop(cluster, None)
        self.perhaps_known.discard(cluster)

    @property
    def ended_everywhere(self) -> bool:
        return all(cluster in self.reports and self.reports[cluster].phase in ENDED_PHASES for cluster in self.clusters)


class Order(StrEnum):
    """What a cluster manager is asked to do with its part of an attempt; later ones include earlier ones."""

    HOLD = "hold"
    EXECUTE = "execute"
    STOP = "stop"
    """With time to save its work."""
    KILL = "kill"
    """Stop at once."""


def wanted_order(attempt: LiveAttempt, cluster: ClusterId) -> Order | None:
    """What this cluster should be asked now; None when it was asked already or there is nothing to ask."""
    report = attempt.reports.get(cluster)
    asked = attempt.ordered.get(cluster)
    if report is not None and report.phase in ENDED_PHASES:
        return None
    if must_stop(attempt):
        if never_ordered(attempt) or asked is Order.KILL:
            return None
        # If it had started and the cluster does not know it any more, it has to be taken up before it can be stopped in order.
        if report is None and asked is None and attempt.started_s is not None:
            return Order.EXECUTE
        if asked is Order.STOP:
            return Order.KILL if stop_grace_s(attempt.run) <= 0 else None
        return Order.KILL if stop_grace_s(attempt.run) <= 0 or _broke_somewhere(attempt) else Order.STOP
    if report is not None and report.phase is not AttemptPhase.HELD:
        return None
    if attempt.run.phase is Phase.DISPATCHED:
        return None  # attempts that are leaving are still in its place
    together = len(attempt.clusters) == 1 or attempt.started_s is not None or _held_everywhere(attempt)
    wanted = Order.EXECUTE if together else Order.HOLD
    return None if asked is wanted or asked is Order.EXECUTE else wanted


def _held_everywhere(attempt: LiveAttempt) -> bool:
    return all(cluster in attempt.reports for cluster in attempt.clusters)


def must_stop(attempt: LiveAttempt) -> bool:
    """It has to leave, or something of it has ended badly."""
    return attempt.run.phase in (Phase.LEAVING, Phase.BROKEN)


def _broke_somewhere(attempt: LiveAttempt) -> bool:
    return any(report.phase in (AttemptPhase.FAILED, AttemptPhase.LOST) for report in attempt.reports.values())


def never_ordered(attempt: LiveAttempt) -> bool:
    """True when it is to be stopped and no cluster has heard of it: it can end at once."""
    began = attempt.began_s is not None or attempt.started_s is not None
    return must_stop(attempt) and not (began or attempt.reports or attempt.perhaps_known)


def leave_event(eviction: Eviction, now: float) -> LeaveAsked | MachineLost:
    """What happens to an attempt that has to leave for this cause."""
    return MachineLost(now) if eviction.cause is EvictionCause.MACHINE_LOST else LeaveAsked(now, eviction)


def change_carried_out(attempt: LiveAttempt) -> bool:
    """True when the change that was decided last is carried out in all of its clusters, as they have reported.

    One that has completed its jobs holds nothing any more and is asked for no change. When all of them have, the attempt
    ends, and nothing was changed.
    """
    reports = [attempt.reports.get(cluster) for cluster in attempt.clusters]
    carried_out = [report is not None and report.revision >= attempt.revision for report in reports]
    completed = [report is not None and report.phase is AttemptPhase.COMPLETED for report in reports]
    left = attempt.left_clusters
    completed = [
        done or (cluster in left and report is not None and report.ended)
        for done, cluster, report in zip(completed, attempt.clusters, reports, strict=True)
    ]
    return attempt.change is not None and any(carried_out) and all(map(or_, carried_out, completed))


def change_to_ask_for(attempt: LiveAttempt, cluster: ClusterId, *, waits: bool) -> bool:
    """Whether this cluster is to be asked now for the change that was decided last.

    `waits`: what the attempt gets is not free yet.
    """
    report = attempt.reports.get(cluster)
    return (
        attempt.change is not None
        and not waits
        and attempt.run.phase is Phase.RUNNING
        and report is not None
        and report.phase is AttemptPhase.RUNNING
        and max(report.revision, attempt.asked_revision.get(cluster, 0)) < attempt.revision
    )


class RegionAttempts:
    """Every live attempt of the region by key and by machine, and which of them are leaving each machine."""

    __slots__ = ("_attempts", "_by_machine", "_dispatched", "_leaving_by_machine", "_waiting_for")

    def __init__(self, attempts: Iterable[LiveAttempt] = ()) -> None:
        self._attempts: dict[AttemptKey, LiveAttempt] = {}
        self._dispatched: dict[AttemptKey, LiveAttempt] = {}
        self._by_machine: dict[MachineId, set[AttemptKey]] = {}
        self._leaving_by_machine: dict[MachineId, set[AttemptKey]] = {}
        self._waiting_for: dict[AttemptKey, set[AttemptKey]] = {}
        """Whose changes wait for an attempt, by that attempt."""
        for attempt in attempts:
            self.add(attempt)

    def __iter__(self) -> Iterator[LiveAttempt]:
        return iter(self._attempts.values())

    def __len__(self) -> int:
        return len(self._attempts)

    def get(self, key: AttemptKey) -> LiveAttempt | None:
        return self._attempts.get(key)

    def add(self, attempt: LiveAttempt) -> None:
        self._attempts[attempt.key] = attempt
        self._note_change(attempt)
        if attempt.state is State.PREEMPTING:
            self._note_leaving(attempt)
        elif attempt.state is State.DISPATCHED:
            self._dispatched[attempt.key] = attempt

    def move(self, key: AttemptKey, run: AttemptRun) -> None:
        """It stands there from now on: what the machine said was recorded."""
        attempt = self._attempts[key]
        attempt.run = run
        if run.state is not State.DISPATCHED:
            self._dispatched.pop(key, None)

    def begin_eviction(self, key: AttemptKey, eviction: Eviction, now: float) -> None:
        """It has to leave from now on; with its machine it may be lost while it is leaving already."""
        attempt = self._attempts[key]
        is_late = eviction.overdue and attempt.run.phase is Phase.LEAVING
        attempt.take(GraceOver(now) if is_late else leave_event(eviction, now))
        self._dispatched.pop(key, None)
        self._note_leaving(attempt)

    def begin_change(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], change: PlacementChange
    ) -> list[AttemptKey]:
        """It is to hold these from now on; what it gives up is not free before `end_change`.

        A change that undoes the last one takes its place: returns the attempts that may have waited for that.
        """
        attempt = self._attempts[key]
        before, undone = attempt.machines, attempt.change
        kept = frozenset(placement.machine for placement in undone.released) if undone is not None else frozenset()
        for other in undone.waits_for if undone is not None else ():
            _discard(self._waiting_for, other, key)
        for machine in kept:
            _discard(self._leaving_by_machine, machine, key)
        attempt.placements, attempt.change, attempt.revision = placements, change, attempt.revision + 1
        for machine in before - attempt.machines:
            _discard(self._by_machine, machine, key)
        self._note_change(attempt)
        return [] if undone is None else self._may_have_waited(kept, key)

    def restore_change(
        self,
        key: AttemptKey,
        revision: int,
        change: PlacementChange | None,
        changed: Mapping[ClusterId, tuple[float, float]],
    ) -> None:
        """A new session takes up what an earlier one had decided."""
        attempt = self._attempts[key]
        attempt.revision, attempt.change, attempt.changed = revision, change, changed
        self._note_change(attempt)

    def end_change(self, key: AttemptKey, changed: Mapping[ClusterId, tuple[float, float]]) -> list[AttemptKey]:
        """The change is carried out, as the machine of its run says; returns the attempts that may have waited for that."""
        attempt = self._attempts[key]
        change, attempt.change, attempt.changed = attempt.change, None, changed
        freed = frozenset(placement.machine for placement in change.released) if change is not None else frozenset()
        for machine in freed - attempt.machines:
            _discard(self._by_machine, machine, key)
        for other in change.waits_for if change is not None else ():
            _discard(self._waiting_for, other, key)
        if attempt.run.phase is Phase.RUNNING:
            attempt.take(Resized(max(since_s for since_s, _ in changed.values()), attempt.placements))
        # One that is leaving gives up the rest of its machines at its end.
        for machine in freed - attempt.machines if attempt.state is State.PREEMPTING else freed:
            _discard(self._leaving_by_machine, machine, key)
        return self._may_have_waited(freed, key)

    def _may_have_waited(self, machines: frozenset[MachineId], key: AttemptKey) -> list[AttemptKey]:
        """Attempts that are to start on these machines, and those whose changes wait for the attempt."""
        return [waiting.key for waiting in self.waiting_on(machines)] + self.waiting_for(key)

    def waiting_for(self, key: AttemptKey) -> list[AttemptKey]:
        """The attempts whose changes wait for this one to leave or to give something up, sorted."""
        return sorted(self._waiting_for.get(key, ()))

    def change_waits(self, attempt: LiveAttempt) -> bool:
        """Whether what the attempt's change gets is not free yet."""
        if attempt.change is None:
            return False
        others = (self._attempts.get(key) for key in attempt.change.waits_for)
        return any(other is not None and self._gives_up(other) for other in others)

    def giving_up_on(self, machines: frozenset[MachineId], but: AttemptKey) -> tuple[AttemptKey, ...]:
        """The other attempts that are leaving one of these machines, or have yet to give something up there; sorted."""
        keys = {key for machine in machines for key in self._leaving_by_machine.get(machine, set())}
        return tuple(sorted(keys - {but}))

    @staticmethod
    def _gives_up(attempt: LiveAttempt) -> bool:
        return attempt.state is State.PREEMPTING or (attempt.change is not None and bool(attempt.change.released))

    def remove(self, key: AttemptKey) -> frozenset[MachineId]:
        """Forgets an ended attempt; returns its machines."""
        attempt = self._attempts.pop(key)
        self._dispatched.pop(key, None)
        for machine in attempt.machines:
            _discard(self._by_machine, machine, key)
            _discard(self._leaving_by_machine, machine, key)
        for other in attempt.change.waits_for if attempt.change is not None else ():
            _discard(self._waiting_for, other, key)
        return attempt.machines

    def blocked(self, attempt: LiveAttempt) -> bool:
        """True while another one is in its way that leaves, or has yet to give something up."""
        return any(
            self._is_in_the_way(self._attempts[key], attempt)
            for key in self.giving_up_on(attempt.machines, attempt.key)
        )

    @staticmethod
    def _is_in_the_way(other: LiveAttempt, newcomer: LiveAttempt) -> bool:
        released = other.change.released if other.change is not None else ()
        # What is given up counts as free before it is: the newcomer may have got any of it.
        if any(placement.machine in newcomer.machines for placement in released):
            return True
        heir = other.eviction.by if other.eviction is not None else None
        in_cells = bool(newcomer.cells)
        return is_in_the_way(other.placements, heir, newcomer.key, newcomer.placements, in_cells=in_cells)

    def on(self, machine: MachineId) -> list[AttemptKey]:
        """Attempts with something on this machine, sorted."""
        return sorted(self._by_machine.get(machine, ()))

    def waiting_on(self, machines: frozenset[MachineId]) -> list[LiveAttempt]:
        """Attempts that are dispatched and not started on any of these machines, sorted by key."""
        there = {key for machine in machines for key in self._by_machine.get(machine, ()) if key in self._dispatched}
        return [self._dispatched[key] for key in sorted(there)]

    def _note_leaving(self, attempt: LiveAttempt) -> None:
        for machine in attempt.machines:
            self._leaving_by_machine.setdefault(machine, set()).add(attempt.key)

    def _note_change(self, attempt: LiveAttempt) -> None:
        """It has these placements from now on, and this change of them is to be carried out."""
        for machine in attempt.machines:
            self._by_machine.setdefault(machine, set()).add(attempt.key)
        if attempt.change is not None:
            for placement in attempt.change.released:
                self._leaving_by_machine.setdefault(placement.machine, set()).add(attempt.key)
            for other in attempt.change.waits_for:
                self._waiting_for.setdefault(other, set()).add(attempt.key)


def _discard(index: dict[_Name, set[AttemptKey]], name: _Name, key: AttemptKey) -> None:
    """Takes the attempt out of one entry of an index, and the entry with its last attempt."""
    keys = index.get(name)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del index[name]
