"""A cluster or a region that dies and never returns strands nothing; one that returns finds that all went on without it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from domain.fleet import Fleet
from domain.identifiers import RegionId
from domain.workload import Emulated
from services.configuration import LeaseConfiguration
from services.database import lease_store
from services.wire.fleets import fleet_to_proto
from tests.live.managers import processes
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import A100, FLEET, RANKING, TABLES, one_job
from topmast import Event

SOON = CONFIGURATION.model_copy(
    update={"lease": LeaseConfiguration(duration_real_s=2.0, tasks_stop_after_real_s=4.0, lost_grace_real_s=3.0)}
)
"""Lost within nine seconds and the looks of whom it concerns."""

WITH_A100 = ("east-a", "west-b")
"""The two clusters, of two regions, in which this work can run."""
WORK = Emulated(7_200.0, 600.0)
"""Twelve seconds of real time, and a checkpoint each second."""


def where(event: Event) -> tuple[str, str]:
    """Region and cluster of what has started."""
    placement = event.details["placement"]
    assert isinstance(placement, list)
    first = placement[0]
    assert isinstance(first, dict)
    return str(event.region), str(first["cluster"])


async def begin(run: LiveRun, *regions: str) -> tuple[str, str, str]:
    """Submits one for these regions (none: any); returns its name, and in which region and cluster it runs."""
    wanted = replace(one_job("work", RANKING, WORK, gpus=8, model=A100), regions=tuple(map(RegionId, regions)))
    (workload,) = await run.submit([wanted])
    return workload, *where(await run.until_event("started", workload))


async def nothing_is_charged(run: LiveRun) -> None:
    """And nothing is queued or live."""
    async with run.database.transaction() as connection:
        cursor = await connection.execute(
            """SELECT (SELECT count(*) FROM quota_use WHERE amount <> 0), (SELECT count(*) FROM queue_entries),
                      (SELECT count(*) FROM attempts WHERE ended_s IS NULL)"""
        )
        assert await cursor.fetchone() == (0, 0, 0)


async def began_again(run: LiveRun, workload: str) -> Event:
    return await run.follow(
        until=lambda event: (event.event, event.workload, event.attempt) == ("started", workload, 2)
    )


def clusters_lost(run: LiveRun) -> set[str]:
    """Those that were ever lost: on a busy machine one that changes its process may be for a moment."""
    return {str(event.cluster) for event in run.events if event.event == "cluster_lost"}


def without(cluster: str) -> Fleet:
    return Fleet(
        tuple(
            replace(region, clusters=tuple(one for one in region.clusters if one.cluster != cluster))
            for region in FLEET.regions
        )
    )


def test_what_a_cluster_had_that_never_returns_runs_elsewhere_and_the_fleet_can_do_without_it(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun) -> None:
        with processes(run, tmp_path) as beside:
            for cluster in WITH_A100:
                await beside.take_over(f"cluster/{cluster}")
            going_on, region, lost = await begin(run)
            cancelled, _, also_lost = await begin(run, region)
            assert also_lost == lost
            beside.signal(f"cluster/{lost}", signal.SIGKILL)
            await run.client.cancel(cancelled)
            again = await began_again(run, going_on)
            assert where(again)[1] != lost
            assert lost in clusters_lost(run)
            await run.follow()
            assert [one.event for one in run.events if one.workload == cancelled][-1] == "cancelled"
            run.check()
            (evicted,) = [one for one in run.events if (one.event, one.workload) == ("evicted", going_on)]
            assert evicted.details["cause"] == "machine_lost"
            assert str(evicted.details["reason"]).startswith(
                f"cluster {lost} is lost: its manager has held no lease for"
            )
            # Emulated work tells of its checkpoints when it is asked only, so there may be none to go on from.
            assert again.details["progress"] == evicted.details["checkpoint_progress"]
            await nothing_is_charged(run)
            await run.client.apply_fleet(fleet_to_proto(without(lost), TABLES))

    in_live_service(database_url, tmp_path, scenario, configuration=SOON)


@pytest.mark.nightly
def test_a_paused_manager_that_wakes_up_finds_that_all_went_on_without_it(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        with processes(run, tmp_path) as beside:
            for cluster in WITH_A100:
                await beside.take_over(f"cluster/{cluster}")
            workload, _, lost = await begin(run)
            tier = f"cluster/{lost}"
            before = await beside.lease(tier)
            beside.signal(tier, signal.SIGSTOP)
            again = await began_again(run, workload)
            assert where(again)[1] != lost
            beside.signal(tier, signal.SIGCONT)
            back = await run.follow(until=lambda event: event.event == "cluster_back")
            assert back.cluster == lost
            after = await beside.lease(tier)
            assert before is not None
            assert after is not None
            assert after.token > before.token + 1, "it was fenced, and has begun anew"
            await run.follow()
            report = run.check()
            assert report.events_by_kind["started"] == 2
            await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, configuration=SOON)


def test_what_a_region_had_that_never_returns_runs_elsewhere(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload, region, _ = await begin(run)
        clusters = [str(one.cluster) for one in FLEET.region(RegionId(region)).clusters]
        for tier in (f"regional/{region}", *(f"cluster/{cluster}" for cluster in clusters)):
            await run.service.stop(tier)
        again = await began_again(run, workload)
        assert again.region != region
        await run.follow()
        run.check()
        await nothing_is_charged(run)
        assert clusters_lost(run) >= set(clusters)

    in_live_service(database_url, tmp_path, scenario, configuration=SOON)


def test_what_runs_goes_on_without_a_scheduler_for_longer_than_it_may_without_a_manager(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun) -> None:
        _, region, _ = await begin(run)
        tier = f"regional/{region}"
        await run.service.stop(tier)
        lease = SOON.lease
        enough_s = lease.tasks_stop_after_real_s + 2.0 * lease.lost_grace_real_s
        async with asyncio.timeout(PATIENCE_REAL_S):
            while True:
                left_s = await run.database.run(lambda connection: lease_store.left_s(connection, tier))
                if left_s is not None and left_s < -enough_s:
                    break
                await asyncio.sleep(0.1)
        await run.service.start(tier)
        await run.follow()
        run.check()
        assert clusters_lost(run) == set()
        assert (run.count("started"), run.count("evicted"), run.count("completed")) == (1, 0, 1)
        # By then it may have ended; what it came to was kept.
        found = {"not_found": 0, "stopped": 0}
        went_on = run.count("cluster_reconciled", went_on=1, ended_meanwhile=0, **found)
        assert went_on + run.count("cluster_reconciled", went_on=0, ended_meanwhile=1, **found) == 1
        await nothing_is_charged(run)

    in_live_service(database_url, tmp_path, scenario, configuration=SOON)
