"""Mere progress takes turns; what must be exact does not wait for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.clock import ManualClock
from domain.identifiers import AttemptNumber, ClusterId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from services.database import attempt_store, fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.execution.executor import AttemptPhase, AttemptStatus
from services.progress_pace import TOLD, WRITTEN, ProgressPace
from services.regional_scheduler.absent_clusters import AbsentClusters
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.attempt_recorder import AttemptRecorder
from services.regional_scheduler.cluster_link import ClusterReport, LinkMessage
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.order_sender import OrderSender
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.report_taker import ReportTaker
from services.regional_scheduler.time_limits import RunningLimits
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, dispatch, new_attempt, placement, specification, submission, submit

STARTED_S = 2100.0
CLUSTER = ClusterId("east-b")
RUNNING = 30
KEYS = tuple(AttemptKey(WorkloadId(f"w{number:06d}"), AttemptNumber(1)) for number in range(1, RUNNING + 1))


@dataclass
class Region:
    """A region in which `RUNNING` attempts run, and what takes in and writes what is reported of them."""

    database: Database
    memory: RegionMemory
    reports: ReportTaker
    recorder: AttemptRecorder

    async def tell(self, *statuses: AttemptStatus, second: float, complete: bool = False) -> None:
        """Its cluster manager says so; whatever is due is written."""
        await self.reports.take([ClusterReport(CLUSTER, 1, complete, statuses, ())], second)
        await self.recorder.record(second)

    async def shown(self) -> list[float]:
        """The progress of every live attempt as the database has it, by key."""
        async with self.database.transaction() as connection:
            return [attempt.progress for attempt in await attempt_store.load_live(connection, EAST)]


def at(key: AttemptKey, progress: float, checkpoint: float = 0.0) -> AttemptStatus:
    return AttemptStatus(key, AttemptPhase.RUNNING, STARTED_S, progress, checkpoint, 1.0, started_s=STARTED_S)


def in_a_busy_region(database_url: str, story: Callable[[Region], Awaitable[None]]) -> None:
    async def set_up(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        serialized = specification_to_proto(specification(gpus=0, emulated=False)).SerializeToString()
        await submit(
            connection, [replace(submission(number), serialized=serialized) for number in range(1, RUNNING + 1)]
        )
        place = placement()._replace(gpu_indices=(), millicpus=1_000)
        attempts = [replace(new_attempt(key.workload, gpus=0), charges={}, placements=(place,)) for key in KEYS]
        await dispatch(connection, *attempts)
        await attempt_store.record_started(connection, [(key, STARTED_S) for key in KEYS])

    async def nowhere(_: ClusterId) -> str | None:
        return None

    def unread(message: LinkMessage) -> None:
        raise AssertionError(f"nothing is linked, and yet came {message}")

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(set_up)
            async with database.transaction() as connection:
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
                memory = await load_memory(connection, EAST)
            assert lease is not None
            assert memory is not None
            due, clock = DueAttempts(), ManualClock(3000.0)
            sender = OrderSender(memory.region, memory.live, due, nowhere, unread, lease)
            reports = ReportTaker(memory.live, due, sender, AbsentClusters(memory, 0.0), clock)
            arrivals, limits = Arrivals(memory, due), RunningLimits()
            recorder = AttemptRecorder(database, lease, memory, due, reports, sender, arrivals, limits, clock)
            await story(Region(database, memory, reports, recorder))

    asyncio.run(scenario())


def test_a_second_writes_the_progress_of_some_and_a_turn_that_of_all(database_url: str) -> None:
    async def story(region: Region) -> None:
        turn_s = round(WRITTEN.interval_s(RUNNING))
        assert turn_s == 3
        await region.tell(*(at(key, 1.0) for key in KEYS), second=100.0, complete=True)
        assert await region.shown() == [1.0] * RUNNING, "a region that begins catches up"
        for second in range(1, 8):
            before = await region.shown()
            await region.tell(*(at(key, 1.0 + second) for key in KEYS), second=100.0 + second)
            shown = await region.shown()
            written = sum(progress != earlier for progress, earlier in zip(shown, before, strict=True))
            assert 0 < written <= RUNNING / turn_s
        assert all(progress > 8.0 - turn_s for progress in await region.shown())

    in_a_busy_region(database_url, story)


def test_a_checkpoint_and_an_end_are_written_at_once_with_all_the_progress(database_url: str) -> None:
    async def story(region: Region) -> None:
        await region.tell(*(at(key, 1.0) for key in KEYS), second=100.0, complete=True)
        # Everybody else is before these two in the line.
        await region.tell(
            *(at(key, 2.0) for key in KEYS[:-2]),
            at(KEYS[-2], 50.25, 50.0),
            replace(at(KEYS[-1], 60.5, 60.5), phase=AttemptPhase.COMPLETED, since_s=2200.0),
            second=100.5,
        )
        async with region.database.transaction() as connection:
            live = {attempt.key: attempt for attempt in await attempt_store.load_live(connection, EAST)}
            cursor = await connection.execute(
                "SELECT state, progress, checkpoint_progress, attained_s FROM workloads WHERE workload = %s",
                (KEYS[-1].workload,),
            )
            ended = await cursor.fetchone()
            cursor = await connection.execute("SELECT workload, progress FROM checkpoints")
            checkpoints = await cursor.fetchall()
        assert (live[KEYS[-2]].progress, live[KEYS[-2]].checkpoint_progress) == (50.25, 50.0)
        assert checkpoints == [(KEYS[-2].workload, 50.0)]
        assert ended == (State.COMPLETED.value, 60.5, 60.5, 100.0)
        assert KEYS[-1] not in live

    in_a_busy_region(database_url, story)


def test_what_has_not_moved_is_not_written_again(database_url: str) -> None:
    async def versions(region: Region) -> list[str]:
        async with region.database.transaction() as connection:
            cursor = await connection.execute("SELECT xmin::text FROM attempts ORDER BY workload")
            return [row[0] for row in await cursor.fetchall()]

    async def story(region: Region) -> None:
        for second in range(5):
            await region.tell(*(at(key, 1.0) for key in KEYS), second=100.0 + second, complete=second == 0)
        assert await region.shown() == [1.0] * RUNNING
        before = await versions(region)
        for second in range(5, 10):
            await region.tell(*(at(key, 1.0) for key in KEYS), second=100.0 + second)
        assert await versions(region) == before

    in_a_busy_region(database_url, story)


@pytest.mark.parametrize("pace", [TOLD, WRITTEN])
@given(running=st.integers(1, 2_000_000), elapsed_s=st.floats(1.0, 5.0))
def test_never_does_a_turn_take_longer_than_stated_or_cost_more(
    pace: ProgressPace, running: int, elapsed_s: float
) -> None:
    turn_s, share = pace.interval_s(running), pace.share(running, elapsed_s)
    assert pace.shortest_s <= turn_s <= pace.longest_s
    assert share * turn_s >= running * min(elapsed_s, turn_s) * (1 - 1e-9), "some would wait for more than a turn"
    assert share <= max(pace.attempts_per_s, running / pace.longest_s) * elapsed_s + 1


def test_what_a_workload_asked_for_is_not_remembered_after_its_end(database_url: str) -> None:
    async def story(region: Region) -> None:
        goes_on, ends = KEYS[0], KEYS[1]
        remembered = region.memory.specifications
        async with region.database.transaction() as connection:
            await remembered.workloads(connection, [goes_on.workload, ends.workload])
        assert ends.workload in remembered
        completed = replace(at(ends, 60.0), phase=AttemptPhase.COMPLETED, since_s=2200.0)
        await region.tell(at(goes_on, 1.0), completed, second=100.0)
        assert ends.workload not in remembered
        assert goes_on.workload in remembered

    in_a_busy_region(database_url, story)
