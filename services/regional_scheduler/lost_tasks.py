"""Elastic attempts that have lost flexible tasks go on without them: a change of placements that nobody has decided (Lyra §5.2).

It goes the way of every change: written with a number, asked of the clusters, free when they have carried it out. It may
take the place of one that is not carried out yet, for what is left of the gang stands still until it is; and so may what gives
up flexible tasks on a machine that is drained, for the attempt would have to leave as a whole otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cluster_manager.attempt_run.actions import GoOnWithout
from cluster_manager.attempt_run.events import FlexibleTasksLost
from cluster_manager.attempt_run.machine import step
from cluster_manager.attempt_run.run import AttemptRun, Phase
from domain.clock import Clock
from domain.identifiers import MachineId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import LossCause, PlacementChange, flexible_among, name_of, without_lost
from domain.plan import TaskName
from services.database import placement_change_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.gang_reports import lost_tasks
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver
from services.tiers.fenced_transaction import fenced_transaction


@dataclass(frozen=True, slots=True)
class GoingOn:
    """What an attempt goes on with."""

    attempt: LiveAttempt
    run: AttemptRun
    placements: tuple[TaskPlacement, ...]
    change: PlacementChange
    killed: bool = False
    """Whether tasks of it were killed, so that it grows later (`LiveAttempt.task_kills`)."""


class LostTasks:
    """Shrinks attempts to what is left of them."""

    def __init__(
        self, database: Database, lease: Lease, memory: RegionMemory, due_attempts: DueAttempts, clock: Clock
    ) -> None:
        self._database = database
        self._lease = lease
        self._memory = memory
        self._due_attempts = due_attempts
        self._clock = clock

    async def take_reports(self, keys: Iterable[AttemptKey]) -> None:
        """Of these attempts a cluster says that they have lost flexible tasks. One transaction for all."""
        attempts = [attempt for key in sorted(set(keys)) if (attempt := self._memory.live.get(key)) is not None]
        going_on = [
            one
            for attempt in attempts
            if (one := self.after_loss(attempt, lost_tasks(attempt), LossCause.TASK_LOST)) is not None
        ]
        if not going_on:
            return
        async with fenced_transaction(self._database, self._lease) as connection:
            for one in going_on:
                await self.write(connection, one)
        for one in going_on:
            self.begin(one)

    def on_machines(self, attempt: LiveAttempt, machines: Collection[MachineId]) -> GoingOn | None:
        """What the attempt goes on with when these machines are lost; None when it cannot, or has nothing to hold there."""
        lost = [name_of(placement) for placement in attempt.placements if placement.machine in machines]
        return self.after_loss(attempt, lost, LossCause.MACHINE_LOST)

    def giving_up(self, attempt: LiveAttempt, machines: Collection[MachineId]) -> GoingOn | None:
        """What the attempt, which runs and has a change that is not carried out yet, goes on with when it gives up what it
        has on these machines; None when it cannot."""
        names = [name_of(placement) for placement in attempt.placements if placement.machine in machines]
        if attempt.run.phase is not Phase.RUNNING or not names or not flexible_among(attempt.specification, names):
            return None
        waits = self._memory.live.change_waits(attempt)
        placements, change = without_lost(attempt.placements, attempt.change, names, None, waits=waits)
        return GoingOn(attempt, attempt.run, placements, change)

    def after_loss(self, attempt: LiveAttempt, lost: Collection[TaskName], cause: LossCause) -> GoingOn | None:
        """The same for these tasks."""
        if not lost or attempt.state is not State.RUNNING or not flexible_among(attempt.specification, lost):
            return None
        run, actions = step(attempt.run, FlexibleTasksLost(self._clock.now(), tuple(sorted(lost))))
        if not any(isinstance(action, GoOnWithout) for action in actions):
            return None
        waits = self._memory.live.change_waits(attempt)
        placements, change = without_lost(attempt.placements, attempt.change, lost, cause, waits=waits)
        return GoingOn(attempt, run, placements, change, cause is LossCause.TASK_LOST)

    async def write(self, connection: AnyConnection, one: GoingOn) -> None:
        """Writes it; after the commit `begin` does the same to memory. Raises SessionOver when the database knows the attempt
        otherwise."""
        attempt = one.attempt
        if not await placement_change_store.begin_change(
            connection,
            attempt.key,
            attempt.revision + 1,
            one.placements,
            one.change,
            self._clock.now(),
            replaces=attempt.change is not None,
        ):
            raise SessionOver(f"{attempt.key} does not run in the database, or was changed meanwhile")
        wake_after_commit(connection, SCAN_CHANNEL)

    def begin(self, one: GoingOn) -> None:
        """What was written counts in memory too."""
        attempt = one.attempt
        attempt.run = one.run
        if one.killed:
            attempt.task_kills = attempt.task_kills.once_more(self._clock.now())
        self._memory.inventory.replace_placements(attempt.key, one.placements)
        waiting = self._memory.live.begin_change(attempt.key, one.placements, one.change)
        for key in (attempt.key, *waiting):
            self._due_attempts.give_orders(key)
