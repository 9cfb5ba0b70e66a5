"""Rounds of a region that resize what runs: as in a simulation of the same moment, stored, and base tasks first (Lyra §5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.clock import ManualClock
from domain.fleet import MachineState
from domain.identifiers import ClusterId, JobName, MachineId, RegionId, WorkloadId
from domain.placement import TaskPlacement
from domain.plan import ScaleOut
from domain.workload import Command, Emulated, WorkloadSpecification
from formats.trace import TraceRow
from global_scheduler.knowledge import EstimateSource
from regional_scheduler.adjustment import AdjustableAttempt, ElasticPolicy, Resize
from regional_scheduler.elastic.lyra import LyraElastic
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.region_capacity import RegionCapacity
from services.database import attempt_store, completed_store, fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import acquire
from services.database.snapshot_reader import load_snapshot
from services.elastic_choice import elastic_policies
from services.regional_scheduler.adjustment_rounds import (
    MOST_AT_ONCE,
    AdjustmentRounds,
    adjustable_attempts,
    as_told,
    decided,
)
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.remaining_times import remaining_times
from services.wire.workloads import specification_to_proto
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policies
from tests.database.small_world import (
    ADS,
    EAST,
    FLEET,
    FORGET_WORKLOADS,
    dispatch,
    new_attempt,
    specification,
    submission,
    submit,
)
from tests.examples import examples

NOW_S = 3000.0
ROUND_S = 60.0
TRAIN = JobName("train")
MACHINES = [machine.machine for machine in FLEET.regions[0].machines()]
POLICIES = ("lyra", "afs", "gandiva_elastic")


@dataclass(frozen=True, slots=True)
class Running:
    """A workload that runs: the machine of each of its tasks, by position, base tasks first."""

    base: int
    most: int
    gpus: int
    duration_s: float
    machines: tuple[int, ...]

    @property
    def specification(self) -> WorkloadSpecification:
        wanted = specification(gpus=self.gpus, tasks=self.base)
        most = self.most if self.most > self.base else 0
        jobs = tuple(replace(job, max_tasks=most, entry_point=Emulated(self.duration_s)) for job in wanted.jobs)
        return replace(wanted, jobs=jobs)


@st.composite
def worlds(draw: st.DrawFn) -> list[Running]:
    """Up to eight workloads on six machines of eight GPUs, each in one cluster."""
    free = [8] * len(MACHINES)
    clusters = [[0, 1, 2, 3], [4, 5]] if len(MACHINES) == 6 else [list(range(len(MACHINES)))]
    found: list[Running] = []
    for _ in range(draw(st.integers(1, 8))):
        base, extra, gpus = draw(st.integers(1, 3)), draw(st.integers(0, 4)), draw(st.sampled_from((1, 2, 4)))
        own = draw(st.sampled_from(clusters))
        placed: list[int] = []
        for _ in range(base + draw(st.integers(0, extra))):
            room = [machine for machine in own if free[machine] >= gpus]
            if not room:
                break
            placed.append(draw(st.sampled_from(room)))
            free[placed[-1]] -= gpus
        if len(placed) >= base:
            duration_s = float(draw(st.integers(10_000, 90_000)))
            found.append(Running(base, base + extra, gpus, duration_s, tuple(placed)))
        else:
            for machine in placed:
                free[machine] += gpus
    return found


async def set_up(connection: AnyConnection, world: Sequence[Running], commands: bool = False) -> None:
    """They have run since 2100."""
    await fleet_store.apply_fleet(connection, FLEET)
    used = dict.fromkeys(MACHINES, 0)
    for number, running in enumerate(world, start=1):
        wanted = running.specification
        if commands:
            jobs = tuple(replace(job, entry_point=Command(("train",))) for job in wanted.jobs)
            wanted = replace(wanted, jobs=jobs)
        serialized = specification_to_proto(wanted).SerializeToString()
        await submit(connection, [replace(submission(number, wanted), serialized=serialized)])
        placements: list[TaskPlacement] = []
        for task, position in enumerate(running.machines):
            machine = MACHINES[position]
            gpus = tuple(range(used[machine], used[machine] + running.gpus))
            used[machine] += running.gpus
            cluster = ClusterId(machine.rsplit("-", 2)[0])
            cpus, mebibytes = 12_000 * running.gpus, 144 * 1024 * running.gpus
            placements.append(TaskPlacement(TRAIN, task, cluster, machine, gpus, cpus, mebibytes))
        attempt = new_attempt(WorkloadId(f"w{number:06d}"), gpus=running.gpus)
        await dispatch(connection, replace(attempt, placements=tuple(placements)))
        await attempt_store.record_started(connection, [(attempt.key, 2100.0)])


async def loaded(connection: AnyConnection) -> RegionMemory:
    memory = await load_memory(connection, EAST)
    assert memory is not None
    return memory


def places(placements: Sequence[TaskPlacement]) -> list[tuple[int, str]]:
    return sorted((placement.task, str(placement.machine)) for placement in placements)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds(), name=st.sampled_from(POLICIES))
def test_never_decides_a_round_otherwise_than_a_simulation(database_url: str, world: list[Running], name: str) -> None:
    async def live() -> tuple[SimulationInput, dict[str, list[tuple[int, str]]]]:
        async with Database(database_url) as database, database.transaction() as connection:
            await connection.execute(FORGET_WORKLOADS)
            await set_up(connection, world)
            snapshot = await load_snapshot(connection, NOW_S)
            memory = await loaded(connection)
            attempts = adjustable_attempts(memory)
            times = await remaining_times(connection, attempts, NOW_S)
        actions = decided(memory, as_told(attempts, NOW_S, times), elastic_policies()[name], NOW_S)
        # A run from a snapshot begins with a round over what runs; something else comes later, to another region.
        newcomer = TraceRow(WorkloadId("newcomer"), ADS, NOW_S + 1.0, 10.0, 1, region=RegionId("coast"))
        given_input = SimulationInput.of_snapshot(snapshot, "moment", [newcomer])
        before = {attempt.key: attempt.placements for attempt in attempts}
        with memory.inventory.tentatively():
            apply_actions(memory.inventory, actions, NOW_S)
            after = {holding.key: holding.placements for holding in memory.inventory.holdings()}
        changed = {str(key.workload): places(after[key]) for key in before if after[key] != before[key]}
        return given_input, changed

    given_input, changed = asyncio.run(live())
    log: list[Mapping[str, object]] = []
    free_of_cost = CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0)
    run_settings = SimulationSettings(costs=free_of_cost, round_s=ROUND_S)
    Simulation(given_input, policies()[name], run_settings, 1, lambda event: log.append(event.as_json())).run()
    first = [record for record in log if record["event"] == "resized" and record["t"] == NOW_S]
    assert {str(record["workload"]): told(record) for record in first} == changed


def told(record: Mapping[str, object]) -> list[tuple[int, str]]:
    placement = record["placement"]
    assert isinstance(placement, list)
    return sorted((entry["task"], entry["machine"]) for entry in placement if isinstance(entry, dict))


GROWS = [Running(1, 4, 2, 50_000.0, (0,)), Running(1, 1, 4, 50_000.0, (1,))]


async def rounds_of(
    database: Database,
    memory: RegionMemory,
    clock: ManualClock,
    policy: ElasticPolicy,
    most_at_once: int = MOST_AT_ONCE,
) -> AdjustmentRounds:
    async with database.transaction() as connection:
        lease = await acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
    assert lease is not None
    return AdjustmentRounds(
        database, lease, memory, EvictionWriter(memory, DueAttempts(), clock), clock, ROUND_S, policy, most_at_once
    )


async def set_up_and_load(database: Database, world: Sequence[Running]) -> RegionMemory:
    async with database.transaction() as connection:
        await set_up(connection, world)
        return await loaded(connection)


def tasks_of(memory: RegionMemory) -> dict[str, int]:
    return {str(attempt.key.workload): len(attempt.placements) for attempt in memory.live}


def test_an_elastic_attempt_grows_once_and_a_new_session_knows_it(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            memory = await set_up_and_load(database, GROWS)
            clock = ManualClock(NOW_S)
            rounds = await rounds_of(database, memory, clock, LyraElastic())
            await rounds.hold_due()
            assert tasks_of(memory) == {"w000001": 1, "w000002": 1}, "it is not due yet"
            clock.advance_to(NOW_S + ROUND_S)
            await rounds.hold_due()
            memory.inventory.check()
            assert tasks_of(memory) == {"w000001": 4, "w000002": 1}
            clock.advance_to(NOW_S + 2 * ROUND_S)
            await rounds.hold_due()
            assert {attempt.revision for attempt in memory.live} == {0, 1}, "its change is not carried out yet"
            async with database.transaction() as connection:
                again = await loaded(connection)
            assert tasks_of(again) == tasks_of(memory)
            grown = again.live.get(next(attempt.key for attempt in memory.live if attempt.change is not None))
            assert grown is not None
            assert grown.change is not None
            assert again.inventory.voluntary.is_changing(grown.key), "it gives nothing back before it has it"
            later = await rounds_of(database, again, clock, LyraElastic())
            clock.advance_to(NOW_S + 3 * ROUND_S)
            await later.hold_due()
            assert grown.revision == 1, "nor does a new session change it a second time"

    asyncio.run(scenario())


def test_a_round_waits_for_workloads_that_nobody_has_answered_but_not_for_long(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await set_up(connection, GROWS)
                await submit(connection, [submission(9)])
                memory = await loaded(connection)
            clock = ManualClock(NOW_S)
            rounds = await rounds_of(database, memory, clock, LyraElastic())
            clock.advance_to(NOW_S + ROUND_S)
            await rounds.hold_due()
            assert tasks_of(memory)["w000001"] == 1
            clock.advance_to(NOW_S + 1.1 * ROUND_S)
            await rounds.hold_due()
            assert tasks_of(memory)["w000001"] == 4

    asyncio.run(scenario())


def test_nothing_is_asked_of_a_cluster_that_cannot_be_reached(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            memory = await set_up_and_load(database, GROWS)
            cluster = next(iter(memory.live)).clusters[0]
            memory.closed[cluster] = {MachineId(MACHINES[0]): MachineState.UP}
            assert adjustable_attempts(memory) == []

    asyncio.run(scenario())


@dataclass(frozen=True, slots=True)
class Repeats:
    """Wrong: whatever the other one does is asked for twice."""

    name: str = "repeats"

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        (growth,) = LyraElastic().resize(region, attempts, now, anything_waits=anything_waits)
        assert isinstance(growth, ScaleOut)
        return [ScaleOut(growth.attempt, growth.added[:1]), ScaleOut(growth.attempt, growth.added[1:])]


def test_a_policy_that_is_wrong_changes_nothing_and_ends_no_session(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            memory = await set_up_and_load(database, GROWS)
            clock = ManualClock(NOW_S)
            rounds = await rounds_of(database, memory, clock, Repeats())
            clock.advance_to(NOW_S + ROUND_S)
            await rounds.hold_due()
            memory.inventory.check()
            assert tasks_of(memory) == {"w000001": 1, "w000002": 1}

    asyncio.run(scenario())


MANY = [Running(1, 2, 1, 50_000.0, (0,)) for _ in range(4)]


async def begin_in_parts(database: Database, clock: ManualClock) -> tuple[RegionMemory, AdjustmentRounds]:
    """Four attempts may grow, two in each part; the first part is done."""
    memory = await set_up_and_load(database, MANY)
    rounds = await rounds_of(database, memory, clock, LyraElastic(), most_at_once=2)
    clock.advance_to(NOW_S + ROUND_S)
    assert await rounds.hold_due(), "a part is left"
    assert sum(tasks_of(memory).values()) == 6
    return memory, rounds


def test_a_round_of_many_changes_is_carried_out_in_parts(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            memory, rounds = await begin_in_parts(database, ManualClock(NOW_S))
            assert not await rounds.hold_due()
            memory.inventory.check()
            assert set(tasks_of(memory).values()) == {2}
            async with database.transaction() as connection:
                assert tasks_of(await loaded(connection)) == tasks_of(memory)
            assert not await rounds.hold_due()
            assert {attempt.revision for attempt in memory.live} == {1}

    asyncio.run(scenario())


def test_what_is_left_of_a_round_is_not_done_on_what_has_changed(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            clock = ManualClock(NOW_S)
            memory, rounds = await begin_in_parts(database, clock)
            for machine in MACHINES:
                memory.inventory.set_machine_state(machine, MachineState.DRAINING)
            assert not await rounds.hold_due()
            assert sum(tasks_of(memory).values()) == 6
            for machine in MACHINES:
                memory.inventory.set_machine_state(machine, MachineState.UP)
            clock.advance_to(NOW_S + 2 * ROUND_S)
            assert not await rounds.hold_due()
            assert sum(tasks_of(memory).values()) == 8, "the next round decides anew"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("runs_s", "remaining_s", "source"),
    [
        ((), float("inf"), EstimateSource.ASSUMED),
        ((5000.0,), 4100.0, EstimateSource.NAME_HISTORY),
        # It has run for longer than any before it: that says nothing any more.
        ((500.0,), float("inf"), EstimateSource.ASSUMED),
    ],
)
def test_what_is_left_follows_from_the_runs_of_its_name(
    database_url: str, runs_s: tuple[float, ...], remaining_s: float, source: EstimateSource
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await set_up(connection, GROWS[:1], commands=True)
            for number, run_s in enumerate(runs_s, start=20):
                await submit(connection, [submission(number)])
                await connection.execute(
                    """UPDATE workloads SET state = 'COMPLETED', ended_s = 2000, attained_s = %s WHERE workload = %s""",
                    (run_s, f"w{number:06d}"),
                )
            await completed_store.count_completed(connection)
            memory = await loaded(connection)
            (time,) = (await remaining_times(connection, memory.live, NOW_S)).values()
            assert (time.remaining_s, time.source) == (remaining_s, source)

    asyncio.run(scenario())


def test_what_is_declared_comes_first_less_what_is_done(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await set_up(connection, [Running(1, 4, 2, 50_000.0, (0, 0))])
            memory = await loaded(connection)
            (time,) = (await remaining_times(connection, memory.live, NOW_S)).values()
            # Two tasks instead of one, for 900 seconds.
            assert (time.remaining_s, time.source) == (48_200.0, EstimateSource.DECLARED)

    asyncio.run(scenario())
