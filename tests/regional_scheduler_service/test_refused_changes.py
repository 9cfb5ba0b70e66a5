"""A change of placements that a cluster refuses as impossible: undone, told, and no longer in the way of the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from cluster_manager.attempt_run.run import AttemptFacts, new_run
from domain.clock import ManualClock
from domain.events import EventKind, EvictionCause
from domain.identifiers import JobName, MachineId
from domain.life_cycle import State
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.rank import Standing
from services.database import attempt_store, fleet_store, lease_store, placement_change_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.action_requests import ActionRefused, ResizeRequest
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.cluster_link import ChangeRefused, MachineReport
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.live_attempts import LiveAttempt, change_to_ask_for
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.lost_tasks import LostTasks
from services.regional_scheduler.machine_maintenance import MachineMaintenance
from services.regional_scheduler.recording import record_reports
from services.regional_scheduler.refused_changes import RefusedChanges
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.requested_actions import RequestedActions
from services.regional_scheduler.undone_changes import UndoneChanges
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, dispatch, new_attempt, submission, submit
from tests.regional_scheduler_service.test_races import FIRST, NEWCOMER, W1
from tests.regional_scheduler_service.test_won_scale_in import TASKS, elastic

NOW_S = 3000.0
CLUSTER = TASKS[0].cluster
TRAIN = JobName("train")


@dataclass
class Region:
    """What a session has, and the parts of it that change placements."""

    database: Database
    lease: Lease
    memory: RegionMemory
    due: DueAttempts
    actions: RequestedActions
    refused_changes: RefusedChanges
    machines: MachineMaintenance
    losses: LostTasks

    @property
    def attempt(self) -> LiveAttempt:
        attempt = self.memory.live.get(FIRST)
        assert attempt is not None
        return attempt

    @property
    def held(self) -> tuple[TaskPlacement, ...]:
        holding = self.memory.inventory.holding(FIRST)
        assert holding is not None
        return holding.placements

    async def resize(self, tasks: int) -> None:
        request = ResizeRequest(workload=W1, job=TRAIN, tasks=tasks, plan=asyncio.get_running_loop().create_future())
        await self.actions.answer([request])
        await request.plan

    async def refuse(self, revision: int) -> None:
        await self.refused_changes.undo([ChangeRefused(CLUSTER, FIRST, revision, "its tasks do not like that")])

    async def lose(self, machine: MachineId) -> None:
        await self.machines.take_reports([MachineReport(machine, up=False, reason="it burns")])

    async def drain(self, machine: MachineId) -> list[AttemptKey]:
        """What leaves for it."""
        return await self.machines.empty({machine: "it is old"})

    async def carry_out(self) -> None:
        """The cluster reports the attempt as it was asked for last."""
        self.attempt.reports[CLUSTER] = AttemptStatus(
            FIRST,
            AttemptPhase.RUNNING,
            2100.0,
            progress=50.0,
            emulated=True,
            started_s=2100.0,
            revision=self.attempt.revision,
            changed_s=NOW_S,
            changed_progress=50.0,
        )
        async with self.database.transaction() as connection:
            recorded = await record_reports(connection, EAST, [self.attempt], (), NOW_S)
        for key, since in recorded.changed:
            self.memory.live.end_change(key, since)

    async def events(self) -> list[tuple[str, object]]:
        """Since the submission."""

        async def read(connection: AnyConnection) -> list[tuple[str, object]]:
            cursor = await connection.execute(
                "SELECT event, details FROM events WHERE event <> 'submitted' ORDER BY sequence"
            )
            return [(row[0], row[1]) for row in await cursor.fetchall()]

        return await self.database.run(read)


def in_a_region(database_url: str, tasks: int, story: Callable[[Region], Awaitable[None]]) -> None:
    """The elastic workload runs there with so many tasks."""

    async def set_up(connection: AnyConnection) -> tuple[Lease, RegionMemory]:
        await fleet_store.apply_fleet(connection, FLEET)
        serialized = specification_to_proto(elastic()).SerializeToString()
        await submit(connection, [replace(submission(1, elastic()), serialized=serialized)])
        await dispatch(connection, replace(new_attempt(W1), placements=TASKS[:tasks]))
        await attempt_store.record_started(connection, [(FIRST, 2100.0)])
        lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
        assert lease is not None
        return lease, await _loaded(connection)

    async def scenario() -> None:
        async with Database(database_url) as database:
            lease, memory = await database.run(set_up)
            due, clock = DueAttempts(), ManualClock(NOW_S)
            writer = EvictionWriter(memory, due, clock)
            actions = RequestedActions(database, lease, memory, writer, Arrivals(memory, due), clock)
            undone = UndoneChanges(memory, due, clock)
            refused_changes = RefusedChanges(database, lease, memory, undone, writer)
            absent, arrivals = AbsentClusters(memory, 0.0), Arrivals(memory, due)
            losses = LostTasks(database, lease, memory, due, clock)
            machines = MachineMaintenance(database, lease, memory, writer, undone, losses, absent, arrivals, clock)
            await story(Region(database, lease, memory, due, actions, refused_changes, machines, losses))
            memory.inventory.check()

    asyncio.run(scenario())


async def _loaded(connection: AnyConnection) -> RegionMemory:
    memory = await load_memory(connection, EAST)
    assert memory is not None
    return memory


@pytest.mark.parametrize(("before", "wanted"), [(2, 4), (4, 2), (3, 4)])
def test_it_is_undone_and_told_and_the_next_change_may_be_asked_for(
    database_url: str, before: int, wanted: int
) -> None:
    async def story(region: Region) -> None:
        await region.resize(wanted)
        assert len(region.held) == wanted
        with pytest.raises(ActionRefused):
            await region.resize(before)
        await region.refuse(1)
        assert region.held == TASKS[:before], "what it had reserved is free again, and what it was to give up is not"
        undoing = region.attempt.change
        assert undoing is not None
        assert [placement.task for placement in undoing.released] == list(range(before, wanted))
        (told,) = await region.events()
        assert told == (EventKind.CHANGE_REFUSED.value, {"change": "resized", "reason": "its tasks do not like that"})
        # The cluster is asked to hold what it held before: it may have several parts, of which others have changed.
        region.attempt.reports[CLUSTER] = AttemptStatus(FIRST, AttemptPhase.RUNNING, 2100.0, started_s=2100.0)
        assert change_to_ask_for(region.attempt, CLUSTER, waits=region.memory.live.change_waits(region.attempt))
        assert FIRST in region.due.take_orders()
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert (again.revision, again.change, again.placements) == (2, undoing, TASKS[:before])
        await region.carry_out()
        assert region.attempt.change is None
        await region.refuse(1)
        await region.resize(wanted)
        assert (len(region.held), region.attempt.revision) == (wanted, 3)

    in_a_region(database_url, before, story)


def test_what_waited_beside_what_it_was_to_give_up_may_start_once_it_keeps_that(database_url: str) -> None:
    """It is dispatched to the same machine, on GPUs that were free: nothing else would ask for it any more."""

    async def story(region: Region) -> None:
        await region.resize(2)
        memory, place = region.memory, (TASKS[3]._replace(task=0),)
        newcomer = replace(region.attempt, run=new_run(AttemptFacts(NEWCOMER, 0.0)), placements=place, change=None)
        memory.inventory.hold(Holding(NEWCOMER, Standing(3, 0), NOW_S, place))
        memory.live.add(newcomer)
        assert memory.live.blocked(newcomer)
        region.due.take_orders()
        await region.refuse(1)
        assert not memory.live.blocked(newcomer)
        assert set(region.due.take_orders()) == {FIRST, NEWCOMER}

    in_a_region(database_url, 3, story)


def test_it_leaves_when_what_it_was_to_give_up_is_another_ones_already(database_url: str) -> None:
    async def story(region: Region) -> None:
        await region.resize(2)
        place = (TASKS[2]._replace(task=0),)
        region.memory.inventory.hold(Holding(NEWCOMER, Standing(3, 0), NOW_S, place))
        await region.refuse(1)
        assert region.attempt.state is State.PREEMPTING
        assert region.attempt.eviction is not None
        assert region.attempt.eviction.cause is EvictionCause.CHANGE_REFUSED
        assert region.memory.inventory.is_leaving(FIRST)
        assert [kind for kind, _ in await region.events()] == ["change_refused", "evicting"]
        await region.refuse(1)
        assert len(await region.events()) == 2, "it is told once"

    in_a_region(database_url, 4, story)


def test_it_leaves_when_the_change_back_is_refused_too(database_url: str) -> None:
    async def story(region: Region) -> None:
        await region.resize(4)
        await region.refuse(1)
        await region.refuse(2)
        assert region.attempt.state is State.PREEMPTING
        assert region.held == TASKS[:2]
        assert [kind for kind, _ in await region.events()] == ["change_refused", "change_refused", "evicting"]

    in_a_region(database_url, 2, story)


def test_a_change_is_undone_once_in_the_database_too(database_url: str) -> None:
    async def story(region: Region) -> None:
        await region.resize(4)
        await region.refuse(1)
        change = region.attempt.change
        assert change is not None
        async with region.database.transaction() as connection:
            for number in (1, 2, 4):
                assert not await placement_change_store.begin_change(
                    connection, FIRST, number, TASKS[:2], change, NOW_S
                )
            plain = replace(change, undoes=False)
            assert not await placement_change_store.begin_change(connection, FIRST, 3, TASKS[:2], plain, NOW_S)

    in_a_region(database_url, 2, story)


async def grow_on_another_machine(region: Region) -> MachineId:
    """The attempt is to have two more tasks, for which there is room on another machine only; returns which."""
    others = tuple(placement._replace(task=number) for number, placement in enumerate(TASKS[2:]))
    region.memory.inventory.hold(Holding(NEWCOMER, Standing(3, 0), NOW_S, others))
    await region.resize(4)
    (machine,) = {placement.machine for placement in region.held[2:]}
    assert machine != TASKS[0].machine
    return machine


def test_it_goes_on_when_a_machine_is_lost_where_it_was_only_to_hold_something(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        await region.lose(machine)
        assert region.attempt.state is State.RUNNING
        assert region.held == TASKS[:2]
        back = region.attempt.change
        assert back is not None
        assert back.undoes
        told = [(kind, details) for kind, details in await region.events() if not kind.startswith("machine")]
        reason = f"machine {machine}, where it was to hold more, is lost: it burns"
        assert told == [(EventKind.CHANGE_REFUSED.value, {"change": "resized", "reason": reason})]
        async with region.database.transaction() as connection:
            again = (await _loaded(connection)).live.get(FIRST)
        assert again is not None
        assert (again.revision, again.change, again.placements) == (2, back, TASKS[:2])
        await region.lose(machine)
        assert (region.attempt.state, region.attempt.change) == (State.RUNNING, back), (
            "it only gives something up there"
        )
        await region.carry_out()
        assert region.attempt.change is None

    in_a_region(database_url, 2, story)


def test_it_is_lost_with_a_machine_where_it_holds_something_already(database_url: str) -> None:
    async def story(region: Region) -> None:
        await grow_on_another_machine(region)
        await region.lose(TASKS[0].machine)
        assert region.attempt.eviction is not None
        assert region.attempt.eviction.cause is EvictionCause.MACHINE_LOST

    in_a_region(database_url, 2, story)


def test_it_is_lost_with_both_machines(database_url: str) -> None:
    async def story(region: Region) -> None:
        machine = await grow_on_another_machine(region)
        reports = [MachineReport(name, up=False, reason="no power") for name in (machine, TASKS[0].machine)]
        await region.machines.take_reports(reports)
        assert region.attempt.state is State.PREEMPTING

    in_a_region(database_url, 2, story)
