"""Rounds of a region: they decide what a simulation of the same moment decides, and are stored as one change each."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace

from domain.clock import ManualClock
from domain.identifiers import WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Retune
from domain.sensitivity import SensitivityProfile
from domain.workload import Emulated
from formats.trace import TraceRow
from services.database import attempt_store, fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import acquire
from services.database.sensitivity_store import store_profiles
from services.database.snapshot_reader import load_snapshot
from services.regional_scheduler.adjustment_rounds import AdjustmentRounds, adjustable_attempts, as_told, decided
from services.regional_scheduler.due_attempts import DueAttempts
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.tuning_choice import LIVE_TUNINGS
from services.wire.workloads import specification_to_proto
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policies
from tests.database.small_world import (
    ADS,
    EAST,
    FLEET,
    dispatch,
    new_attempt,
    placement,
    specification,
    submission,
    submit,
)

TUNE = LIVE_TUNINGS["synergy_tune"]
NOW_S = 3000.0
PROFILES = {
    "hungry": SensitivityProfile((6.0, 12.0, 48.0), (100.0,), ((0.5,), (1.0,), (4.0,))),
    "lean": SensitivityProfile((1.0,), (20.0,), ((1.0,),)),
}
MODELS = ("lean", "hungry", "hungry", "lean")
"""Two GPUs each, all on one machine: 96 CPUs and 1152 GiB for 8 GPUs."""


async def set_up(connection: AnyConnection) -> None:
    """Four workloads run on one machine with their proportional shares."""
    await fleet_store.apply_fleet(connection, FLEET)
    await store_profiles(connection, PROFILES)
    for number, model in enumerate(MODELS, start=1):
        wanted = specification(gpus=2)
        jobs = tuple(replace(job, entry_point=Emulated(100_000.0)) for job in wanted.jobs)
        wanted = replace(wanted, jobs=jobs, labels=(("model", model),))
        serialized = specification_to_proto(wanted).SerializeToString()
        await submit(connection, [replace(submission(number, wanted), serialized=serialized)])
        held = placement()._replace(
            gpu_indices=(2 * number - 2, 2 * number - 1), millicpus=24_000, mebibytes=288 * 1024
        )
        attempt = new_attempt(WorkloadId(f"w{number:06d}"), gpus=2)
        await dispatch(connection, replace(attempt, placements=(held,), profiles_revision=1))
        await attempt_store.record_started(connection, [(attempt.key, 2100.0)])


async def loaded(connection: AnyConnection) -> RegionMemory:
    memory = await load_memory(connection, EAST, mechanism=TUNE)
    assert memory is not None
    return memory


def amounts(placements: tuple[TaskPlacement, ...]) -> tuple[int, int]:
    (held,) = placements
    return held.millicpus, held.mebibytes


def told(record: Mapping[str, object]) -> tuple[int, int]:
    placement = record["placement"]
    assert isinstance(placement, list)
    (entry,) = placement
    assert isinstance(entry, dict)
    return round(1000 * entry["cpus"]), round(1024 * entry["memory_gib"])


def test_a_round_decides_as_a_simulation_of_the_same_moment(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await set_up(connection)
            snapshot = await load_snapshot(connection, NOW_S)
            memory = await loaded(connection)
        with memory.inventory.tentatively():
            actions = decided(memory, as_told(adjustable_attempts(memory), NOW_S), None, NOW_S)
            writing = {}
            for action in actions:
                assert isinstance(action, Retune)
                (only,) = action.amounts
                key = action.attempt
                assert key not in writing, "one change each"
                writing[key.workload] = (only.millicpus, only.mebibytes)
        log: list[Mapping[str, object]] = []
        # Simulations hold a round when anything has happened: something comes, and runs on another machine.
        newcomer = TraceRow(WorkloadId("newcomer"), ADS, NOW_S + 1.0, 10.0, 1)
        given = replace(SimulationInput.of_snapshot(snapshot, "moment", [newcomer]), profiles=PROFILES)
        settings = SimulationSettings(
            costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0), round_s=60.0
        )
        Simulation(given, policies()["synergy_tune"], settings, 1, lambda event: log.append(event.as_json())).run()
        tuned = [record for record in log if record["event"] == "tuned"]
        first = {record["workload"]: told(record) for record in tuned if record["t"] == tuned[0]["t"]}
        assert writing == first
        assert {str(name)[-1] for name in first} == {"1", "2", "3", "4"}, "lean ones give, hungry ones get"

    asyncio.run(scenario())


def test_what_is_decided_is_stored_with_its_change_and_survives_a_restart(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await set_up(connection)
                lease = await acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
                memory = await loaded(connection)
            assert lease is not None
            clock = ManualClock(NOW_S)
            due = DueAttempts()
            rounds = AdjustmentRounds(database, lease, memory, EvictionWriter(memory, due, clock), clock, 60.0)
            await rounds.hold_due()
            assert not any(attempt.change for attempt in memory.live), "it is not due yet"
            clock.advance_to(NOW_S + 60.0)
            await rounds.hold_due()
            memory.inventory.check()
            now = {attempt.key: amounts(attempt.placements) for attempt in memory.live}
            hungry = AttemptKey(WorkloadId("w000002"), new_attempt(WorkloadId("w000002")).key.attempt)
            assert now[hungry][0] > 24_000
            changes = [attempt.change for attempt in memory.live]
            assert all(change is not None for change in changes)
            # Until the change is carried out it works as before; afterwards as fast as its profile says.
            attempt = memory.live.get(hungry)
            assert attempt is not None
            assert attempt.change is not None
            assert attempt.tuned.rate(attempt.specification, attempt.change.before) == 1.0
            assert math.isclose(
                attempt.tuned.rate(attempt.specification, attempt.placements), now[hungry][0] / 24_000, rel_tol=1e-6
            )
            await rounds.hold_due()
            assert {attempt.revision for attempt in memory.live} == {1}, "nothing is changed twice"
            async with database.transaction() as connection:
                again = await loaded(connection)
            assert {attempt.key: amounts(attempt.placements) for attempt in again.live} == now
            restored = again.live.get(hungry)
            assert restored is not None
            assert restored.tuned.profiles == attempt.tuned.profiles

    asyncio.run(scenario())
