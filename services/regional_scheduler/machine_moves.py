"""Machines change their cluster while the region works: decided from time to time, drained, emptied, and moved.

All that a move needs is in the database: a new session goes on where the last one was. A machine is in one cluster, by one
column of one row, and takes no work of either while it is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog

from data_placement.machine_assignment.carrying_out import moves_after
from domain.clock import Clock
from domain.events import Event, EventKind
from domain.fleet import MachineState
from domain.identifiers import MachineId
from domain.life_cycle import State
from domain.machine_life_cycle import MachineHappening
from domain.machine_moves import MachineMovement, MoveState
from domain.placement_changes import flexible_among, name_of
from domain.plan import TaskName
from services.configuration import ClustersConfiguration
from services.database import event_store, lease_store, machine_move_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.fleet_store import FleetRefused
from services.database.lease_store import Lease
from services.database.machine_move_store import StoredRequests
from services.database.pipeline import together
from services.database.revision_store import Subject, load_revisions, lock_revision
from services.machine_decision import MachineDecision, decide, load_question
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.action_requests import ActionRefused
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.machine_states import record_machine_happening
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.requested_actions import RequestedActions
from services.tiers.fenced_transaction import fenced_transaction

_MOST_AT_ONCE = 64
"""Machines that begin, or end, their move in one transaction."""

_PAUSE_REAL_S = 1.0
"""Between two changes of the fleet, each of which every region takes over, and between two decisions."""

_log = structlog.get_logger(__name__)


class MachineMoves:
    """Looked at once in every round of the session's loop."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        absent: AbsentClusters,
        arrivals: Arrivals,
        maintenance: MachineMaintenance,
        actions: RequestedActions,
        inbox: Inbox,
        clock: Clock,
        settings: ClustersConfiguration,
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._absent = absent
        self._arrivals = arrivals
        self._maintenance = maintenance
        self._actions = actions
        self._inbox = inbox
        self._clock = clock
        self._settings = settings
        self._now_real_s = asyncio.get_running_loop().time
        self._requests: StoredRequests | None = None
        self._moves: dict[MachineId, MachineMovement] = {}
        self._deciding: asyncio.Task[MachineDecision | None] | None = None
        self._decided_revision = 0
        """Of the requests that were decided in this session."""
        self._losses_seen = 0
        self._next_decision_real_s = 0.0
        self._next_change_real_s = 0.0

    async def look(self) -> None:
        """Takes each machine on its way a step further, and has it decided anew when that is due."""
        if self._inbox.look_at_moves:
            self._inbox.look_at_moves = False
            await self._load()
        await self._follow_decision()
        if self._moves:
            await self._begin()
            await self._empty_overdue()
            await self._turn_back()
            await self._change_clusters()
        self._decide_when_due()

    async def close(self) -> None:
        """Ends a decision that is being made; what it comes to, or fails with, is decided again by the next session."""
        if self._deciding is not None:
            self._deciding.cancel()
            # Not raised: it would hide why the session ends.
            await asyncio.gather(self._deciding, return_exceptions=True)

    async def _load(self) -> None:
        region = self._memory.region.region
        async with self._database.transaction(pipelined=True) as connection:
            requests, self._moves = await together(
                connection,
                machine_move_store.load_requests(connection, region),
                machine_move_store.load_moves(connection, region),
            )
        self._requests = requests.get(region)

    # ------------------------------------------------------------ deciding

    def _decide_when_due(self) -> None:
        requests = self._requests
        if requests is None or self._deciding is not None or self._now_real_s() < self._next_decision_real_s:
            return
        lost = self._memory.machines_lost
        is_due = (
            requests.decided_s is None
            or requests.revision != self._decided_revision
            or self._clock.now() >= requests.decided_s + self._settings.decide_every_s
            or (self._settings.on_loss and lost != self._losses_seen)
        )
        if is_due:
            self._decided_revision, self._losses_seen = requests.revision, lost
            self._deciding = asyncio.ensure_future(self._decide(requests))

    async def _decide(self, requests: StoredRequests) -> MachineDecision | None:
        question = await self._database.run(
            partial(load_question, region=requests.region), snapshot=True, give_up_after_s=0.0
        )
        if question is None:
            return None
        decision = await decide(question, requests.requests, self._settings.time_limit_real_s)
        self._inbox.wake()
        return decision

    async def _follow_decision(self) -> None:
        if self._deciding is None or not self._deciding.done():
            return
        deciding, self._deciding = self._deciding, None
        self._next_decision_real_s = self._now_real_s() + _PAUSE_REAL_S
        decision = deciding.result()
        if decision is None or self._requests is None:
            return
        if decision.fleet_revision != self._memory.revisions.fleet:
            self._decided_revision = 0  # It was made of another fleet.
            return
        now, region = self._clock.now(), self._memory.region
        cluster_of = {one.machine: cluster.cluster for cluster in region.clusters for one in cluster.machines()}
        after = moves_after(self._moves, decision.assignment.moves, cluster_of, now)
        async with fenced_transaction(self._database, self._lease) as connection:
            await machine_move_store.remove_moves(connection, after.ended)
            await machine_move_store.store_moves(connection, region.region, after.changed)
            await machine_move_store.store_decision(connection, region.region, now, decision.document())
        self._requests = replace(self._requests, decided_s=now)
        for machine in after.ended:
            del self._moves[machine]
        self._moves |= {move.machine: move for move in after.changed}
        if after.changed or after.ended:
            cost = decision.assignment.cost
            _log.info("machines are to change their cluster", moves=len(after.changed), unmet=cost.unmet)

    # ------------------------------------------------------------ draining

    async def _begin(self) -> None:
        """Machines that wait begin to drain, as many as may be on their way."""
        # One that has failed on its way may never come back: it keeps no other from moving.
        under_way = sum(
            move.state is not MoveState.WAITING and self._state_of(move.machine) is MachineState.DRAINING
            for move in self._moves.values()
        )
        free = min(_MOST_AT_ONCE, self._settings.most_draining - under_way)
        waiting = [move for move in self._moves.values() if move.state is MoveState.WAITING][: max(0, free)]
        if not waiting:
            return
        now, region = self._clock.now(), self._memory.region.region
        known = {cluster.cluster for cluster in self._memory.region.clusters}
        begun: list[MachineMovement] = []
        dropped: list[MachineId] = []
        async with fenced_transaction(self._database, self._lease) as connection:
            if (await load_revisions(connection)).fleet != self._memory.revisions.fleet:
                self._inbox.look_at_applied = True  # They may be elsewhere by now.
                return
            for move in waiting:
                state = self._state_of(move.machine)
                reason = f"it goes to cluster {move.to_cluster}, which asks for it"
                if state is MachineState.UP and move.to_cluster in known:
                    state = await record_machine_happening(
                        connection, region, move.machine, MachineHappening.DRAINED, reason, now
                    )
                    if state is MachineState.DRAINING:
                        deadline_s = now + self._settings.drain_s
                        begun.append(replace(move, state=MoveState.DRAINING, deadline_s=deadline_s))
                        continue
                # It has failed, or an operator drains it: the next decision counts it no more.
                dropped.append(move.machine)
            await machine_move_store.store_moves(connection, region, begun)
            await machine_move_store.remove_moves(connection, dropped)
            without_place = await self._arrivals.give_up(connection, [move.machine for move in begun])
        for move in begun:
            self._absent.set_state(move.machine, MachineState.DRAINING)
            self._moves[move.machine] = move
        for machine in dropped:
            del self._moves[machine]
        for workload in without_place:
            self._arrivals.withdraw(workload)

    async def _empty_overdue(self) -> None:
        """After its deadline what is on a machine migrates; where there is no place for it, it is evicted with its work saved.

        Attempts that have only flexible tasks there give these up.
        """
        now = self._clock.now()
        overdue = [
            move
            for move in self._moves.values()
            if move.state is MoveState.DRAINING
            and move.deadline_s is not None
            and move.deadline_s <= now
            and self._has_work_that_stays(move.machine)
        ]
        for move in overdue:
            for key in sorted(self._memory.live.on(move.machine)):
                attempt = self._memory.live.get(key)
                if (
                    attempt is not None
                    and attempt.state is State.RUNNING
                    and not _gives_up_there(attempt, move.machine)
                ):
                    with suppress(ActionRefused):
                        await self._actions.migrate(key.workload)
            if self._has_work_that_stays(move.machine):
                await self._maintenance.empty({move.machine: f"it goes to cluster {move.to_cluster}"})

    def _has_work_that_stays(self, machine: MachineId) -> bool:
        attempts = [self._memory.live.get(key) for key in self._memory.live.on(machine)]
        return any(
            attempt is not None and attempt.state is not State.PREEMPTING and _tasks_on(attempt, machine)
            for attempt in attempts
        )

    async def _turn_back(self) -> None:
        """Machines that are to stay after all take work again; of those that do so by other means nothing is left to do."""
        known = {cluster.cluster for cluster in self._memory.region.clusters}
        here = self._cluster_of_movers()
        back: list[MachineMovement] = []
        ended: list[MachineId] = []
        for machine, move in self._moves.items():
            state = self._state_of(machine)
            if here.get(machine) != move.from_cluster or state is None:
                # The fleet has been changed under it, and what drained for the move alone takes work again.
                ended.append(machine)
            elif move.state is not MoveState.WAITING and state in (MachineState.UP, MachineState.DOWN):
                ended.append(machine)  # An operator has undone its drain.
            elif state is MachineState.DRAINING and (
                move.state is MoveState.RETURNING or (move.state is MoveState.DRAINING and move.to_cluster not in known)
            ):
                back.append(move)
        if not (back or ended):
            return
        region, now = self._memory.region.region, self._clock.now()
        reason = "it stays in its cluster"
        async with fenced_transaction(self._database, self._lease) as connection:
            for move in back[:_MOST_AT_ONCE]:
                await record_machine_happening(
                    connection, region, move.machine, MachineHappening.UNDRAINED, reason, now
                )
            done = [*ended, *(move.machine for move in back[:_MOST_AT_ONCE])]
            await machine_move_store.remove_moves(connection, done)
        for move in back[:_MOST_AT_ONCE]:
            self._absent.set_state(move.machine, MachineState.UP)
        for machine in done:
            del self._moves[machine]

    # ------------------------------------------------------------ moving

    async def _change_clusters(self) -> None:
        """Drained machines with nothing on them belong to their new cluster, all that are ready at a time."""
        if self._now_real_s() < self._next_change_real_s:
            return
        ready = self._ready()
        if not ready:
            return
        self._next_change_real_s = self._now_real_s() + _PAUSE_REAL_S
        async with self._database.transaction() as connection:
            # In the order in which a fleet is applied: first its revision, then the lease.
            await lock_revision(connection, Subject.FLEET)
            await lease_store.assert_held(connection, self._lease)
            if await load_revisions(connection) != self._memory.revisions:
                self._inbox.look_at_applied = True
                return
            try:
                await machine_move_store.change_clusters(connection, {move.machine: move.to_cluster for move in ready})
            except FleetRefused:
                # What was given up there is not free yet, or a place is kept there: it is looked at again.
                _log.info("machines are not empty yet", machines=len(ready))
                return
            await self._write_events(connection, ready)
            await machine_move_store.remove_moves(connection, [move.machine for move in ready])
        for move in ready:
            del self._moves[move.machine]
        self._inbox.look_at_applied = True
        self._inbox.wake()
        _log.info("machines have changed their cluster", machines=len(ready))

    def _ready(self) -> list[MachineMovement]:
        known = {cluster.cluster for cluster in self._memory.region.clusters}
        return [
            move
            for move in self._moves.values()
            if move.state is MoveState.DRAINING
            and move.to_cluster in known
            and self._state_of(move.machine) is MachineState.DRAINING
            and not self._memory.live.on(move.machine)
            and not self._arrivals.keeps_on(move.machine)
        ][:_MOST_AT_ONCE]

    async def _write_events(self, connection: AnyConnection, moved: Sequence[MachineMovement]) -> None:
        region, now = self._memory.region.region, self._clock.now()
        for move in moved:
            details = {
                "machine": move.machine,
                "to_cluster": move.to_cluster,
                "reason": f"cluster {move.to_cluster} asks for it",
            }
            event = Event(now, EventKind.MACHINE_MOVED, region=region, cluster=move.from_cluster, details=details)
            await event_store.append(connection, [event])
            reason = f"it belongs to cluster {move.to_cluster} now"
            await record_machine_happening(connection, region, move.machine, MachineHappening.UNDRAINED, reason, now)

    # ------------------------------------------------------------ what is known

    def _state_of(self, machine: MachineId) -> MachineState | None:
        """None: the region has no such machine any more."""
        return self._memory.machine_state(machine) if self._absent.knows(machine) else None

    def _cluster_of_movers(self) -> dict[MachineId, str]:
        inventory = self._memory.inventory
        return {machine: inventory.cluster_of(machine) for machine in self._moves if self._absent.knows(machine)}


def _tasks_on(attempt: LiveAttempt, machine: MachineId) -> list[TaskName]:
    """The tasks that it is to hold there."""
    return [name_of(placement) for placement in attempt.placements if placement.machine == machine]


def _gives_up_there(attempt: LiveAttempt, machine: MachineId) -> bool:
    """Whether it can do without what it has there, or gives that up already."""
    tasks = _tasks_on(attempt, machine)
    return not tasks or (attempt.change is None and flexible_among(attempt.specification, tasks))
