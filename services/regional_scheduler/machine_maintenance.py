"""Machines that are lost, come back, or are drained and undrained: recorded together with the attempts that have to leave them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cluster_manager.attempt_run.events import Completed, Eviction
from cluster_manager.attempt_run.run import Phase
from domain.clock import Clock
from domain.events import EvictionCause
from domain.fleet import MachineState
from domain.identifiers import MachineId, WorkloadId
from domain.life_cycle import State
from domain.machine_life_cycle import (
    MACHINE_TRANSITIONS,
    MachineHappening,
    MachineTransitionRefused,
    machine_rows,
)
from domain.placement import AttemptKey
from domain.placement_changes import PlacementChange, flexible_among, name_of
from domain.plan import ScaleIn
from regional_scheduler.plan_application import apply_actions
from services.database import drain_store, fleet_store, machine_move_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.cluster_link import MachineReport
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.gang_reports import end_of
from services.regional_scheduler.inbox import MachineRequest
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.lost_tasks import GoingOn, LostTasks
from services.regional_scheduler.machine_states import record_machine_happenings
from services.regional_scheduler.plan_writing import PlannedWrites, PlanWriting, write_changes
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.undone_changes import UndoneChanges
from services.tiers.fenced_transaction import fenced_transaction
from services.tiers.turns import Turns

_MOST_AT_ONCE = 512
"""So many machines are recorded in one transaction: the loop never stands still for long."""

_HAPPENED = MappingProxyType({MachineHappening.FAILED: "is lost", MachineHappening.DRAINED: "is drained"})


@dataclass(frozen=True, slots=True)
class Drain:
    """What an operator says who drains machines."""

    reason: str
    deadline_s: float | None
    """When what is on them has to leave; None: it may end by itself."""


class MachineStateRefused(Exception):
    """What is wanted cannot happen to the machine in the state in which it is; changes nothing."""


@dataclass(frozen=True, slots=True)
class _Staying:
    """Attempts on machines that are lost or drained that need not leave for it."""

    undone: Sequence[tuple[LiveAttempt, PlacementChange]] = ()
    """With the change by which they go on with what they hold elsewhere."""
    going_on: Sequence[GoingOn] = ()
    """They lose flexible tasks only, or give them up while another change of theirs is not carried out yet."""
    giving_up: Sequence[ScaleIn] = ()
    """They give up flexible tasks."""
    untouched: frozenset[AttemptKey] = frozenset()
    """They have completed, or are giving up what they have there."""

    @property
    def keys(self) -> frozenset[AttemptKey]:
        return self.untouched.union(
            (attempt.key for attempt, _ in self.undone),
            (one.attempt.key for one in self.going_on),
            (action.attempt for action in self.giving_up),
        )


class MachineMaintenance:
    """Changes the states of a region's machines."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        eviction_writer: EvictionWriter,
        undone_changes: UndoneChanges,
        lost_tasks: LostTasks,
        absent: AbsentClusters,
        arrivals: Arrivals,
        clock: Clock,
    ) -> None:
        self._arrivals = arrivals
        self._database = database
        self._lease = lease
        self._memory = memory
        self._eviction_writer = eviction_writer
        self._undone_changes = undone_changes
        self._lost_tasks = lost_tasks
        self._absent = absent
        self._clock = clock
        self.drains_changed = 0
        """How often operators have drained or undrained machines in this session."""

    async def take_reports(self, reports: Iterable[MachineReport]) -> None:
        """What cluster managers see. A machine that is being drained stays so while it is seen to be up.

        A complete report names every machine of its cluster: only what is news is written, together as far as it says of
        each machine one thing and does not take long.
        """
        news: dict[MachineId, MachineReport] = {}
        turns = Turns()
        for report in reports:
            if report.machine in news or len(news) == _MOST_AT_ONCE:
                await self._take(news)
                news = {}
            if self._is_news(report):
                news[report.machine] = report
            await turns.give_way()
        await self._take(news)

    async def _take(self, news: Mapping[MachineId, MachineReport]) -> None:
        """First of machines that are lost."""
        for up, happening in ((False, MachineHappening.FAILED), (True, MachineHappening.REPAIRED)):
            reasons = {report.machine: report.reason for report in news.values() if report.up is up}
            if reasons:
                await self._change(reasons, happening, keep_running=up, refuse=False)
                self._memory.machines_lost += 0 if up else len(reasons)

    def _is_news(self, report: MachineReport) -> bool:
        """Whether the memory does not know it yet, or something is still on a machine that is down."""
        if not self._absent.knows(report.machine):
            return True  # It was added a moment ago.
        state = self._memory.machine_state(report.machine)
        happening = MachineHappening.REPAIRED if report.up else MachineHappening.FAILED
        if (state, happening) in MACHINE_TRANSITIONS:
            return True
        if report.up or not state.is_down:
            return False
        return bool(self._memory.live.on(report.machine)) or self._arrivals.keeps_on(report.machine)

    async def answer(self, requests: Iterable[MachineRequest]) -> None:
        """Answers operators' requests. What breaks the session is also the answer to those that wait."""
        for request in requests:
            self.drains_changed += 1
            try:
                evicted = await self._answer(request)
            except MachineStateRefused as refused:
                _fail(request, refused)
            except Exception as error:
                _fail(request, error)
                raise
            else:
                if not request.evicted.done():
                    request.evicted.set_result(evicted)

    async def _answer(self, request: MachineRequest) -> list[AttemptKey]:
        """An operator has the last word: the machines stay in their cluster, and are drained, or take work, as is asked."""
        evicted: list[AttemptKey] = []
        for first in range(0, len(request.machines), _MOST_AT_ONCE):
            machines = request.machines[first : first + _MOST_AT_ONCE]
            async with fenced_transaction(self._database, self._lease) as connection:
                await machine_move_store.remove_moves(connection, machines)
            evicted += await self._change(
                dict.fromkeys(machines, request.reason),
                request.happening,
                keep_running=request.keep_running,
                refuse=request.refuse,
                drain=Drain(request.reason, request.deadline_s if request.keep_running else self._clock.now()),
            )
        return evicted

    async def empty(self, reasons: Mapping[MachineId, str]) -> list[AttemptKey]:
        """What is still on these machines, which are drained, has to leave; returns that."""
        return await self._change(reasons, MachineHappening.DRAINED, keep_running=False, refuse=False)

    async def _change(
        self,
        reasons: Mapping[MachineId, str],
        happening: MachineHappening,
        *,
        keep_running: bool,
        refuse: bool = True,
        drain: Drain | None = None,
    ) -> list[AttemptKey]:
        """Records the states and what has to leave, in one transaction; returns what does. `reasons` by machine.

        A machine to which that has happened already stays as it is, and what still runs there has to leave all the same.
        One to which it cannot happen is passed over, or (`refuse`) MachineStateRefused is raised and nothing changed.
        `drain`: an operator wants it, until an operator undoes it.
        """
        cause = EvictionCause.DRAINED if happening is MachineHappening.DRAINED else EvictionCause.MACHINE_LOST
        leaving: list[AttemptKey] = []
        staying = _Staying()
        lost: list[AttemptKey] = []
        without_place: list[WorkloadId] = []
        async with fenced_transaction(self._database, self._lease) as connection:
            deadline_s = drain.deadline_s if drain is not None and keep_running else None
            states = await self._record(connection, reasons, happening, deadline_s, refuse=refuse)
            if drain is not None:
                await self._store_drain(connection, list(states), happening, drain)
            if happening in (MachineHappening.DRAINED, MachineHappening.FAILED):
                without_place = await self._arrivals.give_up(connection, states)
            if not keep_running:
                there = sorted({key for machine in states for key in self._memory.live.on(machine)})
                staying = self._staying(there, states, happening)
                await self._write_staying(connection, staying, reasons, happening)
                there = [key for key in there if key not in staying.keys]
                if cause is EvictionCause.MACHINE_LOST:
                    lost = await self._eviction_writer.write_lost(connection, there)
                leaving = await self._eviction_writer.write(connection, there, Eviction(cause))
        for machine, state in states.items():
            if state is not None and self._absent.knows(machine):
                # Of one that was added a moment ago the state is taken over with the machine.
                self._absent.set_state(machine, state)
        self._begin_staying(staying)
        self._eviction_writer.begin_lost(lost)
        for workload in without_place:
            self._arrivals.withdraw(workload)
        self._eviction_writer.begin(leaving, Eviction(cause))
        return leaving

    async def _store_drain(
        self, connection: AnyConnection, machines: Sequence[MachineId], happening: MachineHappening, drain: Drain
    ) -> None:
        if happening is MachineHappening.DRAINED:
            await drain_store.store(connection, machines, drain.reason, self._clock.now(), drain.deadline_s)
        elif happening is MachineHappening.UNDRAINED:
            await drain_store.remove(connection, machines)

    def _staying(
        self, there: Iterable[AttemptKey], machines: Collection[MachineId], happening: MachineHappening
    ) -> _Staying:
        """Which of the attempts on these machines need not leave."""
        undone = self._undone(there, machines)
        others = set(there) - {attempt.key for attempt, _ in undone}
        untouched = {key for key in others if self._has_completed(key) or self._only_gives_up(key, machines)}
        rest = sorted(others - untouched)
        if happening is MachineHappening.FAILED:
            return _Staying(undone, going_on=self._going_on(rest, machines), untouched=frozenset(untouched))
        replaced = self._giving_up_besides(rest, machines)
        return _Staying(undone, replaced, self._giving_up(rest, machines), frozenset(untouched))

    async def _write_staying(
        self,
        connection: AnyConnection,
        staying: _Staying,
        reasons: Mapping[MachineId, str],
        happening: MachineHappening,
    ) -> None:
        """Writes the changes by which they stay; after the commit `_begin_staying` does the same to memory."""
        for attempt, back in staying.undone:
            await self._write_way_back(connection, attempt, back, reasons, happening)
        for one in staying.going_on:
            await self._lost_tasks.write(connection, one)
        writes = self._writes_of(staying.giving_up)
        await write_changes(connection, self._memory.region.region, writes, self._clock.now())

    def _begin_staying(self, staying: _Staying) -> None:
        """What was written counts in memory too."""
        for attempt, back in staying.undone:
            if back is not attempt.change:
                self._undone_changes.begin(attempt, back)
        for one in staying.going_on:
            self._lost_tasks.begin(one)
        writes = self._writes_of(staying.giving_up)
        apply_actions(self._memory.inventory, staying.giving_up, self._clock.now())
        self._eviction_writer.carry_out(writes)

    def _undone(
        self, there: Iterable[AttemptKey], machines: Collection[MachineId]
    ) -> list[tuple[LiveAttempt, PlacementChange]]:
        """The running attempts that were only to hold something on these machines, or have only to give it up there.

        Each with the change by which it goes on with what it holds elsewhere: its present one, if that does it.
        """
        undone: list[tuple[LiveAttempt, PlacementChange]] = []
        for key in there:
            attempt = self._memory.live.get(key)
            if attempt is None or attempt.change is None or attempt.state is not State.RUNNING:
                continue
            change = attempt.change
            if any(placement.machine in machines for placement in change.before):
                continue
            back = change if change.undoes else self._undone_changes.way_back(attempt)
            if back is not None:
                undone.append((attempt, back))
        return undone

    def _going_on(self, there: Iterable[AttemptKey], machines: Collection[MachineId]) -> list[GoingOn]:
        """Those of these attempts that lose flexible tasks only."""
        attempts = [attempt for key in there if (attempt := self._memory.live.get(key)) is not None]
        return [one for attempt in attempts if (one := self._lost_tasks.on_machines(attempt, machines)) is not None]

    def _giving_up(self, there: Iterable[AttemptKey], machines: Collection[MachineId]) -> list[ScaleIn]:
        """What those of these running attempts give up that have flexible tasks only on these machines, which are drained."""
        giving_up: list[ScaleIn] = []
        for key in there:
            attempt = self._memory.live.get(key)
            if attempt is None or attempt.run.phase is not Phase.RUNNING or attempt.change is not None:
                continue
            names = tuple([name_of(placement) for placement in attempt.placements if placement.machine in machines])
            if flexible_among(attempt.specification, names):
                giving_up.append(ScaleIn(key, names))
        return giving_up

    def _giving_up_besides(self, there: Iterable[AttemptKey], machines: Collection[MachineId]) -> list[GoingOn]:
        """The same for those whose last change is not carried out yet: it is part of the one by which they give them up."""
        attempts = [attempt for key in there if (attempt := self._memory.live.get(key)) is not None]
        changing = [attempt for attempt in attempts if attempt.change is not None]
        return [one for attempt in changing if (one := self._lost_tasks.giving_up(attempt, machines)) is not None]

    def _writes_of(self, giving_up: Sequence[ScaleIn]) -> PlannedWrites:
        writing = PlanWriting(self._memory.region.region, self._memory.live, self._clock.now())
        writing.add_actions(giving_up)
        return writing.writes

    def _only_gives_up(self, key: AttemptKey, machines: Collection[MachineId]) -> bool:
        """Whether the running attempt is to hold nothing on these machines any more, only to give something up there."""
        attempt = self._memory.live.get(key)
        if attempt is None or attempt.state is not State.RUNNING:
            return False
        return all(placement.machine not in machines for placement in attempt.placements)

    def _has_completed(self, key: AttemptKey) -> bool:
        """Whether the attempt has completed, which is yet to be recorded: it has nothing to lose any more."""
        attempt = self._memory.live.get(key)
        return attempt is not None and isinstance(end_of(attempt, self._clock.now()), Completed)

    async def _write_way_back(
        self,
        connection: AnyConnection,
        attempt: LiveAttempt,
        back: PlacementChange,
        reasons: Mapping[MachineId, str],
        happening: MachineHappening,
    ) -> None:
        """Nothing for an attempt whose change is one back already."""
        if back is attempt.change:
            return
        machine = min(attempt.machines & set(reasons))
        reason = f"machine {machine}, where it was to hold more, {_HAPPENED[happening]}: {reasons[machine]}"
        await self._undone_changes.tell(connection, attempt, self._memory.inventory.cluster_of(machine), reason)
        await self._undone_changes.write(connection, attempt, back)

    async def _record(
        self,
        connection: AnyConnection,
        reasons: Mapping[MachineId, str],
        happening: MachineHappening,
        deadline_s: float | None,
        *,
        refuse: bool,
    ) -> dict[MachineId, MachineState | None]:
        """The machines to which it happens, or has happened already: these with None, the others with their new states.

        Raises MachineStateRefused (`refuse`) for the first to which it cannot happen; else that one is passed over.
        """
        region, now = self._memory.region.region, self._clock.now()
        changed = await record_machine_happenings(connection, region, reasons, happening, now, deadline_s)
        others = [machine for machine in reasons if machine not in changed]
        present = await fleet_store.states_of(connection, others) if others else {}
        states: dict[MachineId, MachineState | None] = dict(changed)
        for machine in others:
            try:
                _check_happened(machine, present.get(machine), happening)
            except MachineStateRefused:
                if refuse:
                    raise
            else:
                states[machine] = None
        return states


def _check_happened(machine: MachineId, present: MachineState | None, happening: MachineHappening) -> None:
    """Raises MachineStateRefused unless the machine is as if that had happened to it. None: it is gone."""
    if present is None:
        raise MachineStateRefused(f"there is no machine {machine} any more")
    if present not in {after for _, after in machine_rows(happening)}:
        raise MachineStateRefused(str(MachineTransitionRefused(machine, present, happening)))


def _fail(request: MachineRequest, error: Exception) -> None:
    if not request.evicted.done():
        request.evicted.set_exception(error)
