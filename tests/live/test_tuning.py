"""CPUs and memory are tuned while workloads run: by emulated execution, on a compressed clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from domain.fleet import NO_GPU_MODEL, Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, MachineId, RackId
from domain.sensitivity import SensitivityProfile
from domain.workload import Emulated, WorkloadSpecification
from formats.scheduler_file import EstimatesSection
from services.database.sensitivity_store import store_profiles
from simulator.validate import validate
from tests.live.running import CONFIGURATION, LiveRun, in_live_service
from tests.live.world import A100, EAST, RANKING, TABLES, TENANTS, V100, WEST, gpu_cluster, one_job
from topmast import Event

pytestmark = pytest.mark.live

FLEET = Fleet(
    (
        Region(EAST, (gpu_cluster("east-a", A100, 1),)),
        Region(
            WEST,
            (
                Cluster(
                    ClusterId("west-a"),
                    (Rack(RackId("r"), (Machine(MachineId("west-a-m0"), V100, 2, 6.0, 120.0),)),),
                ),
            ),
        ),
    )
)
PROFILES = {
    "hungry": SensitivityProfile((1.0, 3.0, 12.0), (20.0,), ((1 / 3,), (1.0,), (4.0,))),
    "lean": SensitivityProfile((1.0,), (20.0,), ((1.0,),)),
}
TUNED = CONFIGURATION.model_copy(update={"tuning": "synergy_tune", "round_s": 60.0})


def trained(name: str, model: str, duration_s: float) -> WorkloadSpecification:
    wanted = one_job(name, RANKING, Emulated(duration_s, 60.0), gpus=1, model=V100)
    return replace(wanted, labels=(("model", model),))


def cpus(event: Event) -> list[float]:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    return [float(str(entry["cpus"])) for entry in placement if isinstance(entry, dict)]


def test_the_log_says_how_fast_an_attempt_is_from_its_start_on(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        async with run.database.transaction() as connection:
            await store_profiles(connection, PROFILES)
        (hungry,) = await run.submit([trained("hungry", "hungry", 36_000.0)])
        started = await run.until_event("started", hungry)
        assert cpus(started) == [6.0]
        assert started.details["speed"] == pytest.approx(2.0)
        (lean,) = await run.submit([trained("lean", "lean", 36_000.0)])
        assert "speed" not in (await run.until_event("started", lean)).details, "it is 1"
        for workload in (hungry, lean):
            await run.client.cancel(workload)
            await run.until_event("cancelled", workload)

    in_live_service(database_url, tmp_path, scenario, fleet=FLEET, configuration=TUNED)


def test_what_one_job_does_not_need_makes_another_faster(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        async with run.database.transaction() as connection:
            await store_profiles(connection, PROFILES)
        (lean,) = await run.submit([trained("lean", "lean", 36_000.0)])
        assert cpus(await run.until_event("started", lean)) == [1.0], "its best demand was idle"
        (hungry,) = await run.submit([trained("hungry", "hungry", 36_000.0)])
        assert cpus(await run.until_event("started", hungry)) == [3.0]
        tuned = await run.until_event("tuned", hungry)
        assert cpus(tuned) == [5.0]
        assert tuned.details["speed"] == pytest.approx(5 / 3)
        (shown,) = (await run.client.get(hungry)).attempts[-1].tunings
        assert shown.job == (await run.client.get(hungry)).attempts[-1].placements[0].job
        assert (shown.cpus_per_gpu, shown.share_cpus_per_gpu, shown.share_memory_gib_per_gpu) == (5.0, 3.0, 60.0)
        assert (shown.tuning, shown.profile) == ("synergy_tune", "hungry")
        assert shown.speed == pytest.approx(5 / 3)
        # What is held is in the database: another session of the region knows it.
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        # A newcomer gets its share back, by its plan.
        await run.client.cancel(lean)
        await run.until_event("cancelled", lean)
        assert cpus(await run.until_event("tuned", hungry)) == [6.0]
        (second,) = await run.submit([trained("second", "hungry", 36_000.0)])
        assert cpus(await run.until_event("tuned", hungry)) == [3.0]
        assert cpus(await run.until_event("started", second)) == [3.0]
        for workload in (hungry, second):
            await run.client.cancel(workload)
        await run.follow()
        run.check(FLEET)
        log = [event.as_json() for event in run.events]
        report = validate(log, FLEET, TENANTS, tables=TABLES, complete=True, profiles=PROFILES)
        assert report.violations == 0, str(report)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, fleet=FLEET, configuration=TUNED)


LITTLE = Machine(MachineId("east-a-m0"), NO_GPU_MODEL, 0, 1.0, 1.0)
ALL_GPUS_IN_THE_WEST = Fleet(
    (Region(EAST, (Cluster(ClusterId("east-a"), (Rack(RackId("r"), (LITTLE,)),)),)), FLEET.regions[1])
)
STATIC = TUNED.model_copy(update={"tuning": "synergy_greedy"})


def test_static_demands_wait_for_all_that_they_ask_for(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        async with run.database.transaction() as connection:
            await store_profiles(connection, PROFILES)
        (first,) = await run.submit([trained("first", "hungry", 36_000.0)])
        assert cpus(await run.until_event("started", first)) == [6.0]
        (second,) = await run.submit([trained("second", "hungry", 600.0)])
        await run.until_event("waiting", second)
        # What it holds is in the database, and it is not asked to give anything back.
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        (third,) = await run.submit([replace(trained("third", "", 600.0), labels=())])
        await run.until_event("waiting", third)
        await run.client.cancel(first)
        assert cpus(await run.until_event("started", second)) == [6.0]
        assert cpus(await run.until_event("started", third)) == [3.0]
        await run.follow()
        assert run.count("tuned") == 0
        run.check(FLEET)
        log = [event.as_json() for event in run.events]
        report = validate(log, FLEET, TENANTS, tables=TABLES, complete=True, profiles=PROFILES)
        assert report.violations == 0, str(report)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, fleet=FLEET, configuration=STATIC)


@pytest.mark.parametrize(("tuning", "next_one"), [("drf_packing", "lean"), ("tetris_packing", "hungry")])
def test_packings_order_what_waits(database_url: str, tmp_path: Path, tuning: str, next_one: str) -> None:
    async def scenario(run: LiveRun) -> None:
        async with run.database.transaction() as connection:
            await store_profiles(connection, PROFILES)
        (running,) = await run.submit([trained("running", "hungry", 36_000.0)])
        await run.until_event("started", running)
        names = {}
        # The smaller share is that of the lean one; the hungry one is better aligned, and has less to do for its size.
        for model in ("hungry", "lean") if next_one == "lean" else ("lean", "hungry"):
            (names[model],) = await run.submit([trained(model, model, 600.0 if model == "hungry" else 1200.0)])
            await run.until_event("waiting", names[model])
        await run.client.cancel(running)
        await run.follow(until=lambda event: event.event == "started")
        assert run.events[-1].workload == names[next_one]
        await run.follow()
        started = [event for event in run.events if event.event == "started"]
        assert {event.workload: cpus(event) for event in started[1:]} == {names["hungry"]: [6.0], names["lean"]: [1.0]}
        run.check(ALL_GPUS_IN_THE_WEST)

    packing = STATIC.model_copy(update={"tuning": tuning, "estimates": EstimatesSection()})
    in_live_service(database_url, tmp_path, scenario, fleet=ALL_GPUS_IN_THE_WEST, configuration=packing)
